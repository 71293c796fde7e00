package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/embeddedpg"
)

// bench is the database, the controllers and the fleet on them.
type bench struct {
	o     options
	dir   string
	token string
	db    *embeddedpg.Postgres
	// pool is what the benchmark itself asks the database with.
	pool        *pgx.Conn
	controllers []*controllerProcess
	// heartbeat is the interval that the next controllers ask for.
	heartbeat time.Duration
	conn      *grpc.ClientConn // to the first controller
	crew      *agents
	// made is how many machines of the fleet exist; some of them may have been left without an identity.
	made int
}

// The interval of heartbeats: the default, and that of a crowd. All agents and controllers share these processors,
// which the heartbeats of so many would fill at the default.
const (
	heartbeat      = 10 * time.Second
	crowdHeartbeat = 30 * time.Second
)

func newBench(ctx context.Context, o options) (b *bench, err error) {
	b = &bench{o: o, dir: o.dir, heartbeat: heartbeat}
	if b.dir == "" {
		b.dir, err = os.MkdirTemp("", "ingot-benchfleet-")
	} else {
		err = os.MkdirAll(b.dir, 0o711)
	}
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	if err := b.open(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bench) open(ctx context.Context) (err error) {
	// As root, the database runs as another user who has to get through.
	if err := os.Chmod(b.dir, 0o711); err != nil {
		return fmt.Errorf("open directory: %w", err)
	}
	// The one of --dev, with its settings.
	if b.db, err = embeddedpg.Open(ctx,
		embeddedpg.Config{DataDir: b.dir, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return err
	}
	if b.pool, err = pgx.Connect(ctx, b.db.URL()); err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	if err := os.RemoveAll(b.path("tokens")); err != nil {
		return err
	}
	scope, err := auth.ParseScope("admin")
	if err != nil {
		return err
	}
	if b.token, err = auth.AddToken(b.path("tokens"), "bench", scope); err != nil {
		return err
	}
	return b.countMade(ctx)
}

func (b *bench) path(parts ...string) string {
	return filepath.Join(append([]string{b.dir}, parts...)...)
}

// identities is where the agents keep theirs.
func (b *bench) identities() string { return b.path("agents") }

func (b *bench) close() error {
	err := b.down()
	if b.pool != nil {
		err = errors.Join(err, b.pool.Close(context.Background()))
	}
	if b.db != nil {
		err = errors.Join(err, b.db.Close())
	}
	if b.o.dir == "" {
		err = errors.Join(err, os.RemoveAll(b.dir))
	}
	return err
}

// down ends fleet and controllers.
func (b *bench) down() error {
	var errs []error
	if b.crew != nil {
		errs = append(errs, b.crew.stop())
		b.crew = nil
	}
	if b.conn != nil {
		errs = append(errs, b.conn.Close())
		b.conn = nil
	}
	for _, c := range b.controllers {
		errs = append(errs, c.stop())
	}
	b.controllers = nil
	return errors.Join(errs...)
}

// up starts n fresh controllers, unless that many run already.
func (b *bench) up(ctx context.Context, n int) error {
	if len(b.controllers) == n {
		return nil
	}
	if err := b.down(); err != nil {
		return err
	}
	for i := range n {
		c, err := b.newController(i)
		if err != nil {
			return err
		}
		b.controllers = append(b.controllers, c)
		if err := c.start(ctx); err != nil {
			return err
		}
	}
	var err error
	b.conn, err = b.controllers[0].dial(b.token)
	return err
}

func (b *bench) addresses() []string {
	var out []string
	for _, c := range b.controllers {
		out = append(out, c.fleet)
	}
	return out
}

// freePort finds one below those that the kernel gives to outgoing connections (ip_local_port_range): a controller that
// is started again must find its own free.
func freePort(taken map[int]bool) (int, error) {
	for port := 20000; port < 32000; port++ {
		if taken[port] {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		taken[port] = true
		return port, l.Close()
	}
	return 0, errors.New("no port is free")
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"

	"github.com/ingot-metal/ingot/controller"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/controller/embeddedpg"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/process"
)

// rig is the database, the controller and a client.
type rig struct {
	o     options
	dir   string
	db    *embeddedpg.Postgres
	dbPid int
	admin *pgx.Conn
	store *store.Store
	conn  *grpc.ClientConn

	frontpage     string
	token, second string

	pid            int
	stopController func() error // any number of times
	stops          []func() error
}

func newRig(ctx context.Context, o options) (*rig, error) {
	g := &rig{o: o}
	if err := g.open(ctx); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

func (g *rig) open(ctx context.Context) (err error) {
	if g.dir, err = os.MkdirTemp("", "ingot-benchscale-"); err != nil {
		return err
	}
	g.later(func() error {
		if g.o.keep {
			say("kept: %s", g.dir)
			return nil
		}
		return os.RemoveAll(g.dir)
	})
	// As root, the database runs as another user who has to get through.
	if err = os.Chmod(g.dir, 0o711); err != nil {
		return err
	}
	// The one of --dev, with its settings.
	if g.db, err = embeddedpg.Open(ctx,
		embeddedpg.Config{DataDir: g.dir, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return err
	}
	g.later(g.db.Close)
	if g.dbPid, err = pidFromFile(g.path("postgres/data/postmaster.pid")); err != nil {
		return err
	}
	if err = g.startController(ctx); err != nil {
		return err
	}
	return g.connect(ctx)
}

func (g *rig) path(name string) string { return filepath.Join(g.dir, name) }

// later ends something, in the reverse order of what was begun.
func (g *rig) later(stop func() error) { g.stops = append(g.stops, stop) }

func (g *rig) close() error {
	var errs []error
	for i := len(g.stops) - 1; i >= 0; i-- {
		errs = append(errs, g.stops[i]())
	}
	return errors.Join(errs...)
}

func pidFromFile(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(b), "\n")
	return strconv.Atoi(strings.TrimSpace(first))
}

// connect opens what the benchmark itself uses of the database.
func (g *rig) connect(ctx context.Context) (err error) {
	if g.admin, err = pgx.Connect(ctx, g.db.URL()); err != nil {
		return err
	}
	g.later(func() error { return g.admin.Close(context.WithoutCancel(ctx)) })
	if g.store, err = store.New(ctx, store.Config{URL: g.db.URL(), PoolSize: 2,
		Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return err
	}
	g.later(func() error { g.store.Close(); return nil })
	return nil
}

// startController starts it, as a process of its own unless a profile is wanted, and connects a client.
func (g *rig) startController(ctx context.Context) error {
	var err error
	if g.token, err = auth.AddToken(g.path("tokens"), "bench", auth.ScopeAdmin); err != nil {
		return err
	}
	if g.second, err = auth.AddToken(g.path("tokens"), "polite", auth.ScopeRead); err != nil {
		return err
	}
	text := fmt.Sprintf(
		`listen: {frontpage: "127.0.0.1:0", fleet: "127.0.0.1:0", enrolment: "127.0.0.1:0", http: "127.0.0.1:0"}
data_dir: %q
database: {url: %q}
tls: {names: [localhost, 127.0.0.1]}
tokens_file: %q
log: {level: warn}
`, g.path("controller"), g.db.URL(), g.path("tokens"))
	if err := os.WriteFile(g.path("controller.yaml"), []byte(text), 0o600); err != nil {
		return err
	}
	launch := g.process
	if g.o.profile != "" {
		launch = g.inProcess
	}
	where, err := launch(ctx)
	if err != nil {
		return err
	}
	g.frontpage = where.Frontpage
	if g.conn, err = g.dial(g.token); err != nil {
		return err
	}
	g.later(g.conn.Close)
	return nil
}

func (g *rig) process(ctx context.Context) (where controller.Addresses, err error) {
	log, err := os.Create(g.path("controller.log"))
	if err != nil {
		return where, err
	}
	g.later(log.Close)
	p, err := process.Start(process.Config{
		Path: filepath.Join(g.o.bin, "ingot-controller"), Output: log,
		Args: []string{"run", "--config", g.path("controller.yaml"), "--addresses-file", g.path("addresses.json")},
	})
	if err != nil {
		return where, err
	}
	g.stopController = sync.OnceValue(func() error { return p.Stop(20 * time.Second) })
	g.later(g.stopController)
	g.pid = p.Pid()
	for !ready(ctx, g.path("addresses.json"), &where) {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return where, ctx.Err()
		case <-p.Gone():
			return where, fmt.Errorf("the controller ended: %w", p.Err())
		}
	}
	return where, nil
}

func (g *rig) inProcess(ctx context.Context) (controller.Addresses, error) {
	cfg, err := config.Load(g.path("controller.yaml"), nil)
	if err != nil {
		return controller.Addresses{}, err
	}
	ctl, err := controller.New(ctx, *cfg, controller.Options{Logger: slog.New(slog.DiscardHandler), Version: "bench"})
	if err != nil {
		return controller.Addresses{}, err
	}
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	task.Background("controller", func() { ended <- ctl.Run(runCtx) })
	g.stopController = sync.OnceValue(func() error { cancel(); return <-ended })
	g.later(g.stopController)
	g.pid = os.Getpid()
	select {
	case <-ctl.Started():
		return ctl.Addresses(), nil
	case <-ctx.Done():
		return controller.Addresses{}, ctx.Err()
	}
}

func ready(ctx context.Context, file string, where *controller.Addresses) bool {
	b, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(b, where) != nil {
		return false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+where.HTTP+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // nothing of it is read
	return resp.StatusCode == http.StatusOK
}

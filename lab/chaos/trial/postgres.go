package trial

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/localpg"
	"github.com/ingot-metal/ingot/lab/measure"
)

// postgres is a private server that can be killed, stopped and started again on the same data.
type postgres struct {
	// busy is held by a fault of the server.
	busy sync.Mutex

	mu      sync.Mutex
	cluster *localpg.Cluster

	dir     string
	mounted bool // it has a file system of its own

	standby  *localpg.Cluster // nil where it has none
	standbys int              // how many there have been
}

// databaseSize is the room that a server has, where it has a file system of its own.
const databaseSize = "320m"

// pgSettings leave out fsync: what is killed here is a server, not the machine under it.
var pgSettings = map[string]string{
	"max_connections": "120", "shared_buffers": "32MB", "fsync": "off", "wal_level": "minimal", "max_wal_senders": "0",
	"max_prepared_transactions": "0", "checkpoint_timeout": "30min", "max_wal_size": "64MB",
}

func openPostgres(ctx context.Context, dir string, paired bool) (*postgres, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, err
	}
	p := &postgres{dir: dir, mounted: mount(dir, "size="+sizeOf(paired)+",mode=0711")}
	c, err := localpg.Open(ctx, localpg.Config{Dir: dir, Settings: settingsOf(paired),
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, errors.Join(err, p.unmount())
	}
	p.cluster = c
	if paired {
		err = p.attach(ctx)
	}
	return p, err
}

func (p *postgres) unmount() error {
	if !p.mounted {
		return nil
	}
	return unix.Unmount(p.dir, unix.MNT_DETACH)
}

func (p *postgres) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cluster.Pid()
}

func (p *postgres) ballast() string { return filepath.Join(p.dir, "ballast") }

// fill leaves the server no room: neither for tables nor for its log.
func (p *postgres) fill() (took bool, err error) {
	if !p.mounted {
		return false, nil
	}
	err = fill(p.ballast())
	return err == nil, err
}

func (p *postgres) empty() error { return empty(p.ballast()) }

// socket is where it listens.
func (p *postgres) socket() (string, error) {
	u, err := url.Parse(p.cluster.URL(localpg.Database))
	if err != nil {
		return "", fmt.Errorf("parse the database's URL: %w", err)
	}
	return filepath.Join(u.Query().Get("host"), ".s.PGSQL.5432"), nil
}

// urlBy is the database as reached through a relay.
func urlBy(address string) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable&connect_timeout=2", localpg.User, address, localpg.Database)
}

// kill sends SIGKILL to the postmaster; its children see it and go.
func (p *postgres) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return syscall.Kill(p.cluster.Pid(), syscall.SIGKILL)
}

// start starts it where it does not run, and waits until it answers: one that ran out of room may still be recovering,
// or about to end.
func (p *postgres) start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cluster.Restart(ctx)
}

// signal reaches the postmaster and all of its children.
func (p *postgres) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	children, err := measure.Children(p.cluster.Pid())
	errs := []error{err}
	for _, pid := range append([]int{p.cluster.Pid()}, children...) {
		if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (p *postgres) close(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.closeStandby(ctx), p.cluster.Stop(ctx), p.unmount())
}

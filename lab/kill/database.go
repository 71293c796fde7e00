package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/internal/localpg"
	"github.com/ingot-metal/ingot/lab/chaos/program"
)

// database is a private PostgreSQL server that is stopped and started again on the same data.
type database struct {
	mu      sync.Mutex
	cluster *localpg.Cluster
}

// settings leave out fsync: the server is killed here, and never the machine under it.
var settings = map[string]string{
	"max_connections": "120", "shared_buffers": "64MB", "fsync": "off", "wal_level": "minimal", "max_wal_senders": "0",
	"checkpoint_timeout": "30min", "max_wal_size": "256MB",
}

func openDatabase(ctx context.Context, dir string) (*database, error) {
	c, err := localpg.Open(ctx, localpg.Config{Dir: dir, Settings: settings, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return &database{cluster: c}, nil
}

// socket returns the path of the server's socket.
func (d *database) socket() (string, error) {
	u, err := url.Parse(d.cluster.URL(localpg.Database))
	if err != nil {
		return "", fmt.Errorf("parse the database's URL: %w", err)
	}
	return filepath.Join(u.Query().Get("host"), ".s.PGSQL.5432"), nil
}

// urlBy returns the URL of the database behind a relay.
func urlBy(address string) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable&connect_timeout=2", localpg.User, address, localpg.Database)
}

// stopImmediately does what "pg_ctl stop -m immediate" does, which is SIGQUIT to the postmaster (PostgreSQL
// documentation, shutting down the server). After the length the server is started again, and recovers.
func (d *database) stopImmediately(ctx context.Context, length time.Duration) (took bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.cluster.Pid()
	if err := syscall.Kill(before, syscall.SIGQUIT); err != nil && !errors.Is(err, syscall.ESRCH) {
		return false, fmt.Errorf("stop PostgreSQL: %w", err)
	}
	program.Rest(ctx, length)
	err = d.cluster.Restart(context.WithoutCancel(ctx))
	return d.cluster.Pid() != before, err
}

// start starts the server where it does not run.
func (d *database) start(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cluster.Restart(ctx)
}

// Package embeddedpg is the private PostgreSQL of `ingot-controller --dev`: for trying things out and for small places
// that have no database. It is started below the data directory and stopped with the controller. One that outlived a
// killed controller is found again and used, so the next controller is up at once. The mechanics are in
// internal/localpg.
package embeddedpg

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/localpg"
)

const (
	lookEvery   = time.Second
	stopTimeout = 20 * time.Second
)

// Config has the directory and the logger.
type Config struct {
	// DataDir is the controller's; the cluster is in postgres/ below it.
	DataDir string
	// Logger is slog.Default() when nil.
	Logger *slog.Logger
	// Clock paces Run; the real one when nil.
	Clock clock.Clock
	// Connections is how many there may be at once; 0 means 200.
	Connections int
}

// Postgres is a running private server. The caller of Open must call Run or Close.
type Postgres struct {
	cluster *localpg.Cluster
	logger  *slog.Logger
	clock   clock.Clock
	url     string
}

// settings leave durability as PostgreSQL has it: fsync stays on, here too a committed command is a promise.
func settings(connections int) map[string]string {
	return map[string]string{
		"max_connections":                     strconv.Itoa(connections),
		"max_prepared_transactions":           "0",
		"idle_in_transaction_session_timeout": "60s", // an open transaction holds back the reconcile cursor
	}
}

// Open starts the server, or finds it running. Errors wrap localpg.ErrNotInstalled, with the package to install, or
// localpg.ErrInUse when another controller has the directory.
func Open(ctx context.Context, cfg Config) (*Postgres, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real()
	}
	if cfg.Connections == 0 {
		cfg.Connections = 200
	}
	c, err := localpg.Open(ctx, localpg.Config{
		Dir: filepath.Join(cfg.DataDir, "postgres"), Settings: settings(cfg.Connections), Logger: cfg.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("open the private database: %w", err)
	}
	return &Postgres{cluster: c, logger: cfg.Logger, clock: cfg.Clock, url: c.URL(localpg.Database)}, nil
}

// URL is the address of the database. It stays the same across restarts.
func (p *Postgres) URL() string { return p.url }

// Run starts the server again whenever it has died, until ctx ends; then it stops it. Whatever uses the database
// should have stopped before.
func (p *Postgres) Run(ctx context.Context) error {
	tick := p.clock.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return p.Close()
		case <-tick.C():
		}
		if p.cluster.Alive() {
			continue
		}
		p.logger.Warn("the private database has died, starting it again")
		if err := p.cluster.Restart(ctx); err != nil && ctx.Err() == nil {
			p.logger.Error("the private database does not start", "error", err)
		}
	}
}

// Close stops the server in the fast way: open transactions are rolled back.
func (p *Postgres) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := p.cluster.Stop(ctx); err != nil {
		return fmt.Errorf("close the private database: %w", err)
	}
	return nil
}

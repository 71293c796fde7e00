package localpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgconn"
)

// OpenStandby makes a hot standby of the cluster in an empty directory and starts it. It streams from conninfo, which
// is a libpq connection string, under the name application_name.
func (c *Cluster) OpenStandby(ctx context.Context, cfg Config, conninfo string) (*Cluster, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &Cluster{cfg: cfg}
	if err := s.copyOf(c, conninfo); err != nil {
		return nil, fmt.Errorf("copy PostgreSQL to %s: %w", cfg.Dir, err)
	}
	return Open(ctx, s.cfg)
}

// copyOf copies a running cluster, and leaves the word that the copy is a standby.
func (c *Cluster) copyOf(from *Cluster, conninfo string) (err error) {
	if c.owner, err = currentOwner(); err != nil {
		return err
	}
	if c.cfg.Dir, err = makeRoot(c.cfg.Dir, c.owner); err != nil {
		return err
	}
	out, err := c.owner.command(c.cfg.Dir, filepath.Join(from.bin, "pg_basebackup"), "-h", from.server.socketDir, "-p",
		"5432",
		"-U", User, "-D", c.data(), "--checkpoint=fast", "--no-sync", "-X", "stream", "-R").CombinedOutput()
	if err != nil {
		return fmt.Errorf("pg_basebackup: %w: %s", err, tail(out))
	}
	settings := map[string]string{"primary_conninfo": conninfo}
	for k, v := range c.cfg.Settings {
		settings[k] = v
	}
	c.cfg.Settings = settings
	return nil
}

// Promote ends the recovery of a standby and returns when it takes writes.
func (c *Cluster) Promote(ctx context.Context) error {
	out, err := c.Query(ctx, "SELECT pg_promote()")
	if err == nil && out != "t" {
		err = errors.New("the standby was not promoted in time")
	}
	if err != nil {
		return fmt.Errorf("promote the standby in %s: %w", c.cfg.Dir, err)
	}
	return nil
}

// Query runs one statement and returns the first column of its first row, as text.
func (c *Cluster) Query(ctx context.Context, sql string) (string, error) {
	conn, err := pgconn.Connect(ctx, c.URL(Database))
	if err != nil {
		return "", err
	}
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return "", err
	}
	if len(results) == 0 || len(results[0].Rows) == 0 {
		return "", nil
	}
	return string(results[0].Rows[0][0]), nil
}

// Package rig runs what the benchmarks of a controller measure: a private Postgres with the settings of
// `ingot-controller --dev`, controllers on it as processes of their own, and a client. It reads their processor time.
package rig

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/embeddedpg"
)

// Config selects what runs.
type Config struct {
	// Bin is the directory of the binaries.
	Bin string
	// Dir keeps database, keys and logs for the next run. Empty means a temporary directory, which stays with Keep.
	Dir  string
	Keep bool
	// Profile is a file for a CPU profile of the first controller, which Profiled fills; empty is none.
	Profile string
	// Connections is the limit of the database; 0 means its default.
	Connections int
	// REST makes the controllers serve REST and the console.
	REST bool
	// Settings are further lines of the configuration of the next controllers.
	Settings string
}

// Flags declares the options that every scenario with a rig has.
func (c *Config) Flags(f *flag.FlagSet) {
	f.StringVar(&c.Bin, "bin", "bin", "directory of the binaries")
	f.StringVar(&c.Dir, "dir", "",
		"keep database, identities and logs here for the next run; empty means a directory that is removed")
	f.BoolVar(&c.Keep, "keep", false, "keep the directory with logs and data")
	f.StringVar(&c.Profile, "profile", "", "write a CPU profile of the controller under load to this file")
}

// Rig is a database with the controllers on it.
type Rig struct {
	Config
	// URL is the database's, and Admin a connection to it for the benchmark itself.
	URL   string
	Admin *pgx.Conn
	// Token is an admin's.
	Token       string
	Controllers []*Controller
	// Agents are the ids of processes whose processor time is that of agents.
	Agents []int
	// Conn is a client's connection to the first controller.
	Conn *grpc.ClientConn

	opened time.Time

	db        *embeddedpg.Postgres
	dbPid     int
	temporary bool
	taken     map[int]bool
}

// Open starts the database.
func Open(ctx context.Context, cfg Config) (r *Rig, err error) {
	r = &Rig{Config: cfg, temporary: cfg.Dir == "" && !cfg.Keep, taken: map[int]bool{}, opened: time.Now()}
	if r.Dir == "" {
		r.Dir, err = os.MkdirTemp("", "ingot-bench-")
	} else {
		err = os.MkdirAll(r.Dir, 0o711)
	}
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	if err := r.open(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Rig) open(ctx context.Context) (err error) {
	// As root, the database runs as another user who has to get through.
	if err := os.Chmod(r.Dir, 0o711); err != nil {
		return fmt.Errorf("open directory: %w", err)
	}
	r.db, err = embeddedpg.Open(ctx, embeddedpg.Config{
		DataDir: r.Dir, Logger: slog.New(slog.DiscardHandler), Connections: r.Connections,
	})
	if err != nil {
		return err
	}
	r.URL = r.db.URL()
	if r.dbPid, err = pidFromFile(r.Path("postgres", "data", "postmaster.pid")); err != nil {
		return fmt.Errorf("find the database's process: %w", err)
	}
	if r.Admin, err = pgx.Connect(ctx, r.URL); err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	if err := os.RemoveAll(r.Path("tokens")); err != nil {
		return err
	}
	r.Token, err = auth.AddToken(r.Path("tokens"), "bench", access.ScopeAdmin)
	return err
}

// pidFromFile reads the first line of a postmaster.pid.
func pidFromFile(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(b), "\n")
	return strconv.Atoi(strings.TrimSpace(first))
}

// Path is a file of the rig.
func (r *Rig) Path(parts ...string) string {
	return filepath.Join(append([]string{r.Dir}, parts...)...)
}

// Close ends everything, and removes a temporary directory.
func (r *Rig) Close() error {
	err := r.Down()
	if r.Admin != nil {
		err = errors.Join(err, r.Admin.Close(context.Background()))
	}
	if r.db != nil {
		err = errors.Join(err, r.db.Close())
	}
	if !r.temporary {
		Say("kept: %s", r.Dir)
		return err
	}
	return errors.Join(err, os.RemoveAll(r.Dir))
}

// Up starts n fresh controllers, unless that many run already. All share the keys of the first.
func (r *Rig) Up(ctx context.Context, n int) error {
	if len(r.Controllers) == n {
		return nil
	}
	if err := r.Down(); err != nil {
		return err
	}
	for i := range n {
		c, err := r.newController(i)
		if err != nil {
			return err
		}
		r.Controllers = append(r.Controllers, c)
		if err := c.Start(ctx); err != nil {
			return err
		}
	}
	var err error
	r.Conn, err = r.Controllers[0].Dial(r.Token)
	return err
}

// Down ends the controllers.
func (r *Rig) Down() error {
	var errs []error
	if r.Conn != nil {
		errs = append(errs, r.Conn.Close())
		r.Conn = nil
	}
	for _, c := range r.Controllers {
		errs = append(errs, Stop(c.Logged))
	}
	r.Controllers = nil
	return errors.Join(errs...)
}

// Say writes a line of progress to standard error. Standard output has the figures alone.
func Say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}

// Pause waits, or returns the error of ctx when that ends before.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

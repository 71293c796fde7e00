package localpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// User is the superuser of the cluster, and Database the one that it starts with.
const (
	User     = "ingot"
	Database = "ingot"
)

// startTimeout bounds one Open, a recovery after a crash included.
const startTimeout = 60 * time.Second

// Config has the cluster's directory and settings.
type Config struct {
	// Dir holds the cluster; it is made if it is missing.
	Dir string
	// Settings are given to the server when it is started (postgresql.conf names). An already running one keeps its own.
	Settings map[string]string
	// Ephemeral is for tests: the server ends with this process, whatever ends the process, and Dir is removed then.
	Ephemeral bool
	// Logger logs what was started, found or stopped; slog.Default() when nil.
	Logger *slog.Logger
}

// Cluster is an open cluster. Its methods may be called from any goroutine, Restart and Stop from one at a time.
type Cluster struct {
	cfg    Config
	owner  owner
	bin    string
	lock   *os.File
	server *server
}

// Open initialises the cluster if need be, finds its running server or starts one, and returns when it answers and
// has Database. It fails with ErrInUse if another process has it open.
func Open(ctx context.Context, cfg Config) (*Cluster, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	c := &Cluster{cfg: cfg}
	if err := c.prepare(); err != nil {
		return nil, fmt.Errorf("prepare private PostgreSQL in %s: %w", cfg.Dir, err)
	}
	if err := c.Restart(ctx); err != nil {
		return nil, errors.Join(err, c.unlock())
	}
	return c, nil
}

// prepare leaves an initialised data directory and the lock in our hands.
func (c *Cluster) prepare() (err error) {
	if c.owner, err = currentOwner(); err != nil {
		return err
	}
	if c.cfg.Dir, err = makeRoot(c.cfg.Dir, c.owner); err != nil {
		return err
	}
	if c.lock, err = takeLock(filepath.Join(c.cfg.Dir, "lock")); err != nil {
		return err
	}
	if err := c.initialise(); err != nil {
		return errors.Join(err, c.unlock())
	}
	return nil
}

// makeRoot makes dir, which the owner must be able to enter, and returns its real path: /proc shows no symlinks.
func makeRoot(dir string, o owner) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := o.makeDir(abs, 0o711); err != nil {
		return "", err
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return "", err
	}
	return abs, o.canEnter(abs)
}

func (c *Cluster) initialise() error {
	major, err := dataVersion(c.data())
	if err != nil {
		return err
	}
	if c.bin, err = findBinaries(major); err != nil || major != 0 {
		return err
	}
	fresh := c.data() + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("remove an unfinished initdb: %w", err)
	}
	args := []string{"-D", fresh, "-U", User, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-instructions"}
	if c.cfg.Ephemeral {
		args = append(args, "--no-sync")
	}
	out, err := c.owner.command(c.cfg.Dir, filepath.Join(c.bin, "initdb"), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, tail(out))
	}
	c.cfg.Logger.Info("private PostgreSQL initialised", "dir", c.cfg.Dir, "binaries", c.bin)
	return os.Rename(fresh, c.data())
}

func (c *Cluster) data() string { return filepath.Join(c.cfg.Dir, "data") }

// URL is the address of a database of the cluster; Database is the usual one.
func (c *Cluster) URL(database string) string { return socketURL(c.server.socketDir, database) }

func socketURL(socketDir, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(User), Path: "/" + database}
	u.RawQuery = url.Values{"host": {socketDir}, "port": {"5432"}}.Encode()
	return u.String()
}

// Pid is the server's process.
func (c *Cluster) Pid() int { return c.server.pid }

// Alive reports whether the server's process is there.
func (c *Cluster) Alive() bool { return c.server != nil && serves(c.server.pid, c.data()) }

// Stop ends the server in the fast way (open transactions are rolled back), and releases the lock. It returns when the
// server is gone. When ctx ends before that, the server is ordered to end at once, which is as safe as a crash.
func (c *Cluster) Stop(ctx context.Context) error {
	err := c.stopServer(ctx)
	return errors.Join(err, c.unlock())
}

func (c *Cluster) unlock() error {
	if c.lock == nil {
		return nil
	}
	f := c.lock
	c.lock = nil
	// A child that has been forked and has not begun its program yet shares the file, and its lock, for a moment.
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

// ErrInUse is wrapped by Open's error when another process has the cluster.
var ErrInUse = errors.New("another process uses this PostgreSQL directory")

func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%w (%s)", ErrInUse, path), f.Close())
	}
	return f, nil
}

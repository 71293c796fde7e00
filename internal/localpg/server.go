package localpg

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ingot-metal/ingot/internal/task"
)

const (
	pollEvery = 20 * time.Millisecond
	// maxSocketDir leaves room for "/.s.PGSQL.5432.lock" in the 107 bytes of sun_path (unix(7)).
	maxSocketDir = 85
	maxLog       = 16 << 20
)

// server is one run of postgres.
type server struct {
	pid       int
	socketDir string
	// exited is closed when a child of ours has ended; nil for a server that was found running.
	exited chan struct{}
	// leash, while open, keeps an ephemeral server alive.
	leash io.Closer
}

// Restart finds the running server or starts a new one. It is what Open ends with, and the remedy when Alive returns
// false.
func (c *Cluster) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		again, err := c.findOrStart(ctx)
		if err == nil && !again {
			return nil
		}
		if err != nil && !again {
			return fmt.Errorf("start private PostgreSQL in %s: %w", c.cfg.Dir, err)
		}
		if pause(ctx) != nil {
			return fmt.Errorf("start private PostgreSQL in %s: %w", c.cfg.Dir, errors.Join(err, ctx.Err()))
		}
	}
}

// findOrStart reports again when the answer is worth another look: an old server is still stopping, or parts of a
// killed one still hold its shared memory or are on the way out.
func (c *Cluster) findOrStart(ctx context.Context) (again bool, err error) {
	pm, running, err := findPostmaster(c.data())
	if err != nil {
		return false, err
	}
	if running && (pm.stopping || pm.socketDir == "") {
		return true, errors.New("a server is starting or stopping there")
	}
	if running {
		c.cfg.Logger.Info("private PostgreSQL found running", "pid", pm.pid)
		c.server = &server{pid: pm.pid, socketDir: pm.socketDir}
	} else if c.server, err = c.launch(); err != nil {
		return false, err
	}
	if err = c.waitReady(ctx); err == nil {
		return false, nil
	}
	died := running && !c.Alive() // a server that we found, and that ended just then
	return died || strings.Contains(err.Error(), "shared memory block") ||
		strings.Contains(err.Error(), ".lock\" already exists"), err
}

func (c *Cluster) launch() (*server, error) {
	s := &server{socketDir: socketDir(c.cfg.Dir)}
	if err := c.owner.makeDir(s.socketDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the socket's directory: %w", err)
	}
	logFile, err := openLog(c.logPath())
	if err != nil {
		return nil, err
	}
	defer logFile.Close() // the child has its own descriptor
	cmd := c.command(s.socketDir)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if c.cfg.Ephemeral {
		if s.leash, err = cmd.StdinPipe(); err != nil {
			return nil, err
		}
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run postgres: %w", err)
	}
	s.pid, s.exited = cmd.Process.Pid, make(chan struct{})
	task.Background("reap postgres", func() {
		defer close(s.exited)
		_ = cmd.Wait() // how it ended is in its log, which waitReady reads
	})
	return s, nil
}

// leashed runs postgres until standard input ends, then stops it and removes the directory. The shell is what
// survives a test process that is killed.
const leashed = `dir=$1; shift
exec 3<&0
"$@" </dev/null & pid=$!
{ read -r _ <&3; kill -INT $pid; } & watcher=$!
wait $pid
kill $watcher 2>/dev/null
rm -rf "$dir"`

func (c *Cluster) command(socketDir string) *exec.Cmd {
	args := []string{
		"-D", c.data(), "-c", "listen_addresses=", "-c", "unix_socket_directories=" + socketDir,
		"-c", "unix_socket_permissions=0700", "-c", "port=5432", "-c", "logging_collector=off",
	}
	for _, k := range sortedKeys(c.cfg.Settings) {
		args = append(args, "-c", k+"="+c.cfg.Settings[k])
	}
	postgres := filepath.Join(c.bin, "postgres")
	if !c.cfg.Ephemeral {
		return c.owner.command(c.cfg.Dir, postgres, args...)
	}
	return c.owner.command("/", "/bin/sh", append([]string{"-c", leashed, "sh", c.cfg.Dir, postgres}, args...)...)
}

// waitReady returns when Database answers. It makes Database, which initdb does not.
func (c *Cluster) waitReady(ctx context.Context) error {
	for {
		err := ping(ctx, c.URL(Database))
		var pg *pgconn.PgError
		switch {
		case err == nil:
			return c.adoptPid()
		case errors.As(err, &pg) && pg.Code == "3D000": // invalid_catalog_name: the server runs, the database is not there
			err = c.createDatabase()
		case c.server.gone(c.data()):
			return fmt.Errorf("postgres ended: %s", logTail(c.logPath()))
		}
		if pause(ctx) != nil {
			return fmt.Errorf("postgres does not answer: %w: %s", err, logTail(c.logPath()))
		}
	}
}

func ping(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgconn.Connect(ctx, url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// createDatabase uses the program rather than SQL so that this package has none.
func (c *Cluster) createDatabase() error {
	out, err := c.owner.command("/", filepath.Join(c.bin, "createdb"),
		"-h", c.server.socketDir, "-p", "5432", "-U", User, "--maintenance-db=postgres", Database).CombinedOutput()
	if err != nil {
		return fmt.Errorf("createdb: %w: %s", err, tail(out))
	}
	return nil
}

// adoptPid replaces the shell's pid by the server's own.
func (c *Cluster) adoptPid() error {
	pm, running, err := findPostmaster(c.data())
	if err != nil {
		return err
	}
	if !running {
		return errors.New("postgres answered and is gone")
	}
	c.server.pid = pm.pid
	return nil
}

// gone reports whether the server has ended: that its process was reaped if it is our child, that it is not seen
// otherwise.
func (s *server) gone(data string) bool {
	if s.exited == nil {
		return !serves(s.pid, data)
	}
	select {
	case <-s.exited:
		return true
	default:
		return false
	}
}

func (c *Cluster) stopServer(ctx context.Context) error {
	if c.server == nil || !c.Alive() {
		return nil
	}
	pid := c.server.pid
	if err := signal(pid, syscall.SIGINT); err != nil { // SIGTERM would wait for every client to leave
		return fmt.Errorf("stop postgres: %w", err)
	}
	for c.Alive() || !c.server.gone(c.data()) {
		if pause(ctx) != nil {
			c.cfg.Logger.Warn("private PostgreSQL did not stop in time", "pid", pid)
			return signal(pid, syscall.SIGQUIT)
		}
	}
	c.cfg.Logger.Info("private PostgreSQL stopped", "pid", pid)
	return c.tidy()
}

// tidy removes files that are not needed without a server.
func (c *Cluster) tidy() error {
	if c.cfg.Ephemeral {
		// The leash's shell cannot remove Dir itself where only root may write beside it.
		return os.RemoveAll(c.cfg.Dir)
	}
	if dir := c.server.socketDir; filepath.Dir(dir) != c.cfg.Dir {
		return os.RemoveAll(dir)
	}
	return nil
}

// socketDir is below dir unless that is too long for a socket's name.
func socketDir(dir string) string {
	if s := filepath.Join(dir, "run"); len(s) <= maxSocketDir {
		return s
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("ingot-pg-%x", sha256.Sum256([]byte(dir)))[:21])
}

func (c *Cluster) logPath() string { return filepath.Join(c.cfg.Dir, "postgres.log") }

// openLog appends, and starts afresh when the log has grown large.
func openLog(path string) (*os.File, error) {
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of postgres: %w", err)
	}
	return f, nil
}

func logTail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return tail(b)
}

func tail(b []byte) string {
	s := strings.TrimSpace(string(b))
	return s[max(0, len(s)-1000):]
}

func sortedKeys(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// pause waits pollEvery, or returns ctx's error.
func pause(ctx context.Context) error {
	t := time.NewTimer(pollEvery)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

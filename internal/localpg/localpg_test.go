package localpg_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ingot-metal/ingot/internal/localpg"
)

// newDir is a place that user postgres can enter, with a short path, as sockets want it.
func newDir(t *testing.T) string {
	parent, err := os.MkdirTemp("", "localpg-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(parent); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(parent, "pg")
}

func open(t *testing.T, dir string) *localpg.Cluster {
	t.Helper()
	c, err := localpg.Open(t.Context(), localpg.Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	return c
}

func stop(t *testing.T, c *localpg.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := c.Stop(ctx); err != nil {
		t.Error(err)
	}
	if c.Alive() {
		t.Error("the server outlived Stop")
	}
}

// query returns the first column of the first row.
func query(t *testing.T, c *localpg.Cluster, sql string) string {
	t.Helper()
	conn, err := pgconn.Connect(t.Context(), c.URL(localpg.Database))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	results, err := conn.Exec(t.Context(), sql).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	last := results[len(results)-1]
	if len(last.Rows) == 0 {
		return ""
	}
	return string(last.Rows[0][0])
}

func TestDataOutlivesAStop(t *testing.T) {
	dir := newDir(t)
	c := open(t, dir)
	if got := query(t, c, "show fsync"); got != "on" {
		t.Errorf("fsync is %s", got)
	}
	if got := query(t, c, "show listen_addresses"); got != "" {
		t.Errorf("it listens on %s", got)
	}
	query(t, c, "create table kept(x int); insert into kept values (7)")
	stop(t, c)
	if got := query(t, open(t, dir), "select x from kept"); got != "7" {
		t.Errorf("read %q", got)
	}
}

func TestOnlyOneProcessHasIt(t *testing.T) {
	c := open(t, newDir(t))
	_, err := localpg.Open(t.Context(), localpg.Config{Dir: filepath.Dir(dataDir(t, c))})
	if !errors.Is(err, localpg.ErrInUse) {
		t.Fatalf("a second one got %v", err)
	}
}

func dataDir(t *testing.T, c *localpg.Cluster) string { return query(t, c, "show data_directory") }

// lose releases the lock without stopping the server, which is what kill -9 of the holder does.
func lose(t *testing.T, c *localpg.Cluster) {
	t.Helper()
	if err := localpg.DropLock(c); err != nil {
		t.Fatal(err)
	}
}

func TestRunningServerIsFoundAgain(t *testing.T) {
	dir := newDir(t)
	first := open(t, dir)
	lose(t, first)
	started := time.Now()
	second := open(t, dir)
	if second.Pid() != first.Pid() {
		t.Errorf("pid %d, was %d", second.Pid(), first.Pid())
	}
	if took := time.Since(started); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
	stop(t, second)
}

func TestKilledServerIsReplaced(t *testing.T) {
	dir := newDir(t)
	c := open(t, dir)
	query(t, c, "create table kept(x int); insert into kept values (7)")
	killed := c.Pid()
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	lose(t, c)
	second := open(t, dir)
	if second.Pid() == killed {
		t.Error("the dead server was taken for alive")
	}
	if got := query(t, second, "select x from kept"); got != "7" {
		t.Errorf("read %q", got)
	}
}

func TestRestartAfterTheServerDied(t *testing.T) {
	c := open(t, newDir(t))
	if err := syscall.Kill(c.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := query(t, c, "select 1"); got != "1" {
		t.Errorf("read %q", got)
	}
}

func TestPidOfAnotherProcessIsStale(t *testing.T) {
	dir := newDir(t)
	c := open(t, dir)
	data := dataDir(t, c)
	stop(t, c)
	// We are alive, and we are no server.
	pid := strconv.Itoa(os.Getpid())
	if err := os.WriteFile(filepath.Join(data, "postmaster.pid"), []byte(pid+"\n"+data+"\n0\n5432\n\n\n\nready\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	if got := query(t, open(t, dir), "select 1"); got != "1" {
		t.Errorf("read %q", got)
	}
}

func TestUnfinishedInitdbIsDoneAgain(t *testing.T) {
	dir := newDir(t)
	if err := os.MkdirAll(filepath.Join(dir, "data.new", "base"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := query(t, open(t, dir), "select 1"); got != "1" {
		t.Errorf("read %q", got)
	}
}

func TestEphemeralLeavesNothing(t *testing.T) {
	dir := newDir(t)
	c, err := localpg.Open(t.Context(), localpg.Config{Dir: dir, Ephemeral: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	stop(t, c)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat says %v", err)
	}
}

func TestDeepDirectory(t *testing.T) {
	dir := filepath.Join(newDir(t), strings.Repeat("deep", 25))
	if got := query(t, open(t, dir), "select 1"); got != "1" {
		t.Errorf("read %q", got)
	}
}

func TestBadSettingShowsTheServersLog(t *testing.T) {
	_, err := localpg.Open(t.Context(), localpg.Config{
		Dir: newDir(t), Logger: slog.New(slog.DiscardHandler), Settings: map[string]string{"no_such_setting": "1"},
	})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Fatalf("got %v", err)
	}
}

func TestUnreachableDirectoryIsExplained(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root runs the server as another user")
	}
	dir := newDir(t)
	if err := os.Chmod(filepath.Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := localpg.Open(t.Context(), localpg.Config{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "chmod o+x") {
		t.Fatalf("got %v", err)
	}
}

func TestLogTellsWhatHappened(t *testing.T) {
	var buf bytes.Buffer
	c, err := localpg.Open(t.Context(), localpg.Config{Dir: newDir(t), Logger: slog.New(slog.NewTextHandler(&buf, nil))})
	if err != nil {
		t.Fatal(err)
	}
	stop(t, c)
	for _, want := range []string{"initialised", "stopped"} {
		if !strings.Contains(buf.String(), want) {
			t.Errorf("%q is not in\n%s", want, buf.String())
		}
	}
}

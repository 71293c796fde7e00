package testkit_test

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ingot-metal/ingot/internal/testkit"
)

var applied atomic.Int32

func TestMain(m *testing.M) {
	files := fstest.MapFS{"0001_x.up.sql": {Data: []byte("create table migrated(x int)" + strconv.Itoa(os.Getpid()))}}
	testkit.RegisterMigrate(files, func(ctx context.Context, url string) error {
		applied.Add(1)
		return execute(ctx, url, "create table migrated(x int)")
	})
	testkit.Main(m)
}

func execute(ctx context.Context, url, sql string) error {
	conn, err := pgconn.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql).ReadAll()
	if closeErr := conn.Close(ctx); err == nil {
		err = closeErr
	}
	return err
}

func TestEachTestHasItsOwnMigratedDatabase(t *testing.T) {
	one, two := testkit.Database(t), testkit.Database(t)
	if one == two {
		t.Fatal("the same database twice")
	}
	if err := execute(t.Context(), one, "insert into migrated values (1)"); err != nil {
		t.Fatal(err)
	}
	// The unique index would fail on two rows: there must be none here.
	if err := execute(t.Context(), two,
		"insert into migrated values (1); create unique index on migrated(x)"); err != nil {
		t.Fatal(err)
	}
	if n := applied.Load(); n != 1 {
		t.Errorf("migrations were applied %d times", n)
	}
}

func TestDatabaseIsDroppedWithConnectionsOpen(t *testing.T) {
	var url string
	t.Run("user", func(t *testing.T) {
		url = testkit.Database(t)
		conn, err := pgconn.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn // left open: tests that fail do that
	})
	if err := execute(t.Context(), url, "select 1"); err == nil {
		t.Error("the database is still there")
	}
}

func TestEmptyDatabase(t *testing.T) {
	if err := execute(t.Context(), testkit.EmptyDatabase(t), "create table migrated(x int)"); err != nil {
		t.Error(err)
	}
}

// TestServerEndsWithAKilledProcess runs this test again as another process, which starts a server and is killed.
func TestServerEndsWithAKilledProcess(t *testing.T) {
	if os.Getenv("TESTKIT_VICTIM") != "" {
		victim(t)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestServerEndsWithAKilledProcess$")
	cmd.Env = append(os.Environ(), "TESTKIT_VICTIM=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 64)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
	if err != nil {
		t.Fatal(err)
	}
	if !running(pid) {
		t.Fatal("the server is not running")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the process was not killed")
	}
	testkit.Eventually(t, 20*time.Second, func() bool { return !running(pid) }, "server %d still runs", pid)
}

// victim never returns.
func victim(t *testing.T) {
	c, err := testkit.StartServer()
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString(strconv.Itoa(c.Pid()) + "\n")
	select {}
}

// running is false for zombies too: they may have no parent to reap them.
func running(pid int) bool {
	link, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	return err == nil && strings.Contains(link, "postgres") && syscall.Kill(pid, 0) == nil
}

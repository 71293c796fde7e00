package embeddedpg_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ingot-metal/ingot/controller/embeddedpg"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/localpg"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func open(t *testing.T, dir string, c clock.Clock) *embeddedpg.Postgres {
	t.Helper()
	p, err := embeddedpg.Open(t.Context(), embeddedpg.Config{DataDir: dir, Logger: testkit.Logger(t), Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// serverPid returns 0 while no server answers.
func serverPid(t *testing.T, url string) (pid uint32) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn, err := pgconn.Connect(ctx, url)
	if err != nil {
		return 0
	}
	defer conn.Close(ctx)
	return parent(t, conn.PID())
}

// parent of a backend is the server.
func parent(t *testing.T, backend uint32) (pid uint32) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", backend))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	var state string
	if _, err := fmt.Sscan(rest, &state, &pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestOpenAndClose(t *testing.T) {
	p := open(t, testkit.TempDir(t), nil)
	if serverPid(t, p.URL()) == 0 {
		t.Error("it does not answer")
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if serverPid(t, p.URL()) != 0 {
		t.Error("it answers after Close")
	}
}

func TestSecondControllerIsRefused(t *testing.T) {
	dir := testkit.TempDir(t)
	p := open(t, dir, nil)
	defer p.Close()
	if _, err := embeddedpg.Open(t.Context(), embeddedpg.Config{DataDir: dir}); !errors.Is(err, localpg.ErrInUse) {
		t.Errorf("the second one got %v", err)
	}
}

// TestKilledController runs this test again as another process, which opens the database and is killed.
func TestKilledController(t *testing.T) {
	if dir := os.Getenv("DEVPG_VICTIM"); dir != "" {
		p := open(t, dir, nil)
		fmt.Println("URL", p.URL())
		select {}
	}
	dir := testkit.TempDir(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledController$")
	cmd.Env = append(os.Environ(), "DEVPG_VICTIM="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "URL ") {
			break
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the process was not killed")
	}
	started := time.Now()
	p := open(t, dir, nil)
	if took := time.Since(started); took > 20*time.Second {
		t.Errorf("the next controller had its database after %v", took)
	}
	if serverPid(t, p.URL()) == 0 {
		t.Error("it does not answer")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if serverPid(t, p.URL()) != 0 {
		t.Error("the orphan outlived the controller that found it")
	}
}

func TestRunStartsADeadServerAgainAndStopsWithItsContext(t *testing.T) {
	p := open(t, testkit.TempDir(t), nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	first := serverPid(t, p.URL())
	if err := syscall.Kill(int(first), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 30*time.Second, func() bool {
		pid := serverPid(t, p.URL())
		return pid != 0 && pid != first
	}, "no new server")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if serverPid(t, p.URL()) != 0 {
		t.Error("it outlived Run")
	}
}

package fleetview

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

const columns, lines = 100, 30

// terminal is a program on a terminal, and what that shows.
type terminal struct {
	t    *testing.T
	keys *os.File

	mu     sync.Mutex
	screen *vt.Emulator
}

// onTerminal starts a command on a terminal of its own. A foreign terminal emulator reads its output.
func onTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	p, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: lines, Cols: columns})
	if err != nil {
		t.Fatal(err)
	}
	x := &terminal{t: t, keys: p, screen: vt.NewEmulator(columns, lines)}
	group, _ := task.New(t.Context())
	group.Go("draw", func(context.Context) error {
		buf := make([]byte, 32<<10)
		for {
			n, err := p.Read(buf)
			if err != nil {
				return nil //nolint:nilerr // the program has ended
			}
			x.mu.Lock()
			_, err = x.screen.Write(buf[:n])
			x.mu.Unlock()
			if err != nil {
				return err
			}
		}
	})
	group.Go("answer", func(context.Context) error { // what a terminal answers to questions of the program
		_, err := io.Copy(p, x.screen)
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		return err
	})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = p.Close()
		_ = x.screen.Close()
		_ = group.Wait()
	})
	return x
}

func (x *terminal) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.screen.String()
}

func (x *terminal) types(keys string) {
	x.t.Helper()
	if _, err := io.WriteString(x.keys, keys); err != nil {
		x.t.Fatal(err)
	}
}

// waits until the screen shows all of these.
func (x *terminal) waits(wanted ...string) {
	x.t.Helper()
	testkit.Eventually(x.t, rig.Soon, func() bool {
		text := x.text()
		for _, w := range wanted {
			if !strings.Contains(text, w) {
				return false
			}
		}
		return true
	}, "%q is not on the screen:\n%s", wanted, rig.Stringer(x.text))
}

// TestTop looks at a fleet on a real terminal, filters it, opens a machine, takes an action that is offered there, and
// loses the controller.
func TestTop(t *testing.T) {
	c := harness.New(t, harness.Options{})
	one := c.NewMachine(t, harness.MachineOptions{ID: "m-2"})
	one.WaitConnected()
	c.Register(&baremetalv1.Machine{MachineId: "m-1", Spec: &baremetalv1.MachineSpec{Rack: "r7"}})
	ca := filepath.Join(testkit.TempDir(t), "ca.pem")
	if err := os.WriteFile(ca, c.Controller().RootPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), harness.Build(t).CLI, "top", "--every", "1s", "--retry-for", "1s",
		"--server", c.Controller().Addresses().Frontpage, "--ca-file", ca)
	cmd.Env = []string{"INGOT_TOKEN=" + c.Client.Token(), "HOME=" + testkit.TempDir(t)}
	x := onTerminal(t, cmd)
	x.waits("2 machines", "m-1", "m-2", "r7")
	t.Log(x.text())

	x.types("/machine_id=m-2\r")
	x.waits("1 machine ", "/ filter machine_id=m-2")
	x.types("\r")
	x.waits("You can:", "ingot enter-maintenance m-2")
	t.Log(x.text())
	digit := ""
	for line := range strings.Lines(x.text()) {
		if before, _, found := strings.Cut(line, " ingot enter-maintenance m-2"); found {
			digit = strings.TrimSpace(before)
		}
	}
	x.types(digit)
	x.waits("Run  ingot enter-maintenance m-2")
	x.types("n")
	x.waits("Esc back")
	x.types(digit + "y")
	x.waits("(exit code 0; Enter goes back to the fleet)")
	if got := c.Machine("m-2").GetStatus().GetEffectiveState(); got != baremetalv1.MachineStatus_MAINTENANCE_IDLE {
		t.Errorf("after the action it is %v", got)
	}
	x.types("\r")
	x.waits("Esc back", "ingot exit-maintenance m-2")
	x.types("\x1b")
	x.waits("MAINTENANCE 1")

	c.Kill()
	x.waits("NOT CURRENT for")
	c.Restart()
	testkit.Eventually(t, rig.Soon, func() bool { return !strings.Contains(x.text(), "NOT CURRENT") },
		"it stays an old picture:\n%s", rig.Stringer(x.text))
	began := time.Now()
	x.types("q")
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ends with %v after %v", err, time.Since(began))
	}
}

//go:build opentofu

package opentofu

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

func TestMain(m *testing.M) { rig.Main(m) }

// built is where make test-opentofu has put the tool and the mirror with the provider.
func built(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("INGOT_TEST_OPENTOFU")
	if dir == "" {
		t.Fatal("INGOT_TEST_OPENTOFU names no directory: make test-opentofu")
	}
	return filepath.Join(dir, name)
}

// workspace is a directory with a configuration, a state, and what tofu needs to reach a controller.
type workspace struct {
	testing.TB
	dir string
	env []string
}

const head = `
terraform {
  required_providers {
    ingot = { source = "ingot-metal/ingot" }
  }
}
provider "ingot" {}
`

// newWorkspace makes one with a configuration, which init has seen.
func newWorkspace(t testing.TB, c *harness.ControllerProcess, config string) *workspace {
	t.Helper()
	w := bareWorkspace(t, c, config)
	w.must("init", "-input=false")
	return w
}

func bareWorkspace(t testing.TB, c *harness.ControllerProcess, config string) *workspace {
	t.Helper()
	w := &workspace{TB: t, dir: t.TempDir()}
	token := filepath.Join(w.dir, "token")
	if err := os.WriteFile(token, []byte(c.Token()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+built(t, "tofu.rc"), "TF_IN_AUTOMATION=1", "TF_CLI_ARGS=-no-color",
		"HOME="+w.dir, "INGOT_SERVER="+c.Front.Address(), "INGOT_CA_FILE="+c.CAFile(), "INGOT_TOKEN_FILE="+token)
	w.write(config)
	return w
}

func (w *workspace) write(config string) {
	w.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, "main.tf"), []byte(config), 0o600); err != nil {
		w.Fatal(err)
	}
}

// run is a tofu that was started, with the provider that it starts, in a process group of its own.
type run struct {
	*exec.Cmd
	output testkit.Buffer
	gone   chan struct{}
	err    error
}

func (w *workspace) start(args ...string) *run {
	w.Helper()
	r := &run{Cmd: exec.Command(built(w, "tofu"), args...), gone: make(chan struct{})}
	r.Dir, r.Env, r.Stdout, r.Stderr = w.dir, w.env, &r.output, &r.output
	r.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := r.Start(); err != nil {
		w.Fatal(err)
	}
	go func() {
		r.err = r.Wait()
		close(r.gone)
	}()
	w.Cleanup(func() { r.kill(true) })
	return r
}

// kill sends SIGKILL to tofu, and to the provider too where both is set, and waits.
func (r *run) kill(both bool) {
	pid := r.Process.Pid
	if both {
		pid = -pid
	}
	_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
	<-r.gone
}

// done waits for the end and returns the exit code.
func (r *run) done() int {
	<-r.gone
	var exit *exec.ExitError
	if errors.As(r.err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// patience is how long a moment of a run is awaited: tofu and its provider may take long to start.
const patience = 5 * time.Minute

// await waits for a moment of a run. One that ends before it, with an error, never comes there.
func (w *workspace) await(r *run, what string, come func() bool) {
	w.Helper()
	testkit.Eventually(w, patience, func() bool {
		select {
		case <-r.gone:
			if r.err != nil {
				w.Fatalf("tofu ended before %s: %s", what, r.output.String())
			}
		default:
		}
		return come()
	}, "not %s: %s", what, &r.output)
}

func (w *workspace) tofu(args ...string) (code int, out string) {
	w.Helper()
	r := w.start(args...)
	code = r.done()
	// Messages are boxed and wrapped to the width of a terminal.
	words := strings.Fields(strings.NewReplacer("│", " ", "╷", " ", "╵", " ").Replace(r.output.String()))
	return code, strings.Join(words, " ")
}

// must runs tofu, which must end well, and returns its output.
func (w *workspace) must(args ...string) string {
	w.Helper()
	code, out := w.tofu(args...)
	if code != 0 {
		w.Fatalf("tofu %s: %d: %s", strings.Join(args, " "), code, out)
	}
	return out
}

func (w *workspace) apply() string {
	w.Helper()
	return w.must("apply", "-auto-approve", "-input=false")
}

// refused runs tofu, which must fail and say all of the texts.
func (w *workspace) refused(args []string, texts ...string) {
	w.Helper()
	code, out := w.tofu(args...)
	if code == 0 {
		w.Fatalf("tofu %s ended well: %s", strings.Join(args, " "), out)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			w.Errorf("tofu %s does not say %q:\n%s", strings.Join(args, " "), text, out)
		}
	}
}

var (
	applying = []string{"apply", "-auto-approve", "-input=false"}
	leaving  = []string{"destroy", "-auto-approve", "-input=false"}
)

// plans holds what a plan finds: 0 nothing, 2 changes.
func (w *workspace) plans(want int) string {
	w.Helper()
	code, out := w.tofu("plan", "-detailed-exitcode", "-input=false")
	if code != want {
		w.Fatalf("the plan ends with %d, want %d: %s", code, want, out)
	}
	return out
}

// writes counts how often the disk of a machine was written.
func writes(m *harness.Machine) (n int) {
	for _, r := range m.Journal() {
		if r.MachineID == m.ID && r.Stage == sim.StageEffect && r.Kind == sim.KindRepave {
			n++
		}
	}
	return n
}

// installs are the reimages of a machine.
func installs(c *harness.Client, id string) (out []*baremetalv1.Operation) {
	for _, o := range c.OperationsOf(id) {
		if o.GetType() == baremetalv1.Operation_REIMAGE {
			out = append(out, o)
		}
	}
	return out
}

func installation(machine string, generation int) string {
	return fmt.Sprintf(head+`
resource "ingot_installation" "system" {
  machine_id = %q
  image      = "debian-12"
  generation = %d
  take_out_of_service = true
}
`, machine, generation)
}

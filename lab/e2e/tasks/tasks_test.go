package tasks

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

func TestMain(m *testing.M) { rig.Main(m) }

// rack is a rack of machines in service, behind the agent of their site.
type rack struct {
	*harness.Cluster
	t     *testing.T
	world *sim.World
	dir   string
	left  map[string][]string
}

func newRack(t *testing.T, n int) *rack {
	t.Helper()
	world, err := sim.OpenWorld(sim.WorldConfig{Dir: t.TempDir(), Delay: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	r := &rack{Cluster: harness.New(t, harness.Options{}), t: t, world: world, dir: t.TempDir(),
		left: rig.Tasks(t)}
	for i := range n {
		id := fmt.Sprintf("r42-%02d", i+1)
		r.NewMachine(t, harness.MachineOptions{ID: id, SiteToo: "r42", World: world}).WaitConnected()
		r.must("machine", "update", id, "--rack", "r42", "--bmc-endpoint", fmt.Sprint("10.42.1.", i+1))
	}
	r.NewSite(t, "r42", world, harness.MachineOptions{Supervised: true}).WaitConnected()
	return r
}

func (r *rack) must(args ...string) string {
	r.t.Helper()
	code, out := r.Ingot(args...)
	if code != 0 {
		r.t.Fatalf("ingot %s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// do types the page's commands for a task. byHand executes the lines that are comments. It returns the output.
func (r *rack) do(task string, byHand map[string]func()) string {
	r.t.Helper()
	lines := r.left[task]
	if len(lines) == 0 {
		r.t.Fatalf("the page has no task %q, or it was done before", task)
	}
	delete(r.left, task)
	out := ""
	for _, line := range lines {
		if act, comment := byHand[line]; comment {
			act()
			continue
		}
		line, file, kept := strings.Cut(line, " >")
		args := rig.Words(line)
		if args[0] != "ingot" {
			r.t.Fatalf("%s: %q is no command of ingot, and nobody does it by hand", task, line)
		}
		said := r.must(args[1:]...)
		if kept {
			if err := os.WriteFile(filepath.Join(r.dir, file), []byte(said), 0o600); err != nil {
				r.t.Fatal(err)
			}
		}
		out += said
	}
	return out
}

func (r *rack) machine(id string) *baremetalv1.Machine {
	r.t.Helper()
	return harness.Must(r.t, r.Machines().GetMachine, &baremetalv1.GetMachineRequest{MachineId: id})
}

func (r *rack) inService(id string) {
	r.t.Helper()
	if s := r.machine(id).GetStatus(); s.GetPhase() != baremetalv1.MachineStatus_READY || s.GetActiveOperationId() != "" {
		r.t.Errorf("%s is %v", id, s)
	}
}

func (r *rack) shows(out string, wanted ...string) {
	r.t.Helper()
	for _, w := range wanted {
		if !strings.Contains(out, w) {
			r.t.Errorf("it does not say %q:\n%s", w, out)
		}
	}
}

// TestTheTasksOfThePage are done as in docs/howto/tasks.md, on a rack of twelve machines.
func TestTheTasksOfThePage(t *testing.T) {
	r := newRack(t, 12)
	r.must("enter-maintenance", "--all", "--yes")
	r.must("exit-maintenance", "--all", "--yes")
	r.must("enter-maintenance", "r42-07", "--comment", "somebody looks at its fans")
	r.shows(r.do("Find out why a machine is not free", nil), "MAINTENANCE", "exit-maintenance", "ENTER_MAINTENANCE")

	r.must("machine", "update", "r42-07", "--label", "gpu=h100")
	saved := r.do("Save a list of machines", nil)
	r.shows(saved, "r42-07")
	if strings.Contains(saved, "r42-08") {
		t.Errorf("a machine without the label is in the list:\n%s", saved)
	}

	r.do("Reinstall one machine", nil)
	r.inService("r42-07")

	old, err := r.world.State("r42-07")
	if err != nil {
		t.Fatal(err)
	}
	out := r.do("Replace a disk", map[string]func(){"# change the disk": func() {
		if err := r.world.ReplaceDisk("r42-07", "S4AAAA1"); err != nil {
			t.Fatal(err)
		}
	}})
	r.shows(out, "S4AAAA1")
	r.inService("r42-07")
	now, err := r.world.State("r42-07")
	if err != nil || now.Disk.Disk != "S4AAAA1" || now.Disk.Digest == "" || now.Disk.Digest != old.Disk.Digest {
		t.Errorf("the new disk holds %+v, the old one held %+v (%v)", now.Disk, old.Disk, err)
	}

	r.do("Add a site", nil)
	token, err := os.ReadFile(filepath.Join(r.dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	site := r.NewSite(t, "r43", r.world, harness.MachineOptions{Change: func(c *agent.Config) {
		c.Bundle = strings.TrimSpace(string(token))
	}})
	site.WaitConnected()
	r.do("Move a machine to another rack", map[string]func(){"# move it": func() {}})
	r.inService("r42-07")
	if s := r.machine("r42-07").
		GetSpec(); s.GetRack() != "r43" || s.GetSite() != "r43" ||
		s.GetBmcEndpoint() != "10.43.1.7" {
		t.Errorf("it moved to %v", s)
	}

	r.do("Drain and retire ten machines", nil)
	var left []string
	for _, m := range harness.Must(t, r.Machines().ListMachines, &baremetalv1.ListMachinesRequest{}).GetMachines() {
		left = append(left, m.GetMachineId())
	}
	if slices.Sort(left); !slices.Equal(left, []string{"r42-11", "r42-12"}) {
		t.Errorf("left are %v", left)
	}
	delete(r.left, rig.PasswordTask) // TestAnAdminRotatesThePasswordsOfARack does it, which has BMCs
	if len(r.left) > 0 {
		t.Errorf("nobody has done %v", r.left)
	}
}

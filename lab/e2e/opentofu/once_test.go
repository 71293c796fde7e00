//go:build opentofu

package opentofu

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// system is a machine whose installation takes long enough to be cut short.
func system(t *testing.T, c *harness.ControllerProcess, id string) *harness.Machine {
	t.Helper()
	m := c.NewMachine(t, harness.MachineOptions{ID: id, RepaveTime: time.Second, Delay: 50 * time.Millisecond})
	m.WaitConnected()
	return m
}

// onceWritten holds that the disk was written n times, by n operations, and that no record contradicts that.
func onceWritten(t *testing.T, c *harness.ControllerProcess, m *harness.Machine, n int) {
	t.Helper()
	h := m.WaitQuiet(rig.Soon)
	rig.Clean(t, h)
	if got := writes(m); got != n {
		t.Errorf("the disk was written %d times, want %d:\n%v", got, n, h)
	}
	ops := installs(c.Client, m.ID)
	if len(ops) != n {
		t.Errorf("%d reimages, want %d: %v", len(ops), n, ops)
	}
	for _, o := range ops {
		if o.GetPhase() != rig.Succeeded {
			t.Errorf("an installation ended as %v", o)
		}
	}
	if phase := c.Machine(m.ID).GetStatus().GetPhase(); phase != baremetalv1.MachineStatus_READY {
		t.Errorf("the machine is in %s", phase)
	}
}

// TestAGenerationIsWrittenOnceWhoeverIsKilled kills tofu, at each step of an apply, with its provider and without, runs
// it again, also without its state, and raises the generation.
func TestAGenerationIsWrittenOnceWhoeverIsKilled(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	begun := func(id string, kind baremetalv1.Operation_OperationType) bool {
		for _, o := range c.OperationsOf(id) {
			if o.GetType() == kind {
				return true
			}
		}
		return false
	}
	moments := []struct {
		name string
		come func(id string) bool
	}{
		{"at the start", func(string) bool { return true }},
		{"when maintenance is asked for", func(id string) bool {
			return begun(id, baremetalv1.Operation_ENTER_MAINTENANCE)
		}},
		{"when the reimage is asked for", func(id string) bool { return len(installs(c.Client, id)) > 0 }},
		{"when the disk is being written", func(id string) bool {
			ops := installs(c.Client, id)
			return len(ops) > 0 && ops[0].GetStartedAt() != nil && len(c.Commands(id)) > 0
		}},
		{"when the reimage has ended", func(id string) bool {
			ops := installs(c.Client, id)
			return len(ops) > 0 && harness.Ended(ops[0])
		}},
		{"when the machine goes into service", func(id string) bool {
			return begun(id, baremetalv1.Operation_EXIT_MAINTENANCE)
		}},
	}
	for i, moment := range moments {
		for _, both := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, with the provider %v", moment.name, both), func(t *testing.T) {
				t.Parallel()
				id := fmt.Sprintf("once-%d-%v", i, both)
				m := system(t, c, id)
				w := newWorkspace(t, c, installation(id, 1))
				r := w.start(applying...)
				w.await(r, moment.name, func() bool { return moment.come(id) })
				r.kill(both)
				w.apply()
				w.plans(0)
				onceWritten(t, c, m, 1)

				// The state is lost: the same generation is the same work.
				for _, name := range []string{"terraform.tfstate", "terraform.tfstate.backup"} {
					if err := os.Remove(filepath.Join(w.dir, name)); err != nil && !os.IsNotExist(err) {
						t.Fatal(err)
					}
				}
				w.apply()
				onceWritten(t, c, m, 1)
				if i > 0 {
					return
				}
				w.write(installation(id, 2))
				w.apply()
				w.plans(0)
				onceWritten(t, c, m, 2)
			})
		}
	}
}

// TestAGenerationIsWrittenOnceThoughTheControllerDies lets the controller die after one of its first commits, which
// loses the answers to calls that took effect. It kills tofu too, or lets it go on by itself.
func TestAGenerationIsWrittenOnceThoughTheControllerDies(t *testing.T) {
	t.Parallel()
	for nth := 1; nth <= 12; nth++ {
		t.Run(fmt.Sprintf("commit %d", nth), func(t *testing.T) {
			t.Parallel()
			c := harness.NewControllerProcess(t)
			c.Start("")
			id := fmt.Sprintf("dies-%d", nth)
			m := system(t, c, id)
			w := newWorkspace(t, c, installation(id, 1))
			c.Process.Terminate()
			c.Start(fmt.Sprintf("store.after-commit=kill@%d", nth))
			r := w.start(applying...)
			select {
			case <-c.Process.Gone():
			case <-clock.Real().After(20 * time.Second):
				c.Process.Kill()
			}
			t.Logf("the controller died with %d operations", countOf(c, id))
			if nth%2 == 0 {
				r.kill(nth%4 == 0)
				w.apply()
			} else if code := r.done(); code != 0 {
				t.Fatalf("tofu did not outlive the controller: %d: %s", code, r.output.String())
			}
			w.plans(0)
			onceWritten(t, c, m, 1)
		})
	}
}

// countOf starts the controller again and counts the operations of a machine.
func countOf(c *harness.ControllerProcess, id string) int {
	c.Start("")
	return len(c.OperationsOf(id))
}

// TestWhatIsRefused: a machine in service, another image without a higher generation, and a generation that has failed.
func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	m := system(t, c, "no-1")
	config := func(image string, generation int, more string) string {
		return fmt.Sprintf(head+`
resource "ingot_installation" "system" {
  machine_id = "no-1"
  image      = %q
  generation = %d
  %s
}
`, image, generation, more)
	}
	w := newWorkspace(t, c, config("debian-12", 1, ""))
	w.apply()
	onceWritten(t, c, m, 1)

	w.write(config("debian-13", 1, ""))
	w.refused([]string{"plan"}, "image has changed", "generation = 2")
	w.write(config("debian-13", 2, ""))
	w.refused(applying, "the machine is in service", "take_out_of_service = true")
	onceWritten(t, c, m, 1)

	// A state that does not know better asks for generation 1 with another image.
	other := newWorkspace(t, c, config("debian-13", 1, "take_out_of_service = true"))
	other.refused(applying, "REQUEST_ID_REUSED", "Set generation = 2")
	if got := writes(m); got != 1 {
		t.Errorf("the disk was written %d times", got)
	}

	// A generation that has failed is not tried again by itself.
	lonely := "gone-1"
	c.Register(&baremetalv1.Machine{MachineId: lonely, Spec: &baremetalv1.MachineSpec{Provider: "fake"}})
	fails := newWorkspace(t, c, installation(lonely, 1))
	for range 2 {
		fails.refused(applying, "NOBODY_REACHES_MACHINE", "Next step:", "Generation 1 has ended", "Set generation = 2")
	}
	if got := installs(c.Client, lonely); len(got) != 1 {
		t.Errorf("installations: %v", got)
	}
}

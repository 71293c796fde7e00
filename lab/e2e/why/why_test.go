package why

import (
	"slices"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// injected is a fault that is really brought about.
type injected struct {
	name string
	// inject returns the machine once the fault is there.
	inject func(t *testing.T, r *whyRig) string
	// reasons, on and says: see harness.Expected.
	reasons []string
	on      string
	says    []string
}

// whyRig is one controller, and one site with a real agent, for all faults that do not break them.
type whyRig struct{ *harness.Cluster }

// whySite is served by the shipped site agent: its BMC and SSH adapters are the real ones.
const whySite = "why-site"

func newWhyRig(t *testing.T) *whyRig {
	t.Helper()
	r := &whyRig{Cluster: harness.New(t, harness.Options{})}
	world, err := sim.OpenWorld(sim.WorldConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	cache, scripts := t.TempDir(), t.TempDir()
	r.NewSite(t, whySite, world, harness.MachineOptions{Change: func(cfg *agent.Config) {
		cfg.Providers = nil
		cfg.Site = &agent.SiteConfig{CacheDir: cache, CacheBytes: 1 << 20, BMCPoll: time.Second, ScriptDir: scripts,
			MAASPoll: 100 * time.Millisecond}
	}}).WaitConnected()
	return r
}

// at is a simulated machine in maintenance, with its agent connected.
func (r *whyRig) at(t *testing.T, o harness.MachineOptions) *harness.Machine {
	t.Helper()
	m := r.NewMachine(t, o)
	m.WaitConnected()
	rig.Maintenance(t, r.Client, m.ID)
	return m
}

func (r *whyRig) explain(t *testing.T, machineID string) *baremetalv1.ExplainMachineResponse {
	t.Helper()
	return harness.Must(t, r.Machines().ExplainMachine, &baremetalv1.ExplainMachineRequest{MachineId: machineID})
}

// ask brings the fault about, and asks why.
func (i injected) ask(t *testing.T, r *whyRig, all *harness.Answers) {
	t.Helper()
	machine := i.inject(t, r)
	x := besides[i.name]
	x.Fault, x.Reasons, x.On, x.Says = i.name, i.reasons, i.on, i.says
	all.Ask(t, x, func() *baremetalv1.ExplainMachineResponse {
		return r.explain(t, machine)
	})
}

// TestWhyNamesInjectedFaults breaks something for each line, for real, and asks the controller that runs.
func TestWhyNamesInjectedFaults(t *testing.T) {
	t.Parallel()
	r := newWhyRig(t)
	all := &harness.Answers{}
	t.Run("fault", func(t *testing.T) {
		for _, i := range slices.Concat(faultsOfAgents(), faultsOfMachines(), faultsOfBMCs(), faultsOfScripts(),
			faultsOfLife()) {
			t.Run(i.name, func(t *testing.T) {
				t.Parallel()
				i.ask(t, r, all)
			})
		}
	})
	all.Table(t)
}

// failedOperation waits for the end of an operation that cannot succeed.
func (r *whyRig) failedOperation(t *testing.T, op *baremetalv1.Operation) {
	t.Helper()
	if got := r.Wait(op.GetOperationId(), rig.Soon); got.GetPhase() != rig.Failed {
		t.Fatalf("the fault did no harm: %v", got)
	}
}

// silent waits until the controller counts the machine as not reachable.
func (r *whyRig) silent(t *testing.T, id string) {
	t.Helper()
	testkit.Eventually(t, rig.Soon, func() bool { return !rig.Condition(r.Machine(id), "Reachable").GetStatus() },
		"machine %s is still reachable", id)
}

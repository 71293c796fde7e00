package fleet_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/fleet"
	"github.com/ingot-metal/ingot/lab/harness"
)

const soon = 30 * time.Second

type rig struct {
	*harness.Cluster
	*fleet.Fleet
	specs []fleet.Spec
	dir   string
}

func start(t *testing.T, n int, script string) *rig {
	t.Helper()
	s, err := fleet.ParseScript(script)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Cluster: harness.New(t, harness.Options{}), dir: t.TempDir()}
	r.specs, err = fleet.Register(t.Context(), r.Conn(), r.dir, "m", 0, n)
	if err != nil {
		t.Fatal(err)
	}
	r.begin(t, s)
	return r
}

// begin starts a fleet, which ends with the test or with Stop, and waits for its sessions.
func (r *rig) begin(t *testing.T, s fleet.Script) {
	t.Helper()
	var err error
	r.Fleet, err = fleet.Start(t.Context(), fleet.Config{Dir: r.dir, Script: s, Reports: true})
	if err != nil {
		t.Fatal(err)
	}
	f := r.Fleet
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	f.Add(r.specs...)
	r.connected(t)
}

func (r *rig) connected(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := r.AwaitConnected(ctx, len(r.specs)); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) maintain(t *testing.T) {
	t.Helper()
	var names []string
	for _, s := range r.specs {
		names = append(names, s.Name)
	}
	if err := fleet.Maintain(t.Context(), r.Conn(), names); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) reboot(t *testing.T, machine string) *baremetalv1.Operation {
	t.Helper()
	op := harness.Must(t, r.Machines().RebootMachine,
		&baremetalv1.RebootMachineRequest{MachineId: machine, RequestId: ids.New(ids.Session)})
	return r.Cluster.Wait(op.GetOperationId(), soon)
}

func TestAFleetRebootsAndKeepsItsIdentities(t *testing.T) {
	t.Parallel()
	r := start(t, 5, "")
	r.maintain(t)
	for _, s := range r.specs {
		op := r.reboot(t, s.Name)
		if op.GetPhase() != baremetalv1.Operation_SUCCEEDED {
			t.Errorf("reboot of %s: %v", s.Name, op)
		}
		if _, ok := r.Receipts().Take(op.GetOperationId()); !ok {
			t.Errorf("no receipt of the command of %s", op.GetOperationId())
		}
	}
	r.connected(t)
	if st := r.Status(); st.Enrolled != 5 || st.Reboots != 5 || st.Opened != 10 {
		t.Errorf("want 5 enrolments, 5 reboots and 10 sessions: %+v", st)
	}
	if err := r.Fleet.Stop(); err != nil {
		t.Fatal(err)
	}
	// The second fleet enrols no agent, although its tokens are spent.
	r.begin(t, nil)
	if st := r.Status(); st.Enrolled != 0 || st.Opened != 5 {
		t.Errorf("want no enrolment and 5 sessions: %+v", st)
	}
	if op := r.reboot(t, r.specs[0].Name); op.GetPhase() != baremetalv1.Operation_SUCCEEDED {
		t.Errorf("reboot with a memory of another process: %v", op)
	}
}

func TestAFleetFailsByItsScript(t *testing.T) {
	t.Parallel()
	r := start(t, 2, "reboot:fail=1;netboot:time=10ms")
	r.maintain(t)
	if op := r.reboot(t, r.specs[0].Name); op.GetPhase() != baremetalv1.Operation_FAILED {
		t.Errorf("a reboot that fails by the script: %v", op)
	}
	op := harness.Must(t, r.Machines().NetbootMachine,
		&baremetalv1.NetbootMachineRequest{MachineId: r.specs[1].Name, RequestId: "n"})
	if op = r.Cluster.Wait(op.GetOperationId(), soon); op.GetPhase() != baremetalv1.Operation_SUCCEEDED {
		t.Errorf("a netboot: %v", op)
	}
	if st := r.Status(); st.Reboots != 0 {
		t.Errorf("want no reboot: %+v", st)
	}
}

func TestMaintainSettlesWhatAnInterruptedFleetLeft(t *testing.T) {
	t.Parallel()
	r := start(t, 1, "netboot:silent=1")
	r.maintain(t)
	name := r.specs[0].Name
	op := harness.Must(t, r.Machines().NetbootMachine, &baremetalv1.NetbootMachineRequest{MachineId: name, RequestId: "n"})
	r.WaitCommand(name, "granted", harness.InState("GRANTED"))
	if err := r.Fleet.Stop(); err != nil {
		t.Fatal(err)
	}
	r.begin(t, nil)
	if op = r.Cluster.Wait(op.GetOperationId(), soon); op.GetError().GetCode() != "OUTCOME_UNKNOWN" {
		t.Errorf("a command whose agent lost its memory: %v", op)
	}
	r.maintain(t)
	if op = r.reboot(t, name); op.GetPhase() != baremetalv1.Operation_SUCCEEDED {
		t.Errorf("a reboot after it: %v", op)
	}
}

func TestReportsSurviveTheController(t *testing.T) {
	t.Parallel()
	r := start(t, 3, "")
	r.Cluster.Stop()
	for range 3 {
		if err := r.Report(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if st := r.Status(); st.Buffered < 9 {
		t.Errorf("want nine reports that wait: %+v", st)
	}
	r.Cluster.Start()
	r.Cluster.WaitReady()
	r.connected(t)
	testkit.Eventually(t, soon, func() bool { return r.Status().Buffered == 0 }, "no report waits any more")
	for _, s := range r.specs {
		if n := r.Reported()[s.Name]; n != 4 {
			t.Errorf("%s has reported %d times", s.Name, n)
		}
		inv := harness.Must(t, r.Machines().GetInventory, &baremetalv1.GetInventoryRequest{MachineId: s.Name})
		if got := filepath.Base(inv.GetHash()); got != "4" {
			t.Errorf("the newest inventory of %s is number %s", s.Name, got)
		}
	}
}

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// leaving is a way to decommission a machine: how many commands its agent is given, and how it ends.
type leaving struct {
	name     string
	mode     baremetalv1.Workflow_Mode
	bmc      bool
	commands int
	ends     baremetalv1.NodeState
	// effects are what the world must have seen last, by kind.
	effects []sim.Kind
}

var leavings = []leaving{
	{"soft-reset", baremetalv1.Workflow_SOFT_RESET, false, 1, baremetalv1.NodeState_NODE_STATE_ACTIVE,
		[]sim.Kind{sim.KindReboot}},
	{"reimage", baremetalv1.Workflow_REIMAGE, false, 3, baremetalv1.NodeState_NODE_STATE_ACTIVE,
		[]sim.Kind{sim.KindRepave, sim.KindReboot}},
	{"storage-cleanup", baremetalv1.Workflow_STORAGE_CLEANUP, false, 5, baremetalv1.NodeState_NODE_STATE_ACTIVE,
		[]sim.Kind{sim.KindErase, sim.KindRepave, sim.KindReboot}},
	{"full", baremetalv1.Workflow_FULL_DECOMMISSION, false, 2, baremetalv1.NodeState_NODE_STATE_DELETED,
		[]sim.Kind{sim.KindErase}},
	{"full-with-a-bmc", baremetalv1.Workflow_FULL_DECOMMISSION, true, 2, baremetalv1.NodeState_NODE_STATE_DELETED,
		[]sim.Kind{sim.KindErase, sim.KindPowerOff}},
}

// departing is a machine in service whose decommission is under test.
type departing struct {
	testing.TB
	c *harness.Client
	l leaving
	m *harness.Machine
	// resumes counts how often an operator had to press resume.
	resumes int
}

// newDeparting returns a machine whose agent is stopped where a test wants to run it as a process.
func newDeparting(t testing.TB, c *harness.Client, l leaving, o harness.MachineOptions) *departing {
	t.Helper()
	o.ID = ids.New(ids.Machine)
	if l.bmc {
		o.SiteToo = "site-" + o.ID
	}
	d := &departing{TB: t, c: c, l: l, m: c.NewMachine(t, o)}
	if l.bmc {
		harness.Must(t, c.Machines().UpdateMachine, &baremetalv1.UpdateMachineRequest{Machine: &baremetalv1.Machine{
			MachineId: d.m.ID, Spec: &baremetalv1.MachineSpec{Provider: "fake", Site: o.SiteToo, BmcEndpoint: "192.0.2.7"},
		}})
		c.NewSite(t, o.SiteToo, d.m.World, harness.MachineOptions{Supervised: true}).WaitConnected()
	}
	return d
}

// begin starts the workflow. The controller may die meanwhile: the call is repeated.
func (d *departing) begin() (*baremetalv1.Operation, error) {
	return harness.Call(d.TB, d.c.Workflows().StartWorkflow, &baremetalv1.StartWorkflowRequest{
		MachineId: d.m.ID, RequestId: "leave", Kind: baremetalv1.Workflow_DECOMMISSION, Mode: d.l.mode,
		EnterMaintenance: true,
		Params:           map[string]string{"image_ref": "debian-12", "timeout_seconds": "600"},
	})
}

// workflow is the machine's, nil before there is one.
func (d *departing) workflow() *baremetalv1.Workflow {
	d.Helper()
	all := harness.Must(d.TB, d.c.Workflows().ListWorkflows,
		&baremetalv1.ListWorkflowsRequest{Filter: "machine_id=" + d.m.ID}).GetWorkflows()
	if len(all) == 0 {
		return nil
	}
	if len(all) > 1 {
		d.Errorf("%d workflows", len(all))
	}
	return all[0]
}

// resumeTenTimes presses resume ten times at once, half of them by one and the same click: one operation is made.
func (d *departing) resumeTenTimes(w *baremetalv1.Workflow) {
	d.Helper()
	d.resumes++
	ops, errs := make([]*baremetalv1.Operation, 10), make([]error, 10)
	g, _ := task.New(d.Context())
	for i := range ops {
		g.Go("press", func(context.Context) error {
			request := fmt.Sprintf("resume-%d-%d", d.resumes, i%6)
			ops[i], errs[i] = harness.Call(d.TB, d.c.Workflows().ActOnWorkflow, &baremetalv1.ActOnWorkflowRequest{
				WorkflowId: w.GetWorkflowId(), RequestId: request, Action: baremetalv1.WorkflowAction_WORKFLOW_ACTION_RESUME,
			})
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		d.Fatal(err)
	}
	made := map[string]bool{}
	for i, op := range ops {
		if errs[i] != nil {
			d.Errorf("resume: %v", errs[i])
		}
		made[op.GetOperationId()] = true
	}
	if len(made) != 1 || made[w.GetOperationId()] {
		d.Errorf("resume, pressed ten times after %s, made %v", w.GetOperationId(), made)
	}
}

// maxResumes is how often an operator may have to help.
const maxResumes = 4

// leaves waits until the workflow has ended, helps where it needs an operator, and checks that it ended in the state of
// its mode.
func (d *departing) leaves() {
	d.Helper()
	var w *baremetalv1.Workflow
	for {
		testkit.Eventually(d.TB, endLimit, func() bool {
			w = d.workflow()
			return w.GetEndedAt() != nil || rig.FailedState(w)
		}, "workflow does not end: %v", rig.Stringer(func() string { return fmt.Sprint(d.workflow(), d.m.History()) }))
		if !rig.FailedState(w) || d.resumes == maxResumes {
			break
		}
		d.helps(w)
		d.resumeTenTimes(w)
	}
	d.holds(w)
}

// helps settles unknown outcomes, as an operator who has looked at the machine would.
func (d *departing) helps(w *baremetalv1.Workflow) {
	d.Helper()
	d.Logf("%s: %s (%s) at %s: %s", d.l.name, w.GetState(), w.GetReason(), w.GetCurrentStage(), w.GetMessage())
	id := d.c.Machine(d.m.ID).GetStatus().GetUnresolvedCommandId()
	if id == "" {
		return
	}
	harness.Must(d.TB, d.c.Admin().SettleCommand, &baremetalv1.SettleCommandRequest{
		MachineId: d.m.ID, CommandId: id, Verdict: "did_not_happen", Comment: "stood beside it",
	})
}

func (d *departing) holds(w *baremetalv1.Workflow) {
	d.Helper()
	h := d.m.WaitQuiet(rig.Soon)
	if w.GetState() != baremetalv1.Workflow_COMPLETED {
		d.Fatalf("the workflow ended as %v\n%v", w, h)
	}
	if p := h.Problems(); len(p) > 0 {
		d.Errorf("%v\n%v", p, h)
	}
	// A node whose controller has only just started is offline until its agent has connected again.
	testkit.Eventually(d.TB, rig.Soon, func() bool {
		return d.c.Machine(d.m.ID).GetStatus().GetNodeState() == d.l.ends
	}, "the node does not end as %s\n%v", d.l.ends, h)
	if (h.Machine.GetDeletedAt() != nil) != (d.l.ends == baremetalv1.NodeState_NODE_STATE_DELETED) {
		d.Errorf("deleted at %v", h.Machine.GetDeletedAt())
	}
	for _, kind := range d.l.effects {
		if !slices.ContainsFunc(h.Journal, func(r sim.EffectRecord) bool {
			return r.Kind == kind &&
				r.Stage == sim.StageEffect
		}) {
			d.Errorf("the world has seen no %s\n%v", kind, h)
		}
	}
}

// A machine that has left for good has a certificate of its erasure, and one that was not erased has none.
func TestCertificateOfADecommissionedMachine(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	d := newDeparting(t, c.Client, leavings[3], harness.MachineOptions{})
	d.m.WaitConnected()
	enter := &baremetalv1.EnterMaintenanceRequest{MachineId: d.m.ID, RequestId: "enter"}
	op := harness.Must(t, c.Machines().EnterMaintenance, enter)
	c.Wait(op.GetOperationId(), rig.Soon)
	if code, out := c.Ingot("certificate", d.m.ID); code != 4 || !strings.Contains(out, "ERASURE_NOT_PROVEN") {
		t.Errorf("of a machine that was not erased: code %d\n%s", code, out)
	}
	code, out := c.Ingot("certificate", d.m.ID, "--operation", op.GetOperationId())
	if code != 4 || !strings.Contains(out, "no disk was erased") {
		t.Errorf("of other work: code %d\n%s", code, out)
	}
	if _, err := d.begin(); err != nil {
		t.Fatal(err)
	}
	d.leaves()

	file := filepath.Join(t.TempDir(), "erased.json")
	if code, out := c.Ingot("certificate", d.m.ID, "--out", file); code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	// Verified without a server: the root is all that is named.
	if code, out := c.Ingot("certificate", d.m.ID, "--out", file); code == 0 {
		t.Errorf("a file was overwritten: %s", out)
	}
	code, out = c.Ingot("certificate", "verify", file, "--server", "127.0.0.1:1")
	for _, want := range []string{"genuine", d.m.ID, "SIMULATED", "overwrite (simulated)", "read back     simulated: read back empty"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("code %d, want %q in\n%s", code, want, out)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	forged := file + ".forged"
	if err := os.WriteFile(
		forged,
		[]byte(strings.Replace(string(text), `"signature":"`, `"signature":"AA`, 1)),
		0o600,
	); err != nil {
		t.Fatal(err)
	}
	if code, out := c.Ingot("certificate", "verify", forged); code != 5 || !strings.Contains(out, "altered") {
		t.Errorf("forged: code %d\n%s", code, out)
	}
}

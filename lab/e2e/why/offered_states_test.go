package why

import (
	"slices"
	"testing"

	"github.com/ingot-metal/ingot/agent"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// situations are the states that offers are tried in.
func situations() []situation {
	return slices.Concat(situationsOfRest(), situationsOfFailure(), situationsOfWork(), situationsOfLife(),
		situationsOfWorkflows(),
		situationsOfFleets(), situationsOutside())
}

// simulated is a machine with a connected agent, in maintenance.
func simulated(t *testing.T, r *whyRig, o harness.MachineOptions) subject {
	t.Helper()
	m := r.at(t, o)
	return subject{r: r, machine: m.ID, of: m}
}

// inService is a machine whose image was verified, in phase READY.
func inService(t *testing.T, r *whyRig) subject {
	t.Helper()
	s := simulated(t, r, harness.MachineOptions{})
	rig.Ended(t, r.Wait(s.reimage(t, 0), rig.Soon), rig.Succeeded, "")
	s.leave(t)
	return s
}

func (s subject) reimage(t *testing.T, seconds int32) string {
	t.Helper()
	return harness.Must(t, s.r.Machines().ReimageMachine, &baremetalv1.ReimageMachineRequest{
		MachineId: s.machine, RequestId: "reimage", ImageRef: s.image(t), TimeoutSeconds: seconds,
	}).GetOperationId()
}

// leave takes the machine out of maintenance.
func (s subject) leave(t *testing.T) {
	t.Helper()
	op := harness.Must(t, s.r.Machines().ExitMaintenance,
		&baremetalv1.ExitMaintenanceRequest{MachineId: s.machine, RequestId: "exit"})
	rig.Ended(t, s.r.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
}

// cutOff isolates the machine's agent, and waits until that is known.
func (s subject) cutOff(t *testing.T) {
	t.Helper()
	s.of.Isolate()
	s.r.silent(t, s.machine)
}

// fails waits for the end of an operation that cannot succeed.
func (s subject) fails(t *testing.T, operation string) subject {
	t.Helper()
	s.r.failedOperation(t, s.r.Operation(operation))
	return s
}

func (s subject) flag(t *testing.T, name string) {
	t.Helper()
	harness.Must(t, s.r.Admin().SetMachineFlag, &baremetalv1.SetMachineFlagRequest{MachineId: s.machine, Flag: name,
		Value: true, Comment: "DIMM 3"})
}

// fenced is a machine whose granted command has had no result in time.
func fenced(t *testing.T, r *whyRig) (subject, string) {
	t.Helper()
	s := simulated(t, r, harness.MachineOptions{})
	rig.IsolateAt(s.of, "agent.after-intent")
	op := harness.Must(t, r.Machines().NetbootMachine,
		&baremetalv1.NetbootMachineRequest{MachineId: s.machine, RequestId: "r", TimeoutSeconds: 5})
	return s.fails(t, op.GetOperationId()), op.GetOperationId()
}

// cloned lets other hardware use the machine's identity.
func (s subject) cloned(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	s.of.CloneDir(dir)
	clone := s.r.NewMachine(t, harness.MachineOptions{Stopped: true, World: s.of.World, SimID: "other-hardware",
		Change: func(a *agent.Config) {
			a.StateDir = dir
		}})
	clone.Config.Bundle = ""
	clone.Start()
	testkit.Eventually(t, rig.Soon, func() bool {
		return rig.Condition(s.r.Machine(s.machine), "NeedsIntervention").GetReason() == "CLONE_DETECTED"
	}, "no quarantine")
	if err := clone.Stop(); err != nil {
		t.Logf("the clone ended with %v", err)
	}
}

// transition moves a node by an admin's word.
func (s subject) transition(t *testing.T, to baremetalv1.NodeState) *baremetalv1.Operation {
	t.Helper()
	return harness.Must(t, s.r.Nodes().TransitionNode, &baremetalv1.TransitionNodeRequest{
		NodeId: s.machine, RequestId: "to-" + to.String(), State: to, Comment: "rack 42 smokes",
		Purge: to == baremetalv1.NodeState_NODE_STATE_RETIRED,
	})
}

func rename() *baremetalv1.Step {
	return &baremetalv1.Step{Kind: &baremetalv1.Step_Net{Net: &baremetalv1.NetReconfig{Hostname: "renamed"}}}
}

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/harness"
)

// situations are the states that offers are tried in.
func situations() []situation {
	return slices.Concat(situationsOfRest(), situationsOfFailure(), situationsOfWork(), situationsOfLife(), situationsOfWorkflows(),
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
	ended(t, r.Wait(s.reimage(t, 0), soon), succeeded, "")
	s.leave(t)
	return s
}

func (s subject) reimage(t *testing.T, seconds int32) string {
	t.Helper()
	return harness.Must(t, s.r.Machines().ReimageMachine, &baremetalv1.ReimageMachineRequest{
		MachineId: s.machine, RequestId: "reimage", ImageRef: "debian-12", TimeoutSeconds: seconds,
	}).GetOperationId()
}

// leave takes the machine out of maintenance.
func (s subject) leave(t *testing.T) {
	t.Helper()
	op := harness.Must(t, s.r.Machines().ExitMaintenance, &baremetalv1.ExitMaintenanceRequest{MachineId: s.machine, RequestId: "exit"})
	ended(t, s.r.Wait(op.GetOperationId(), soon), succeeded, "")
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
	harness.Must(t, s.r.Admin().SetMachineFlag, &baremetalv1.SetMachineFlagRequest{MachineId: s.machine, Flag: name, Value: true, Comment: "DIMM 3"})
}

// fenced is a machine whose granted command has had no result in time.
func fenced(t *testing.T, r *whyRig) (subject, string) {
	t.Helper()
	s := simulated(t, r, harness.MachineOptions{})
	isolateAt(s.of, "agent.after-intent")
	op := harness.Must(t, r.Machines().NetbootMachine, &baremetalv1.NetbootMachineRequest{MachineId: s.machine, RequestId: "r", TimeoutSeconds: 5})
	return s.fails(t, op.GetOperationId()), op.GetOperationId()
}

// cloned lets other hardware use the machine's identity.
func (s subject) cloned(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	s.of.CloneDir(dir)
	clone := s.r.NewMachine(t, harness.MachineOptions{Stopped: true, World: s.of.World, SimID: "other-hardware", Change: func(a *agent.Config) {
		a.StateDir = dir
	}})
	clone.Config.Bundle = ""
	clone.Start()
	testkit.Eventually(t, soon, func() bool {
		return s.r.Machine(s.machine).GetStatus().GetNodeState() == baremetalv1.NodeState_NODE_STATE_QUARANTINED
	}, "no quarantine")
	if err := clone.Stop(); err != nil {
		t.Logf("the clone ended with %v", err)
	}
}

// transition moves a node by an admin's word.
func (s subject) transition(t *testing.T, to baremetalv1.NodeState) *baremetalv1.Operation {
	t.Helper()
	return harness.Must(t, s.r.Nodes().TransitionNode, &baremetalv1.TransitionNodeRequest{
		NodeId: s.machine, RequestId: "to-" + to.String(), State: to, Comment: "rack 42 smokes", Purge: to == baremetalv1.NodeState_NODE_STATE_RETIRED,
	})
}

func rename() *baremetalv1.Step {
	return &baremetalv1.Step{Kind: &baremetalv1.Step_Net{Net: &baremetalv1.NetReconfig{Hostname: "renamed"}}}
}

func situationsOfRest() []situation {
	return []situation{
		{name: "registered", rule: "never-enrolled", arrange: func(t *testing.T, r *whyRig) subject {
			return subject{machine: r.Register(&baremetalv1.Machine{}).GetMachineId()}
		}},
		{name: "new, with its agent", rule: "new", arrange: func(t *testing.T, r *whyRig) subject {
			m := r.NewMachine(t, harness.MachineOptions{})
			m.WaitConnected()
			return subject{machine: m.ID, of: m}
		}},
		{name: "in maintenance", rule: "maintenance", arrange: func(t *testing.T, r *whyRig) subject { return simulated(t, r, harness.MachineOptions{}) }},
		{name: "in service", rule: "idle", arrange: inService},
		{name: "flagged for return", rule: "blocked", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			s.flag(t, "RMA")
			return s
		}},
		{name: "flagged as retired", rule: "blocked", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			s.flag(t, "Retired")
			return s
		}},
		{name: "quarantined for a clone", rule: "quarantined", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			s.cloned(t)
			return s
		}},
		{name: "fenced", rule: "fenced", arrange: func(t *testing.T, r *whyRig) subject { s, _ := fenced(t, r); return s }},
		{name: "fenced, and quarantined by an admin", rule: "quarantined", arrange: func(t *testing.T, r *whyRig) subject {
			s, _ := fenced(t, r)
			s.transition(t, baremetalv1.NodeState_NODE_STATE_QUARANTINED)
			return s
		}},
		{name: "cut off, in service", rule: "agent-silent", arrange: func(t *testing.T, r *whyRig) subject {
			s := inService(t, r)
			s.cutOff(t)
			return s
		}},
		{name: "certificate revoked", rule: "agent-silent", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			harness.Must(t, r.Admin().RevokeAgent, &baremetalv1.RevokeAgentRequest{AgentId: s.of.Identity().AgentID, Reason: "stolen laptop"})
			r.silent(t, s.machine)
			return s
		}},
		{name: "cancelled before it began", rule: "canceled", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			s.cutOff(t)
			op := reboot(t, r.Client, s.machine, "r", patientTime)
			harness.Must(t, r.Machines().CancelOperation, &baremetalv1.CancelOperationRequest{OperationId: op.GetOperationId()})
			s.of.Rejoin()
			s.of.WaitConnected()
			return s
		}},
		{name: "an operation that was cancelled", rule: "canceled", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			s.cutOff(t)
			s.operation = reboot(t, r.Client, s.machine, "r", patientTime).GetOperationId()
			harness.Must(t, r.Machines().CancelOperation, &baremetalv1.CancelOperationRequest{OperationId: s.operation})
			return s
		}},
		{name: "an operation that succeeded", rule: "succeeded", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			s.operation = reboot(t, r.Client, s.machine, "r", patientTime).GetOperationId()
			ended(t, r.Wait(s.operation, soon), succeeded, "")
			return s
		}},
		{name: "an operation that is fenced", rule: "fenced", arrange: func(t *testing.T, r *whyRig) subject {
			s, op := fenced(t, r)
			s.operation = op
			return s
		}},
		{name: "deleted", rule: "deleted", arrange: func(t *testing.T, r *whyRig) subject {
			id := r.Register(&baremetalv1.Machine{}).GetMachineId()
			harness.Must(t, r.Machines().DeleteMachine, &baremetalv1.DeleteMachineRequest{MachineId: id})
			return subject{machine: id}
		}},
	}
}

func situationsOfFailure() []situation {
	return []situation{
		{name: "a reconfiguration failed", rule: "failed", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{Script: "hostname:fail-before"})
			return s.fails(t, r.runOnce(t, s.machine, rename()).GetOperationId())
		}},
		{name: "a reconfiguration failed in service", rule: "failed", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{Script: "hostname:fail-before"})
			s.leave(t)
			return s.fails(t, r.runOnce(t, s.machine, rename()).GetOperationId())
		}},
		{name: "a reboot that only claims", rule: "fenced", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{Script: "reboot:lie"})
			return s.fails(t, reboot(t, r.Client, s.machine, "r", 2).GetOperationId())
		}},
		{name: "a reboot that nobody took", rule: "failed", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			s.cutOff(t)
			return s.fails(t, reboot(t, r.Client, s.machine, "r", 1).GetOperationId())
		}},
		{name: "a reimage failed", rule: "install-failed", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{Script: "repave:fail-before"})
			return s.fails(t, s.reimage(t, patientTime))
		}},
		{name: "a reimage failed, and the machine is put back into service", rule: "install-failed", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{Script: "repave:fail-before"})
			s.fails(t, s.reimage(t, patientTime))
			s.leave(t)
			return s
		}},
		{name: "the operation of a reimage that failed", rule: "failed", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{Script: "repave:fail-before"})
			s.operation = s.reimage(t, patientTime)
			return s.fails(t, s.operation)
		}},
		{name: "the agent was locked", rule: "failed", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			s.lock(t)
			return s.fails(t, reboot(t, r.Client, s.machine, "r", 2).GetOperationId())
		}},
		{name: "a network change that was rolled back", rule: "failed", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			isolateAt(s.of, "agent.after-effect")
			op := r.runOnce(t, s.machine, &baremetalv1.Step{Kind: &baremetalv1.Step_Net{Net: &baremetalv1.NetReconfig{
				ConfirmTimeoutSeconds: 2, Interfaces: []*baremetalv1.NetworkInterface{{Name: "eth0", Addresses: []string{"192.0.2.7/24"}}},
			}}})
			testkit.Eventually(t, soon, func() bool {
				return slices.ContainsFunc(s.of.Journal(), func(e sim.EffectRecord) bool { return strings.HasSuffix(e.CommandID, "-rollback") })
			}, "no way back")
			s.of.Rejoin()
			return s.fails(t, op.GetOperationId())
		}},
		{name: "a write whose outcome nobody knows", rule: "fenced", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			isolateAt(s.of, "agent.after-intent")
			return s.fails(t, s.reimage(t, 2))
		}},
		{name: "a cancelled write", rule: "canceled", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{RepaveTime: 40 * time.Second})
			op := s.reimage(t, patientTime)
			r.WaitCommand(s.machine, "a granted write", func(c *baremetalv1.Command) bool { return c.GetKind() == "repave" && c.GetState() == "GRANTED" })
			harness.Must(t, r.Machines().CancelOperation, &baremetalv1.CancelOperationRequest{OperationId: op})
			ended(t, r.Wait(op, soon), canceled, "CANCELED_BY_REQUEST")
			return s
		}},
	}
}

// lock locks the agent at the machine.
func (s subject) lock(t *testing.T) {
	t.Helper()
	if out, err := agentCommand(t, s.of, "lock", "--reason", "disk swap"); err != nil {
		t.Fatalf("lock: %v: %s", err, out)
	}
}

func situationsOfWork() []situation {
	waiting := func(t *testing.T, r *whyRig) subject {
		s := simulated(t, r, harness.MachineOptions{})
		s.cutOff(t)
		reboot(t, r.Client, s.machine, "r", patientTime)
		return s
	}
	// sent is a machine whose agent has fallen silent with a command that it has no leave to start.
	sent := func(t *testing.T, r *whyRig) subject {
		s := simulated(t, r, harness.MachineOptions{})
		isolateAt(s.of, "agent.before-grant-request")
		reboot(t, r.Client, s.machine, "r", patientTime)
		r.WaitCommand(s.machine, "acknowledged", func(c *baremetalv1.Command) bool { return c.GetState() == "ACKED" || c.GetState() == "SENT" })
		r.silent(t, s.machine)
		return s
	}
	silentGrant := func(t *testing.T, r *whyRig) subject {
		s := simulated(t, r, harness.MachineOptions{})
		isolateAt(s.of, "agent.after-intent")
		harness.Must(t, r.Machines().NetbootMachine, &baremetalv1.NetbootMachineRequest{MachineId: s.machine, RequestId: "r", TimeoutSeconds: patientTime})
		r.silent(t, s.machine)
		return s
	}
	return []situation{
		{name: "a reboot waits for its agent", rule: "agent", arrange: waiting},
		{name: "an agent falls silent with its command", rule: "executor-gone", arrange: func(t *testing.T, r *whyRig) subject {
			return sent(t, r)
		}},
		{name: "work is under way, and the node is quarantined by an admin", rule: "quarantined", arrange: func(t *testing.T, r *whyRig) subject {
			s := sent(t, r)
			s.transition(t, baremetalv1.NodeState_NODE_STATE_QUARANTINED)
			return s
		}},
		{name: "an agent falls silent with leave to act", rule: "granted-and-silent", arrange: silentGrant},
		{name: "a cancel waits for a silent agent", rule: "cancelling", arrange: func(t *testing.T, r *whyRig) subject {
			s := silentGrant(t, r)
			harness.Must(t, r.Machines().CancelOperation, &baremetalv1.CancelOperationRequest{OperationId: r.Machine(s.machine).GetStatus().GetActiveOperationId()})
			return s
		}},
		{name: "an image is being written", rule: "executing", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{RepaveTime: time.Minute})
			s.reimage(t, patientTime)
			return s
		}},
		{name: "a reconfiguration waits for its next try", rule: "retry", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{Script: "hostname:fail-before"})
			plan, step := "again-"+s.machine, rename()
			step.Name, step.MaxRetries, step.TimeoutSeconds = "rename", 10, patientTime
			harness.Must(t, baremetalv1.NewPlanServiceClient(r.Conn()).CreatePlan, &baremetalv1.CreatePlanRequest{Plan: &baremetalv1.Plan{
				PlanId: plan, Steps: []*baremetalv1.Step{step},
			}})
			harness.Must(t, baremetalv1.NewRunServiceClient(r.Conn()).StartRun, &baremetalv1.StartRunRequest{MachineId: s.machine, RequestId: "r", PlanId: plan})
			return s
		}},
		{name: "hardware is being replaced", rule: "replacement", arrange: func(t *testing.T, r *whyRig) subject {
			s := inService(t, r)
			maintenanceAgain(t, s)
			s.transition(t, baremetalv1.NodeState_NODE_STATE_MIGRATING)
			return s
		}},
	}
}

// maintenanceAgain takes a machine that was in service out of it.
func maintenanceAgain(t *testing.T, s subject) {
	t.Helper()
	op := harness.Must(t, s.r.Machines().EnterMaintenance, &baremetalv1.EnterMaintenanceRequest{MachineId: s.machine, RequestId: "again"})
	ended(t, s.r.Wait(op.GetOperationId(), soon), succeeded, "")
}

func situationsOfLife() []situation {
	registered := func(r *whyRig, mac string) string {
		return r.Register(&baremetalv1.Machine{Spec: &baremetalv1.MachineSpec{
			Site: whySite, MacAddresses: []string{mac}, BmcEndpoint: "192.0.2.9",
		}}).GetMachineId()
	}
	return []situation{
		{name: "discovered", rule: "life", arrange: func(t *testing.T, r *whyRig) subject {
			return subject{machine: registered(r, macOf(t.Name()))}
		}},
		{name: "given a token", rule: "life", arrange: func(t *testing.T, r *whyRig) subject {
			id := registered(r, macOf(t.Name()))
			r.IssueToken(&baremetalv1.IssueBootstrapTokenRequest{MachineId: id})
			return subject{machine: id}
		}},
		{name: "approved", rule: "life", arrange: func(t *testing.T, r *whyRig) subject {
			s := subject{r: r, machine: registered(r, macOf(t.Name()))}
			s.transition(t, baremetalv1.NodeState_NODE_STATE_PENDING)
			return s
		}},
		{name: "installed", rule: "life", arrange: func(t *testing.T, r *whyRig) subject {
			mac := macOf(t.Name())
			s := subject{r: r, machine: registered(r, mac)}
			s.transition(t, baremetalv1.NodeState_NODE_STATE_PENDING)
			s.reports(t, mac, "started", "complete")
			return s
		}},
		{name: "installing by itself", rule: "reported-install", arrange: func(t *testing.T, r *whyRig) subject {
			mac := macOf(t.Name())
			s := subject{r: r, machine: registered(r, mac)}
			s.transition(t, baremetalv1.NodeState_NODE_STATE_PENDING)
			s.reports(t, mac, "started")
			return s
		}},
		{name: "three installations failed", rule: "install-failed", arrange: func(t *testing.T, r *whyRig) subject {
			mac := macOf(t.Name())
			s := subject{r: r, machine: registered(r, mac)}
			s.r.installFails(t, s.machine, mac)
			return s
		}},
		{name: "retired", rule: "blocked", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			s.transition(t, baremetalv1.NodeState_NODE_STATE_RETIRED)
			return s
		}},
	}
}

func (s subject) reports(t *testing.T, mac string, statuses ...string) {
	t.Helper()
	for _, status := range statuses {
		harness.Must(t, s.r.Nodes().ReportNode, &baremetalv1.ReportNodeRequest{MacAddress: mac, InstallationStatus: status})
	}
}

func situationsOfWorkflows() []situation {
	full := baremetalv1.Workflow_FULL_DECOMMISSION
	// leaving is a machine whose decommission fails.
	leaving := func(t *testing.T, r *whyRig, script string, mode baremetalv1.Workflow_Mode) subject {
		m := r.NewMachine(t, harness.MachineOptions{Script: script})
		m.WaitConnected()
		r.startLife(t, m.ID, baremetalv1.Workflow_DECOMMISSION, mode, timeout("2"))
		r.failedLife(t, m.ID)
		return subject{r: r, machine: m.ID, of: m}
	}
	act := func(t *testing.T, s subject, action baremetalv1.WorkflowAction) {
		t.Helper()
		w := harness.Must(t, s.r.Workflows().ListWorkflows, &baremetalv1.ListWorkflowsRequest{Filter: "machine_id=" + s.machine}).GetWorkflows()[0]
		harness.Must(t, s.r.Workflows().ActOnWorkflow, &baremetalv1.ActOnWorkflowRequest{WorkflowId: w.GetWorkflowId(), RequestId: action.String(), Action: action})
	}
	return []situation{
		{name: "an erasure failed", rule: "workflow", arrange: func(t *testing.T, r *whyRig) subject { return leaving(t, r, "erase:fail-before", full) }},
		{name: "a soft reset has no known outcome", rule: "fenced", arrange: func(t *testing.T, r *whyRig) subject {
			return leaving(t, r, "reboot:lie", baremetalv1.Workflow_SOFT_RESET)
		}},
		{name: "the disks may not be erased", rule: "workflow", arrange: func(t *testing.T, r *whyRig) subject {
			m := r.NewMachine(t, harness.MachineOptions{})
			m.WaitConnected()
			harness.Must(t, r.Machines().UpdateMachine, &baremetalv1.UpdateMachineRequest{Machine: &baremetalv1.Machine{
				MachineId: m.ID, Spec: &baremetalv1.MachineSpec{ProtectedDisks: []string{"size>=1GiB"}},
			}})
			r.startLife(t, m.ID, baremetalv1.Workflow_DECOMMISSION, full, nil)
			r.failedLife(t, m.ID)
			return subject{machine: m.ID, of: m}
		}},
		{name: "the agent of an onboarding never came", rule: "workflow", arrange: func(t *testing.T, r *whyRig) subject {
			id := r.Register(&baremetalv1.Machine{}).GetMachineId()
			r.IssueToken(&baremetalv1.IssueBootstrapTokenRequest{MachineId: id})
			r.startLife(t, id, baremetalv1.Workflow_ONBOARDING, 0, map[string]string{"path": "adopt", "timeout_seconds": "1"})
			r.failedLife(t, id)
			return subject{machine: id}
		}},
		{name: "an onboarding waits for its agent", rule: "agent", arrange: func(t *testing.T, r *whyRig) subject {
			id := r.Register(&baremetalv1.Machine{}).GetMachineId()
			r.IssueToken(&baremetalv1.IssueBootstrapTokenRequest{MachineId: id})
			r.startLife(t, id, baremetalv1.Workflow_ONBOARDING, 0, map[string]string{"path": "adopt", "timeout_seconds": "600"})
			return subject{machine: id}
		}},
		{name: "a workflow was frozen", rule: "workflow", arrange: func(t *testing.T, r *whyRig) subject {
			s := leaving(t, r, "erase:fail-before", full)
			act(t, s, baremetalv1.WorkflowAction_WORKFLOW_ACTION_MARK_MANUAL_INTERVENTION_REQUIRED)
			return s
		}},
		{name: "a workflow was cancelled", rule: "failed", arrange: func(t *testing.T, r *whyRig) subject {
			s := leaving(t, r, "erase:fail-before", full)
			act(t, s, baremetalv1.WorkflowAction_WORKFLOW_ACTION_CANCEL)
			return s
		}},
		{name: "a workflow failed, and the node was quarantined", rule: "quarantined", arrange: func(t *testing.T, r *whyRig) subject {
			s := leaving(t, r, "erase:fail-before", full)
			s.cloned(t)
			return s
		}},
		{name: "a workflow failed, and the machine was flagged", rule: "blocked", arrange: func(t *testing.T, r *whyRig) subject {
			s := leaving(t, r, "erase:fail-before", full)
			s.flag(t, "RMA")
			return s
		}},
	}
}

func situationsOfFleets() []situation {
	own := func(t *testing.T) *whyRig { return &whyRig{Cluster: harness.New(t, harness.Options{})} }
	freeze := func(t *testing.T, r *whyRig) {
		t.Helper()
		harness.Must(t, baremetalv1.NewBudgetServiceClient(r.Conn()).FreezeFleet, &baremetalv1.FreezeFleetRequest{Comment: "rack 42 is losing disks"})
	}
	rolled := func(t *testing.T, r *whyRig, change func(*baremetalv1.RolloutSpec)) subject {
		t.Helper()
		group := strings.ReplaceAll(macOf(t.Name()), ":", "")
		var ids []string
		for range 2 {
			m := r.at(t, harness.MachineOptions{Script: "reboot:fail-before"})
			r.Register(&baremetalv1.Machine{MachineId: m.ID, Labels: map[string]string{"rollout": group}, Spec: &baremetalv1.MachineSpec{}})
			ids = append(ids, m.ID)
		}
		plan := "roll-" + group
		harness.Must(t, baremetalv1.NewPlanServiceClient(r.Conn()).CreatePlan, &baremetalv1.CreatePlanRequest{Plan: &baremetalv1.Plan{
			PlanId: plan, Steps: []*baremetalv1.Step{{Name: "reboot", MaxRetries: -1, TimeoutSeconds: patientTime, Kind: &baremetalv1.Step_Reboot{Reboot: &baremetalv1.Reboot{}}}},
		}})
		spec := &baremetalv1.RolloutSpec{Filter: "labels.rollout=" + group, PlanId: plan, Canary: 1, MaxInFlight: 1}
		change(spec)
		rollouts := baremetalv1.NewRolloutServiceClient(r.Conn())
		p := harness.Must(t, rollouts.PreviewRollout, &baremetalv1.PreviewRolloutRequest{Spec: spec})
		ro := harness.Must(t, rollouts.CreateRollout, &baremetalv1.CreateRolloutRequest{RequestId: group, Spec: spec, Digest: p.GetDigest()})
		waits := ""
		testkit.Eventually(t, soon, func() bool {
			for _, m := range harness.Must(t, rollouts.ListRolloutMachines, &baremetalv1.ListRolloutMachinesRequest{RolloutId: ro.GetRolloutId()}).GetMachines() {
				if m.GetWave() == 2 {
					waits = m.GetMachineId()
				}
			}
			state := harness.Must(t, rollouts.GetRollout, &baremetalv1.GetRolloutRequest{RolloutId: ro.GetRolloutId()}).GetState()
			return waits != "" && state != baremetalv1.Rollout_RUNNING
		}, "the rollout does not stand still")
		return subject{r: r, machine: waits, rollout: ro.GetRolloutId()}
	}
	return []situation{
		{name: "frozen by an admin", rule: "frozen-fleet", arrange: func(t *testing.T, _ *whyRig) subject {
			r := own(t)
			s := simulated(t, r, harness.MachineOptions{})
			freeze(t, r)
			return s
		}},
		{name: "frozen by a restore", rule: "frozen-fleet", arrange: func(t *testing.T, _ *whyRig) subject {
			r := own(t)
			s := simulated(t, r, harness.MachineOptions{})
			r.Restored(t)
			return s
		}},
		{name: "frozen while a reboot waits", rule: "frozen", arrange: func(t *testing.T, _ *whyRig) subject {
			r := own(t)
			s := simulated(t, r, harness.MachineOptions{})
			s.cutOff(t)
			reboot(t, r.Client, s.machine, "r", patientTime)
			freeze(t, r)
			return s
		}},
		{name: "frozen, after a workflow failed", rule: "workflow", arrange: func(t *testing.T, _ *whyRig) subject {
			r := own(t)
			m := r.NewMachine(t, harness.MachineOptions{Script: "erase:fail-before"})
			m.WaitConnected()
			r.startLife(t, m.ID, baremetalv1.Workflow_DECOMMISSION, baremetalv1.Workflow_FULL_DECOMMISSION, timeout("2"))
			r.failedLife(t, m.ID)
			freeze(t, r)
			return subject{r: r, machine: m.ID, of: m}
		}},
		{name: "frozen, after a reimage failed", rule: "install-failed", arrange: func(t *testing.T, _ *whyRig) subject {
			r := own(t)
			s := simulated(t, r, harness.MachineOptions{Script: "repave:fail-before"})
			s.fails(t, s.reimage(t, patientTime))
			freeze(t, r)
			return s
		}},
		{name: "a budget is used up", rule: "budget", arrange: func(t *testing.T, _ *whyRig) subject {
			r := own(t)
			harness.Must(t, baremetalv1.NewBudgetServiceClient(r.Conn()).SetBudget, &baremetalv1.SetBudgetRequest{
				Budget: &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 1},
			})
			first := simulated(t, r, harness.MachineOptions{Script: "repave:fail-before"})
			first.fails(t, first.reimage(t, patientTime))
			s := simulated(t, r, harness.MachineOptions{})
			s.reimage(t, patientTime)
			return s
		}},
		{name: "a rollout waits for approval", rule: "rollout", arrange: func(t *testing.T, r *whyRig) subject {
			return rolled(t, r, func(s *baremetalv1.RolloutSpec) { s.RequireApproval = true })
		}},
		{name: "a rollout has paused", rule: "rollout", arrange: func(t *testing.T, r *whyRig) subject {
			return rolled(t, r, func(s *baremetalv1.RolloutSpec) { s.WaveGate = &baremetalv1.RolloutGate{Failures: 1} })
		}},
	}
}

func situationsOutside() []situation {
	cycled := func(password string, f bmc.Faults) func(*testing.T, *whyRig) subject {
		return func(t *testing.T, r *whyRig) subject {
			id, _ := r.withBMC(t, password, f)
			s := subject{r: r, machine: id}
			return s.fails(t, r.runOnce(t, id, powerCycle()).GetOperationId())
		}
	}
	inRegion := func(t *testing.T, r *whyRig) *inMAAS {
		x := r.maas(t, &maastest.Machine{Status: ms.New})
		x.inService()
		return x
	}
	return []situation{
		{name: "BMC password wrong", rule: "failed", arrange: cycled("wrong", bmc.Faults{})},
		{name: "BMC does nothing", rule: "failed", arrange: cycled("right", bmc.Faults{Liar: true})},
		{name: "BMC gone", rule: "bmc-trouble", arrange: func(t *testing.T, r *whyRig) subject {
			id, service := r.withBMC(t, "right", bmc.Faults{})
			testkit.Eventually(t, soon, func() bool { return condition(r.Machine(id), "BMCReachable").GetStatus() }, "the BMC is never seen")
			if err := service.Close(); err != nil {
				t.Fatal(err)
			}
			return subject{machine: id}
		}},
		{name: "no installer in the catalogue", rule: "failed", arrange: func(t *testing.T, r *whyRig) subject {
			id, _ := r.withBMC(t, "right", bmc.Faults{})
			s := subject{r: r, machine: id}
			return s.fails(t, r.runOnce(t, id, &baremetalv1.Step{Kind: &baremetalv1.Step_Erase{Erase: &baremetalv1.EraseDisks{}}}).GetOperationId())
		}},
		{name: "MAAS gone", rule: "provider-trouble", arrange: func(t *testing.T, r *whyRig) subject {
			x := inRegion(t, r)
			x.close()
			return subject{machine: x.id}
		}},
		{name: "MAAS released the machine", rule: "provider-drift", arrange: func(t *testing.T, r *whyRig) subject {
			x := inRegion(t, r)
			x.region.Change(x.systemID, func(m *maastest.Machine) { m.Status = ms.Ready })
			return subject{machine: x.id}
		}},
		{name: "MAAS lost the machine", rule: "provider-drift", arrange: func(t *testing.T, r *whyRig) subject {
			x := inRegion(t, r)
			x.region.Lose(x.systemID)
			return subject{machine: x.id}
		}},
		{name: "MAAS key wrong", rule: "workflow", arrange: func(t *testing.T, r *whyRig) subject {
			x := r.maas(t, &maastest.Machine{Status: ms.New})
			x.key("a:b:c")
			x.onboard("")
			x.fails()
			return subject{machine: x.id}
		}},
	}
}

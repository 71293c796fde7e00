package store_test

import (
	"fmt"
	"slices"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/plan"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// begin starts a workflow on the rig's machine and gives its operation.
func (r *metalRig) begin(k workflow.Kind, m workflow.Mode) string {
	r.Helper()
	op, _, err := r.s.StartWorkflow(r.Context(), store.WorkflowStart{
		MachineID: "m-1", RequestID: "life", Kind: k, Mode: m, Actor: "tester", Inputs: inputs("tiny"),
	}, now())
	if err != nil {
		r.Fatal(err)
	}
	return op.GetOperationId()
}

func (r *metalRig) workflow() *baremetalv1.Workflow {
	r.Helper()
	all, err := r.s.ListWorkflows(r.Context(), store.WorkflowFilter{MachineID: "m-1", Limit: 1})
	if err != nil || len(all) != 1 {
		r.Fatalf("%d workflows (%v)", len(all), err)
	}
	return all[0]
}

// intoInstaller follows the machine into the installer through its BMC.
func (r *metalRig) intoInstaller(op string) enrolled {
	r.Helper()
	r.decide(op, operation.Look{})
	return r.installerOf(op)
}

// installerOf is intoInstaller for an operation that waits for its site.
func (r *metalRig) installerOf(op string) enrolled {
	r.Helper()
	token := r.applied().GetAssignments()[0].GetToken()
	r.done(op, r.site, "st-site", "boot-site", map[string]string{"power": "on"})
	v, err := r.vouch(token, "key", now())
	if err != nil {
		r.Fatal(err)
	}
	return r.installer(v, "boot-ram")
}

// TestMachineWithABMCLeaves: erased from the installer, switched off through its BMC, removed; with the controller killed
// around every decision and the site's agent before every event.
func TestMachineWithABMCLeaves(t *testing.T) {
	for _, crash := range crashPoints {
		for _, siteDies := range []bool{false, true} {
			t.Run(fmt.Sprintf("crash=%s,site=%v", crash, siteDies), func(t *testing.T) {
				t.Parallel()
				r := newMetalRig(t)
				r.crash, r.siteDies = crash, siteDies
				op := r.begin(workflow.Decommission, workflow.FullDecommission)
				inst := r.intoInstaller(op)
				r.done(op, inst, "st-boot-ram", "boot-ram", map[string]string{evidence.EraseMethod: "nvme-sanitize"})
				if w := r.workflow(); w.GetCurrentStage() != workflow.PowerOffNode || w.GetState() != baremetalv1.Workflow_RUNNING {
					t.Fatalf("after the erasure it is %v", w)
				}
				if p := r.command(op).GetPower(); p.GetWant() != "off" || p.GetBootOnce() != "" {
					t.Fatalf("the command is %v", p)
				}
				r.done(op, r.site, "st-site", "boot-site", map[string]string{evidence.PowerOffSeenAt: "2026-11-21T14:00:00Z"})
				if w := r.workflow(); w.GetState() != baremetalv1.Workflow_COMPLETED {
					t.Fatalf("it is %v", w)
				}
				if m := machine(t, r.s, "m-1"); m.GetStatus().GetNodeState() != baremetalv1.NodeState_NODE_STATE_DELETED || m.GetDeletedAt() == nil {
					t.Errorf("the machine is %v", m.GetStatus())
				}
				for kind, want := range map[string]int{"power": 1, "erase": 1, "power_off": 1} {
					if n := count(t, r.s, "SELECT count(*) FROM commands WHERE kind = $1", kind); n != want {
						t.Errorf("%d commands of kind %s", n, kind)
					}
				}
				register(t, r.s, "m-2", metalMAC)
			})
		}
	}
}

// TestPowerOffWithoutProofIsNotDone: a BMC that only says so leaves the machine where it is, and what it shows later is
// adopted.
func TestPowerOffWithoutProofIsNotDone(t *testing.T) {
	r := newMetalRig(t)
	op := r.begin(workflow.Decommission, workflow.FullDecommission)
	inst := r.intoInstaller(op)
	r.done(op, inst, "st-boot-ram", "boot-ram", map[string]string{evidence.EraseMethod: "nvme-sanitize"})
	r.done(op, r.site, "st-site", "boot-site", nil)
	w := r.workflow()
	if w.GetState() != baremetalv1.Workflow_FAILED_MANUAL_INTERVENTION || w.GetReason() != "EVIDENCE_MISSING" || w.GetCurrentStage() != workflow.PowerOffNode {
		t.Fatalf("it is %v", w)
	}
	adopt := store.WorkflowAct{WorkflowID: w.GetWorkflowId(), RequestID: "adopt", Action: workflow.Adopt, Actor: "tester"}
	_, err := r.s.ActOnWorkflow(t.Context(), adopt, now())
	wantReason(t, err, "STAGE_CHECK_FAILED")
	exec(t, r.s, "UPDATE machines SET power_state = 'off', power_state_at = now()")
	acted, err := r.s.ActOnWorkflow(t.Context(), adopt, now())
	if err != nil {
		t.Fatal(err)
	}
	r.decide(acted.Operation.GetOperationId(), operation.Look{})
	if w := r.workflow(); w.GetState() != baremetalv1.Workflow_RECONCILED || machine(t, r.s, "m-1").GetDeletedAt() == nil {
		t.Errorf("it ended as %v", w)
	}
}

// TestTheSiteServesWhatTheStepsWrite: an image that the request doesn't name, since the machine, the plan or the attempt before does, is
// served to the installer like any other; also to the attempt that a resume makes.
func TestTheSiteServesWhatTheStepsWrite(t *testing.T) {
	r := newMetalRig(t)
	op := r.begin(workflow.Onboarding, workflow.NoMode)
	r.servesTheImage(op)
	inst := r.installerOf(op)
	r.grant(op, inst, "st-boot-ram", "boot-ram")
	r.decide(op, operation.Resulted{
		CommandID: r.command(op).GetCommandId(), AgentID: inst.id, StateID: "st-boot-ram", Outcome: operation.OutcomeFailed, Reason: "IMAGE_UNAVAILABLE",
	})
	acted, err := r.s.ActOnWorkflow(t.Context(), store.WorkflowAct{
		WorkflowID: r.workflow().GetWorkflowId(), RequestID: "resume", Action: workflow.Resume, Actor: "tester",
		Inputs: func(map[string]string) (plan.Inputs, error) { return inputs("tiny"), nil },
	}, now())
	if err != nil {
		t.Fatal(err)
	}
	r.servesTheImage(acted.Operation.GetOperationId())
}

func (r *metalRig) servesTheImage(op string) {
	r.Helper()
	r.decide(op, operation.Look{})
	a := r.applied().GetAssignments()[0]
	if a.GetOperationId() != op || !slices.Equal(a.GetPrefetchSha256(), []string{"cc"}) {
		r.Errorf("for operation %s the site serves %v", op, a)
	}
}

// TestUnknownMachineComesIn: approved, installed, verified, active.
func TestUnknownMachineComesIn(t *testing.T) {
	for _, crash := range crashPoints {
		t.Run("crash="+crash, func(t *testing.T) {
			t.Parallel()
			r := newMetalRig(t)
			r.crash = crash
			op := r.begin(workflow.Onboarding, workflow.NoMode)
			inst := r.intoInstaller(op)
			if got := machine(t, r.s, "m-1").GetStatus().GetNodeState(); got != baremetalv1.NodeState_NODE_STATE_INSTALLING {
				t.Errorf("the node is %s", got)
			}
			r.grant(op, inst, "st-boot-ram", "boot-ram")
			c := r.command(op)
			if _, err := r.s.IssueIdentity(t.Context(), inst.id, c.GetCommandId(), "t-new", "secret of t-new", now()); err != nil {
				t.Fatal(err)
			}
			r.decide(op, operation.Resulted{
				CommandID: c.GetCommandId(), AgentID: inst.id, StateID: "st-boot-ram", Outcome: operation.OutcomeSucceeded,
				Evidence: map[string]string{evidence.ImageDigest: "sha256:dd"},
			})
			r.applied()
			r.grant(op, inst, "st-boot-ram", "boot-ram")
			r.newSystem(op)
			m := machine(t, r.s, "m-1")
			if w := r.workflow(); w.GetState() != baremetalv1.Workflow_COMPLETED || m.GetStatus().GetNodeState() != baremetalv1.NodeState_NODE_STATE_ACTIVE {
				t.Errorf("it is %v, the machine %v", w, m.GetStatus())
			}
			if n := count(t, r.s, "SELECT count(*) FROM node_state_log WHERE to_state IN ('pending', 'installing', 'installed', 'active')"); n != 4 {
				t.Errorf("%d moves", n)
			}
		})
	}
}

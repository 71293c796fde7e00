package workflow_test

import (
	"fmt"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// TestMachineWithABMCLeaves: erased from the installer, switched off through its BMC, removed; with the controller
// killed around every decision and the site's agent before every event.
func TestMachineWithABMCLeaves(t *testing.T) {
	for _, crash := range crashPoints {
		for _, siteDies := range []bool{false, true} {
			t.Run(fmt.Sprintf("crash=%s,site=%v", crash, siteDies), func(t *testing.T) {
				t.Parallel()
				r := storetest.NewMetalRig(t)
				r.Crash, r.SiteDies = crash, siteDies
				op := r.Begin(workflow.Decommission, workflow.FullDecommission)
				inst := r.IntoInstaller(op)
				r.Done(op, inst, "st-boot-ram", "boot-ram", map[string]string{evidence.EraseMethod: "nvme-sanitize"})
				if w := r.Workflow(); w.GetCurrentStage() != workflow.PowerOffNode || w.GetState() != baremetalv1.Workflow_RUNNING {
					t.Fatalf("after the erasure it is %v", w)
				}
				if p := r.Command(op).GetPower(); p.GetWant() != "off" || p.GetBootOnce() != "" {
					t.Fatalf("the command is %v", p)
				}
				r.Done(op, r.Site, "st-site", "boot-site", map[string]string{evidence.PowerOffSeenAt: "2026-11-21T14:00:00Z"})
				if w := r.Workflow(); w.GetState() != baremetalv1.Workflow_COMPLETED {
					t.Fatalf("it is %v", w)
				}
				if m := storetest.Machine(t, r.Store,
					"m-1"); m.GetStatus().GetNodeState() != baremetalv1.NodeState_NODE_STATE_DELETED || m.GetDeletedAt() == nil {
					t.Errorf("the machine is %v", m.GetStatus())
				}
				for kind, want := range map[string]int{"power": 1, "erase": 1, "power_off": 1} {
					if n := storetest.Count(t, r.Store, "SELECT count(*) FROM commands WHERE kind = $1", kind); n != want {
						t.Errorf("%d commands of kind %s", n, kind)
					}
				}
				storetest.Register(t, r.Store, "m-2", storetest.MetalMAC)
			})
		}
	}
}

// TestPowerOffWithoutProofIsNotDone: a BMC that only says so leaves the machine where it is, and what it shows later is
// adopted.
func TestPowerOffWithoutProofIsNotDone(t *testing.T) {
	r := storetest.NewMetalRig(t)
	op := r.Begin(workflow.Decommission, workflow.FullDecommission)
	inst := r.IntoInstaller(op)
	r.Done(op, inst, "st-boot-ram", "boot-ram", map[string]string{evidence.EraseMethod: "nvme-sanitize"})
	r.Done(op, r.Site, "st-site", "boot-site", nil)
	w := r.Workflow()
	if w.GetState() != baremetalv1.Workflow_FAILED_MANUAL_INTERVENTION || w.GetReason() != "EVIDENCE_MISSING" ||
		w.GetCurrentStage() != workflow.PowerOffNode {
		t.Fatalf("it is %v", w)
	}
	adopt := workflowstore.WorkflowAct{WorkflowID: w.GetWorkflowId(), RequestID: "adopt", Action: workflow.Adopt,
		Actor: "tester"}
	_, err := r.Store.Workflows.ActOnWorkflow(t.Context(), adopt, storetest.Now())
	storetest.WantReason(t, err, "STAGE_CHECK_FAILED")
	storetest.Exec(t, r.Store, "UPDATE machines SET power_state = 'off', power_state_at = now()")
	acted, err := r.Store.Workflows.ActOnWorkflow(t.Context(), adopt, storetest.Now())
	if err != nil {
		t.Fatal(err)
	}
	r.Decide(acted.Operation.GetOperationId(), operation.Evaluate{})
	if w := r.Workflow(); w.GetState() != baremetalv1.Workflow_RECONCILED ||
		storetest.Machine(t, r.Store, "m-1").GetDeletedAt() == nil {
		t.Errorf("it ended as %v", w)
	}
}

// TestTheSiteServesWhatTheStepsWrite: an image that the request doesn't name, since the machine, the plan or the
// attempt before does, is served to the installer like any other; also to the attempt that a resume makes.
func TestTheSiteServesWhatTheStepsWrite(t *testing.T) {
	r := storetest.NewMetalRig(t)
	op := r.Begin(workflow.Onboarding, workflow.NoMode)
	r.ServesTheImage(op)
	inst := r.InstallerOf(op)
	r.Grant(op, inst, "st-boot-ram", "boot-ram")
	r.Decide(op, operation.Resulted{
		CommandID: r.Command(op).GetCommandId(), AgentID: inst.ID, StateID: "st-boot-ram", Outcome: operation.OutcomeFailed,
		Reason: "IMAGE_UNAVAILABLE",
	})
	acted, err := r.Store.Workflows.ActOnWorkflow(t.Context(), workflowstore.WorkflowAct{
		WorkflowID: r.Workflow().GetWorkflowId(), RequestID: "resume", Action: workflow.Resume, Actor: "tester",
		Inputs: func(map[string]string) (kind.Inputs, error) { return storetest.Inputs("tiny"), nil },
	}, storetest.Now())
	if err != nil {
		t.Fatal(err)
	}
	r.ServesTheImage(acted.Operation.GetOperationId())
}

// TestUnknownMachineComesIn: approved, installed, verified, active.
func TestUnknownMachineComesIn(t *testing.T) {
	for _, crash := range crashPoints {
		t.Run("crash="+crash, func(t *testing.T) {
			t.Parallel()
			r := storetest.NewMetalRig(t)
			r.Crash = crash
			op := r.Begin(workflow.Onboarding, workflow.NoMode)
			inst := r.IntoInstaller(op)
			if got := storetest.Machine(t, r.Store,
				"m-1").GetStatus().GetNodeState(); got != baremetalv1.NodeState_NODE_STATE_INSTALLING {
				t.Errorf("the node is %s", got)
			}
			r.Grant(op, inst, "st-boot-ram", "boot-ram")
			c := r.Command(op)
			if _, err := r.Store.Identities.IssueIdentity(t.Context(), inst.ID, c.GetCommandId(), "t-new", "secret of t-new",
				storetest.Now()); err != nil {
				t.Fatal(err)
			}
			r.Decide(op, operation.Resulted{
				CommandID: c.GetCommandId(), AgentID: inst.ID, StateID: "st-boot-ram", Outcome: operation.OutcomeSucceeded,
				Evidence: map[string]string{evidence.ImageDigest: "sha256:dd"},
			})
			r.Applied()
			r.Grant(op, inst, "st-boot-ram", "boot-ram")
			r.NewSystem(op)
			m := storetest.Machine(t, r.Store, "m-1")
			if w := r.Workflow(); w.GetState() != baremetalv1.Workflow_COMPLETED ||
				m.GetStatus().GetNodeState() != baremetalv1.NodeState_NODE_STATE_ACTIVE {
				t.Errorf("it is %v, the machine %v", w, m.GetStatus())
			}
			if n := storetest.Count(t, r.Store,
				"SELECT count(*) FROM node_state_log WHERE to_state IN ('pending', 'installing', 'installed', 'active')"); n != 4 {
				t.Errorf("%d moves", n)
			}
		})
	}
}

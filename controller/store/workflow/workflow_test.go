package workflow_test

import (
	"context"
	"fmt"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
)

var crashPoints = []string{"", "store.before-apply", "store.before-commit", "store.after-commit"}

// TestDecommissionsEndAsTheirModeSays, with the controller killed before, in and after the transaction of every
// decision, and with the agent killed before every answer.
func TestDecommissionsEndAsTheirModeSays(t *testing.T) {
	for _, mode := range workflow.Modes(workflow.Decommission) {
		for _, crash := range crashPoints {
			for _, agentDies := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s,crash=%s,agent=%v", mode, crash, agentDies), func(t *testing.T) {
					t.Parallel()
					r := storetest.NewLifeRig(t)
					r.Crash, r.AgentDies = crash, agentDies
					w := r.Start(workflow.Decommission, mode)
					if w.GetState() != baremetalv1.Workflow_PENDING {
						t.Fatalf("it starts as %s", w.GetState())
					}
					w = r.Run()
					r.Ended(w, mode)
					if crash != "" && r.Crashes < 4 {
						t.Errorf("only %d crashes", r.Crashes)
					}
				})
			}
		}
	}
}

// TestResumeTenTimesAtOnceMakesOneOperation.
func TestResumeTenTimesAtOnceMakesOneOperation(t *testing.T) {
	r := storetest.NewLifeRig(t)
	r.FailWith = map[string]operation.Resulted{"erase": {Outcome: operation.OutcomeFailed, Reason: "EXECUTION_FAILED",
		Message: "the disk said no"}}
	r.Start(workflow.Decommission, workflow.FullDecommission)
	w := r.Run()
	if w.GetState() != baremetalv1.Workflow_FAILED_RETRYABLE || w.GetCurrentStage() != workflow.CleanupStorage ||
		w.GetFailureClass() != string(workflow.ClassExecution) {
		t.Fatalf("it is %v", w)
	}
	if r.Node() != "QUARANTINED" {
		t.Errorf("the node is left %s", r.Node())
	}
	for _, err := range storetest.Together(t, 10, func(_ context.Context, i int) error {
		_, err := r.Act(workflow.Resume, fmt.Sprint("press-", i))
		return err
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	if n := storetest.Count(t, r.Store, "SELECT count(*) FROM operations WHERE type = 'DECOMMISSION'"); n != 2 {
		t.Errorf("%d operations", n)
	}
	if n := storetest.Count(t, r.Store, "SELECT count(*) FROM audit_log WHERE verb = 'WORKFLOW_RESUME'"); n != 1 {
		t.Errorf("%d audit rows", n)
	}
	w = r.Run()
	if w.GetState() != baremetalv1.Workflow_COMPLETED || w.GetAttemptCount() != 2 || r.Node() != "DELETED" {
		t.Errorf("it ended as %v, the node %s", w, r.Node())
	}
}

// TestStartIsIdempotentAndExclusive: one request, one workflow; one machine, one open workflow; nothing destructive
// behind it.
func TestStartIsIdempotentAndExclusive(t *testing.T) {
	r := storetest.NewLifeRig(t)
	starting := workflowstore.WorkflowStart{MachineID: "m-1", RequestID: "same", Kind: workflow.Decommission,
		Mode: workflow.SoftReset, Actor: "tester"}
	ids := make([]string, 10)
	for i, err := range storetest.Together(t, 10, func(ctx context.Context, i int) error {
		op, _, err := r.Store.Workflows.StartWorkflow(ctx, starting, storetest.Now())
		ids[i] = op.GetOperationId()
		return err
	}) {
		if err != nil || ids[i] != ids[0] {
			t.Errorf("%s (%v)", ids[i], err)
		}
	}
	other := starting
	other.Mode = workflow.FullDecommission
	_, _, err := r.Store.Workflows.StartWorkflow(t.Context(), other, storetest.Now())
	storetest.WantReason(t, err, "REQUEST_ID_REUSED")
	other.RequestID = "other"
	_, _, err = r.Store.Workflows.StartWorkflow(t.Context(), other, storetest.Now())
	storetest.WantReason(t, err, "WORKFLOW_ACTIVE")
	r.FailWith = map[string]operation.Resulted{"reboot": {Outcome: operation.OutcomeFailed, Reason: "EXECUTION_FAILED"}}
	r.Run()
	_, _, err = r.Store.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1", RequestID: "behind",
		Type: fleet.Reimage, Actor: "tester", Inputs: storetest.Inputs("img")}, storetest.Now())
	storetest.WantReason(t, err, "MACHINE_QUARANTINED")
	_, _, err = r.Store.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1", RequestID: "by-plan",
		Type: fleet.RunPlan, PlanID: "decommission-soft-reset", Actor: "tester"}, storetest.Now())
	storetest.WantReason(t, err, "INVALID_FIELD")
}

// TestEnterMaintenanceFirst: the operator's word opens that operation before the workflow's.
func TestEnterMaintenanceFirst(t *testing.T) {
	r := storetest.NewLifeRig(t)
	exit := storetest.Start(t, r.Store, operationstore.StartRequest{MachineID: "m-1", RequestID: "exit",
		Type: fleet.ExitMaintenance})
	storetest.Decide(t, r.Store, exit.GetOperationId(), operation.Evaluate{})
	starting := workflowstore.WorkflowStart{MachineID: "m-1", RequestID: "life", Kind: workflow.Decommission,
		Mode: workflow.SoftReset, Actor: "tester"}
	_, _, err := r.Store.Workflows.StartWorkflow(t.Context(), starting, storetest.Now())
	storetest.WantReason(t, err, "WRONG_PHASE")
	starting.EnterMaintenance = true
	if _, _, err := r.Store.Workflows.StartWorkflow(t.Context(), starting, storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if n := storetest.Count(t, r.Store, "SELECT count(*) FROM operations WHERE type = 'ENTER_MAINTENANCE' AND phase = "+
		"'SUCCEEDED' AND request_id = 'life/enter-maintenance'"); n != 1 {
		t.Errorf("%d operations entered maintenance", n)
	}
	if w := r.Run(); w.GetState() != baremetalv1.Workflow_COMPLETED {
		t.Errorf("it ended as %v", w)
	}
}

// TestACustomersMachineIsNotTaken: work that would end at a later stage is refused before its first one, and one on a
// machine that has joined a cluster since fails with its reason, and an operator's way out is there.
func TestACustomersMachineIsNotTaken(t *testing.T) {
	r := storetest.NewLifeRig(t)
	const joins = "INSERT INTO machine_conditions (machine_id, type, status, reason, message, last_transition) VALUES " +
		"('m-1', 'InCustomerCluster', true, 'x', '', now()) ON CONFLICT (machine_id, type) DO UPDATE SET status = true"
	storetest.Exec(t, r.Store, joins)
	before := r.Node()
	_, _, err := r.Store.Workflows.StartWorkflow(t.Context(), workflowstore.WorkflowStart{MachineID: "m-1",
		RequestID: "early", Kind: workflow.Decommission, Mode: workflow.FullDecommission, Actor: "tester"}, storetest.Now())
	storetest.WantReason(t, err, "CLUSTER_NOT_CONFIGURED")
	if n := storetest.Count(t, r.Store, "SELECT count(*) FROM workflows"); n != 0 || r.Node() != before {
		t.Errorf("%d workflows, and the node went from %s to %s", n, before, r.Node())
	}
	storetest.Exec(t, r.Store, "UPDATE machine_conditions SET status = false WHERE type = 'InCustomerCluster'")
	r.Start(workflow.Decommission, workflow.FullDecommission)
	storetest.Exec(t, r.Store, joins)
	w := r.Run()
	if w.GetState() != baremetalv1.Workflow_FAILED_MANUAL_INTERVENTION || w.GetReason() != "CLUSTER_NOT_CONFIGURED" ||
		w.GetCurrentStage() != workflow.ForceRelease {
		t.Fatalf("it is %v", w)
	}
	if n := storetest.Count(t, r.Store, "SELECT count(*) FROM commands"); n != 0 {
		t.Errorf("%d commands were made", n)
	}
	if _, err := r.Act(workflow.Adopt, "adopt"); err == nil {
		t.Error("a stage was taken as done that nothing shows to be")
	}
	storetest.Exec(t, r.Store, "UPDATE machine_conditions SET status = false WHERE type = 'InCustomerCluster'")
	r.MustAct(workflow.RetryStage, "again")
	if w := r.Run(); w.GetState() != baremetalv1.Workflow_COMPLETED {
		t.Errorf("it ended as %v", w)
	}
}

// TestCancelAndRunAgain: a cancelled workflow leaves the node in service, and can be run again.
func TestCancelAndRunAgain(t *testing.T) {
	r := storetest.NewLifeRig(t)
	r.Start(workflow.Decommission, workflow.SoftReset)
	r.Decide(r.Workflow().GetOperationId(), operation.Evaluate{})
	if r.Node() != "DRAINING" || r.Workflow().GetState() != baremetalv1.Workflow_RUNNING {
		t.Fatalf("the node is %s, the workflow %v", r.Node(), r.Workflow())
	}
	dry, err := r.Store.Workflows.ActOnWorkflow(t.Context(),
		workflowstore.WorkflowAct{WorkflowID: r.Workflow().GetWorkflowId(), RequestID: "dry", Action: workflow.Cancel,
			DryRun: true}, storetest.Now())
	if err != nil || dry.Text == "" || r.Workflow().GetState() != baremetalv1.Workflow_RUNNING {
		t.Fatalf("a dry run says %+v (%v) and leaves %v", dry, err, r.Workflow())
	}
	r.MustAct(workflow.Cancel, "cancel")
	r.MustAct(workflow.Cancel, "cancel again")
	if w := r.Workflow(); w.GetState() != baremetalv1.Workflow_CANCELLED || r.Node() != "ACTIVE" {
		t.Fatalf("the node is %s, the workflow %v", r.Node(), w)
	}
	// An operator has stopped short: draining becomes offline, and active since the agent has a session.
	if n := storetest.Count(t, r.Store, `SELECT count(*) FROM node_state_log
		WHERE machine_id = 'm-1' AND from_state = 'draining' AND to_state = 'offline' AND triggered_by = 'workflow'`); n != 1 {
		t.Errorf("%d moves from draining to offline, want 1", n)
	}
	r.MustAct(workflow.Rerun, "rerun")
	if w := r.Run(); w.GetState() != baremetalv1.Workflow_COMPLETED || r.Node() != "ACTIVE" {
		t.Errorf("the node is %s, the workflow %v", r.Node(), w)
	}
	_, err = r.Act(workflow.Cancel, "too late")
	storetest.WantReason(t, err, "WORKFLOW_ACTION_ILLEGAL")
}

// TestAStalledAttemptIsLookedAtAgain: resume finds the operation that nobody looks at and wakes it.
func TestAStalledAttemptIsLookedAtAgain(t *testing.T) {
	r := storetest.NewLifeRig(t)
	r.Start(workflow.Decommission, workflow.SoftReset)
	r.Decide(r.Workflow().GetOperationId(), operation.Evaluate{})
	if a := r.MustAct(workflow.Resume, "early"); a.Created {
		t.Error("a live attempt got a second one")
	}
	storetest.Exec(t, r.Store, "UPDATE operations SET wake_at = now() - interval '10 minutes' WHERE type = 'DECOMMISSION'")
	if a := r.MustAct(workflow.Resume, "late"); a.Created {
		t.Error("a late attempt got a second one")
	}
	if n := storetest.Count(t, r.Store,
		"SELECT count(*) FROM operations WHERE type = 'DECOMMISSION' AND wake_at > now() - interval '1 minute'"); n != 1 {
		t.Error("nobody will look at it")
	}
}

// TestOnboarding adopts a machine that was given a token: it is active when its agent is there, and not before it is
// verified.
func TestOnboarding(t *testing.T) {
	for _, crash := range crashPoints {
		t.Run("crash="+crash, func(t *testing.T) {
			t.Parallel()
			s := storetest.New(t)
			r := &storetest.LifeRig{T: t, Store: s, Boot: "boot-1"}
			storetest.Register(t, s, "m-1", storetest.LifeMAC)
			storetest.Lease(t, s)
			storetest.Token(t, s, agentstore.NewToken{TokenID: "t-0", MachineID: "m-1"})
			storetest.Maintenance(t, s, "m-1")
			r.Start(workflow.Onboarding, workflow.NoMode)
			op := r.Workflow().GetOperationId()
			r.Crash = crash
			r.Decide(op, operation.Evaluate{})
			if w := r.Workflow(); w.GetState() != baremetalv1.Workflow_RUNNING ||
				w.GetCurrentStage() != workflow.WaitForEnrollment || r.Node() != "ENROLLING" {
				t.Fatalf("the node is %s, the workflow %v", r.Node(), w)
			}
			r.Agent = storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-1", MachineID: "m-1"})
			for _, id := range r.Open() {
				r.Decide(id, operation.SessionOpened{AgentID: r.Agent.ID, StateID: "st-1", BootID: r.Boot, OfTarget: true})
			}
			if w := r.Workflow(); w.GetState() != baremetalv1.Workflow_RUNNING || w.GetCurrentStage() != workflow.VerifyNode {
				t.Errorf("without an inventory the workflow is %v", w)
			}
			r.Agent.Arrived(t, s, storetest.LifeMAC)
			r.Decide(op, operation.Evaluate{})
			if w := r.Workflow(); w.GetState() != baremetalv1.Workflow_COMPLETED || r.Node() != "ACTIVE" {
				t.Errorf("the node is %s, the workflow %v", r.Node(), w)
			}
			if bad := r.Violation(); bad != "" {
				t.Error(bad)
			}
		})
	}
}

package rollout_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
)

// destroying is a rollout that installs machines.
func destroying(filter string) *pb.RolloutSpec {
	return &pb.RolloutSpec{Filter: filter, Type: "REPAVE", Params: map[string]string{"image_ref": "ubuntu-2204"}}
}

// maintained registers machines in maintenance, with a label.
func maintained(r *publictest.Rig, n int) {
	r.T.Helper()
	for i := range n {
		m := publictest.NewMachine(i)
		m.Labels = map[string]string{"env": "prod"}
		r.Register(m)
		r.Maintenance(m.GetMachineId())
	}
}

func setPolicy(r *publictest.Rig, ctx context.Context, name, selection string, machines int32) {
	r.T.Helper()
	if _, err := r.Rollouts.SetApprovalPolicy(ctx, &pb.SetApprovalPolicyRequest{Policy: &pb.ApprovalPolicy{Name: name,
		Harm: pb.ApprovalPolicy_DESTROYS, Selection: selection, Machines: machines}}); err != nil {
		r.T.Fatal(err)
	}
}

func reimage(r *publictest.Rig, ctx context.Context, id, request string) error {
	_, err := r.Machines.ReimageMachine(ctx,
		&pb.ReimageMachineRequest{MachineId: id, RequestId: request, ImageRef: "ubuntu-2204"})
	return err
}

// A rollout waits for a second person where a policy demands it, whatever its creator asks for.
func TestAPolicyDemandsApproval(t *testing.T) {
	r := publictest.NewRig(t)
	maintained(r, 3)
	setPolicy(r, t.Context(), "prod", "label.env=prod", 1)
	all := destroying("site=default")
	if p := preview(r, all); fmt.Sprint(p.GetApprovalPolicies()) != "[prod]" {
		t.Errorf("the preview names %v", p.GetApprovalPolicies())
	}
	ro := create(r, "all", all)
	if ro.GetState() != pb.Rollout_AWAITING_APPROVAL || fmt.Sprint(ro.GetApprovalPolicies()) != "[prod]" {
		t.Fatalf("%v", ro)
	}
	approve := func(who string) error {
		_, err := r.Rollouts.ApproveRollout(as(t.Context(), who),
			&pb.ApproveRolloutRequest{RolloutId: ro.GetRolloutId(), Digest: ro.GetDigest()})
		return err
	}
	publictest.Wants(t, approve("tester"), failure.KindDenied, "ROLLOUT_SELF_APPROVAL", "")
	if err := approve("second"); err != nil {
		t.Fatal(err)
	}
	if err := turn(r, ro.GetRolloutId(), 1); err != nil {
		t.Fatal(err) // what was approved is not judged again, machine by machine
	}
	ops, err := r.Operations.ListOperations(t.Context(), &pb.ListOperationsRequest{Filter: "type=REIMAGE"})
	if err != nil || len(ops.GetOperations()) == 0 {
		t.Errorf("nothing has begun: %v, %v", ops, err)
	}
}

// Many small pieces of work count as one, machines count by what they were, and work that destroys nothing is free.
func TestAPolicyCountsSmallWork(t *testing.T) {
	r := publictest.NewRig(t)
	maintained(r, 5)
	setPolicy(r, t.Context(), "prod", "label.env=prod", 2)
	if err := reimage(r, t.Context(), "m-000", "1"); err != nil {
		t.Fatal(err)
	}
	if err := reimage(r, t.Context(), "m-000", "1"); err != nil {
		t.Fatalf("the same request again: %v", err)
	}
	if ro := create(r, "one", destroying("machine_id=m-001")); ro.GetState() != pb.Rollout_RUNNING {
		t.Fatalf("%v", ro)
	}
	// Out of the selection they still count.
	for _, id := range []string{"m-000", "m-001"} {
		if _, err := r.Machines.UpdateMachine(t.Context(), &pb.UpdateMachineRequest{
			Machine: &pb.Machine{MachineId: id, Labels: map[string]string{"env": "dev"}}}); err != nil {
			t.Fatal(err)
		}
	}
	err := reimage(r, t.Context(), "m-002", "1")
	publictest.Wants(t, err, failure.KindPrecondition, "APPROVAL_REQUIRED", "")
	_, err = r.Workflows.StartWorkflow(t.Context(), &pb.StartWorkflowRequest{MachineId: "m-002", RequestId: "w",
		Kind: pb.Workflow_DECOMMISSION, Mode: pb.Workflow_FULL_DECOMMISSION})
	publictest.Wants(t, err, failure.KindPrecondition, "APPROVAL_REQUIRED", "")
	_, err = r.Machines.ReimageMachine(t.Context(), &pb.ReimageMachineRequest{MachineId: "m-002", RequestId: "2",
		ImageRef: "ubuntu-2204"})
	publictest.Wants(t, err, failure.KindPrecondition, "APPROVAL_REQUIRED", "")
	if ro := create(r, "two", destroying("machine_id=m-002")); ro.GetState() != pb.Rollout_AWAITING_APPROVAL {
		t.Fatalf("%v", ro)
	}
	// A machine outside of the selection, another person, and work that keeps the data.
	if _, err := r.Machines.UpdateMachine(t.Context(), &pb.UpdateMachineRequest{
		Machine: &pb.Machine{MachineId: "m-003", Labels: map[string]string{"env": "dev"}}}); err != nil {
		t.Fatal(err)
	}
	if err := reimage(r, t.Context(), "m-003", "1"); err != nil {
		t.Errorf("outside of the selection: %v", err)
	}
	if err := reimage(r, as(t.Context(), "second"), "m-004", "1"); err != nil {
		t.Errorf("another person: %v", err)
	}
	if _, err := r.Machines.ExitMaintenance(t.Context(),
		&pb.ExitMaintenanceRequest{MachineId: "m-002", RequestId: "3"}); err != nil {
		t.Errorf("work that destroys nothing: %v", err)
	}
}

// Who loosens a policy is held to the former one for a day.
func TestAPolicyIsNotLoosenedForOneself(t *testing.T) {
	r := publictest.NewRig(t)
	maintained(r, 3)
	setPolicy(r, t.Context(), "prod", "", 0)
	setPolicy(r, t.Context(), "prod", "", 100)
	err := reimage(r, t.Context(), "m-000", "1")
	publictest.Wants(t, err, failure.KindPrecondition, "APPROVAL_REQUIRED", "")
	gone, err := r.Rollouts.DeleteApprovalPolicy(t.Context(), &pb.DeleteApprovalPolicyRequest{Name: "prod"})
	if err != nil || gone.GetVersion() != 2 || gone.GetMachines() != 100 {
		t.Fatalf("%v, %v", gone, err)
	}
	err = reimage(r, t.Context(), "m-000", "1")
	publictest.Wants(t, err, failure.KindPrecondition, "APPROVAL_REQUIRED", "")
	if err := reimage(r, as(t.Context(), "second"), "m-000", "1"); err != nil {
		t.Errorf("a person who has loosened nothing: %v", err)
	}
	list, err := r.Rollouts.ListApprovalPolicies(t.Context(), &pb.ListApprovalPoliciesRequest{})
	if err != nil || len(list.GetPolicies()) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	_, err = r.Rollouts.DeleteApprovalPolicy(t.Context(), &pb.DeleteApprovalPolicyRequest{Name: "prod"})
	publictest.Wants(t, err, failure.KindNotFound, "APPROVAL_POLICY_NOT_FOUND", "name")
	audit, err := r.Admin.ListAuditLog(t.Context(), &pb.ListAuditLogRequest{TargetId: "prod"})
	if err != nil || len(audit.GetEntries()) != 3 || audit.GetEntries()[0].GetVerb() != "DELETE_APPROVAL_POLICY" {
		t.Errorf("%v, %v", audit, err)
	}
}

// Requests at the same time begin no more together than one after the other, and none begins once a policy is set.
func TestPoliciesUnderConcurrency(t *testing.T) {
	r := publictest.NewRig(t)
	const machines = 12
	maintained(r, machines)
	// The digests are of before the policy, so that nothing but the creation races with it.
	digests := map[int]string{}
	for i := range machines {
		digests[i] = preview(r, destroying(fmt.Sprintf("machine_id=m-%03d", i))).GetDigest()
	}
	var set atomic.Bool
	var late, begun atomic.Int32
	g, _ := task.New(t.Context())
	g.Go("policy", func(ctx context.Context) error {
		_, err := r.Rollouts.SetApprovalPolicy(ctx, &pb.SetApprovalPolicyRequest{Policy: &pb.ApprovalPolicy{Name: "all",
			Harm: pb.ApprovalPolicy_DESTROYS}})
		set.Store(true)
		return err
	})
	for i := range machines / 2 {
		g.Go("rollout", func(ctx context.Context) error {
			after := set.Load()
			ro, err := r.Rollouts.CreateRollout(ctx, &pb.CreateRolloutRequest{RequestId: fmt.Sprint("r", i),
				Spec: destroying(fmt.Sprintf("machine_id=m-%03d", i)), Digest: digests[i]})
			if err == nil && after && ro.GetState() == pb.Rollout_RUNNING {
				late.Add(1)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if late.Load() > 0 {
		t.Errorf("%d rollouts have begun without approval after the policy was set", late.Load())
	}
	setPolicy(r, t.Context(), "two", "machine_id=m-0*", 2)
	if _, err := r.Rollouts.DeleteApprovalPolicy(t.Context(), &pb.DeleteApprovalPolicyRequest{Name: "all"}); err != nil {
		t.Fatal(err)
	}
	other := as(t.Context(), "second")
	g, _ = task.New(t.Context())
	for i := machines / 2; i < machines; i++ {
		g.Go("work", func(context.Context) error {
			id := fmt.Sprintf("m-%03d", i)
			if i%2 == 0 {
				err := reimage(r, other, id, "1")
				if err == nil {
					begun.Add(1)
				}
				return nil
			}
			ro, err := r.Rollouts.CreateRollout(other, &pb.CreateRolloutRequest{RequestId: fmt.Sprint("r", i),
				Spec: destroying("machine_id=" + id), Digest: digests[i]})
			if err == nil && ro.GetState() == pb.Rollout_RUNNING {
				begun.Add(1)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if begun.Load() != 2 {
		t.Errorf("%d of %d have begun without approval, want 2", begun.Load(), machines/2)
	}
}

func TestPoliciesThatAreRefused(t *testing.T) {
	r := publictest.NewRig(t)
	for field, p := range map[string]*pb.ApprovalPolicy{
		"policy":           nil,
		"policy.name":      {Harm: pb.ApprovalPolicy_DESTROYS},
		"policy.harm":      {Name: "p"},
		"policy.machines":  {Name: "p", Harm: pb.ApprovalPolicy_DESTROYS, Machines: -1},
		"policy.set_by":    {Name: "p", Harm: pb.ApprovalPolicy_DESTROYS, SetBy: "me"},
		"policy.selection": {Name: "p", Harm: pb.ApprovalPolicy_DESTROYS, Selection: "phase=READY"},
	} {
		_, err := r.Rollouts.SetApprovalPolicy(t.Context(), &pb.SetApprovalPolicyRequest{Policy: p})
		publictest.Wants(t, err, failure.KindInvalid, "INVALID_FIELD", field)
	}
	setPolicy(r, t.Context(), "p", "", 1)
	_, err := r.Rollouts.SetApprovalPolicy(t.Context(), &pb.SetApprovalPolicyRequest{CreateOnly: true,
		Policy: &pb.ApprovalPolicy{Name: "p", Harm: pb.ApprovalPolicy_DESTROYS}})
	publictest.Wants(t, err, failure.KindAlreadyExists, "RESOURCE_EXISTS", "")
}

// TestAPreviewAsksForApproval: whatever the work itself is refused for, its preview is, of one machine and of many.
func TestAPreviewAsksForApproval(t *testing.T) {
	r := publictest.NewRig(t)
	maintained(r, 1)
	id := publictest.NewMachine(0).GetMachineId()
	storetest.Live(t, r.Store, "m-live")
	setPolicy(r, as(t.Context(), "second"), "all", "", 0)
	for name, validates := range map[string]func() error{
		"reimage": func() error {
			_, err := r.Machines.ReimageMachine(t.Context(), &pb.ReimageMachineRequest{MachineId: id, RequestId: "v",
				ImageRef: "ubuntu-2204", ValidateOnly: true})
			return err
		},
		"run": func() error {
			_, err := r.Runs.StartRun(t.Context(), &pb.StartRunRequest{MachineId: id, RequestId: "v", Type: "REPAVE",
				Params: map[string]string{"image_ref": "ubuntu-2204"}, ValidateOnly: true})
			return err
		},
		"workflow": func() error {
			_, err := r.Workflows.StartWorkflow(t.Context(), &pb.StartWorkflowRequest{MachineId: "m-live", RequestId: "v",
				Kind: pb.Workflow_DECOMMISSION, Mode: pb.Workflow_STORAGE_CLEANUP,
				Params: map[string]string{"image_ref": "ubuntu-2204"}, ValidateOnly: true})
			return err
		},
	} {
		if err := validates(); err == nil {
			t.Errorf("%s: the preview agrees to what the work is refused for", name)
		} else {
			publictest.Wants(t, err, failure.KindPrecondition, "APPROVAL_REQUIRED", "")
		}
	}
	if n, err := r.Store.Approvals.ListApprovalPolicies(t.Context(), "", 10); err != nil || len(n) != 1 {
		t.Fatal(n, err)
	}
	spec := destroying("machine_id=" + id)
	p := preview(r, spec)
	would, err := r.Rollouts.CreateRollout(t.Context(), &pb.CreateRolloutRequest{RequestId: "v", Spec: spec,
		Digest: p.GetDigest(), ValidateOnly: true})
	if err != nil || len(p.GetApprovalPolicies()) != 1 || len(p.GetMachines()) != 1 ||
		p.GetMachines()[0].GetState() != pb.RolloutMachine_PENDING || len(would.GetApprovalPolicies()) != 1 ||
		would.GetState() != pb.Rollout_AWAITING_APPROVAL {
		t.Errorf("%v, %v, %v", p, would, err)
	}
}

package attack

import (
	"context"
	"fmt"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/lab/harness"
)

func approvalAttempts() []Attempt {
	return []Attempt{
		{Party: Admin, Attempt: "destroy alone what a policy demands a second person for", Rule: 13, Run: destroyAlone},
	}
}

// loner is one root identity and a token that it has made, and the machine that it means to erase.
type loner struct {
	self, child *harness.Client
	machine     string
	requests    int
}

func (l *loner) clients() map[string]*harness.Client {
	return map[string]*harness.Client{"the identity": l.self, "its token": l.child}
}

// destroyAlone: by an admin's policy no user destroys data alone. Another admin tries: by a rollout without the flag,
// by its own approval and its token's, by work on one machine, and by taking the policy away first.
func destroyAlone(ctx context.Context, r *Rig) (Outcome, error) {
	values, err := r.ready(ctx)
	if err != nil {
		return Outcome{}, err
	}
	l := &loner{self: r.Client("alice", access.ScopeAdmin), machine: values["host"]}
	if l.child, _, err = token(ctx, l.self, "alice-too", "admin", ""); err != nil {
		return Outcome{}, err
	}
	enter, err := r.C.Machines().EnterMaintenance(ctx,
		&baremetalv1.EnterMaintenanceRequest{MachineId: l.machine, RequestId: "1"})
	if err != nil {
		return Outcome{}, err
	}
	r.C.Wait(enter.GetOperationId(), time.Minute)
	policy := &baremetalv1.ApprovalPolicy{Name: "all", Harm: baremetalv1.ApprovalPolicy_DESTROYS}
	if _, err := rolloutsOf(r.C.Client).SetApprovalPolicy(ctx,
		&baremetalv1.SetApprovalPolicyRequest{Policy: policy}); err != nil {
		return Outcome{}, err
	}
	if out, err := l.byRollout(ctx); err != nil || out.Breach {
		return out, err
	}
	if out := l.byOne(ctx); out.Breach {
		return out, nil
	}
	// It takes the policy away, and makes one that allows much.
	policy.Machines = 1000
	if _, err := rolloutsOf(l.child).SetApprovalPolicy(ctx,
		&baremetalv1.SetApprovalPolicyRequest{Policy: policy}); err != nil {
		return Outcome{}, err
	}
	if _, err := rolloutsOf(l.self).DeleteApprovalPolicy(ctx,
		&baremetalv1.DeleteApprovalPolicyRequest{Name: policy.GetName()}); err != nil {
		return Outcome{}, err
	}
	if out, err := l.byRollout(ctx); err != nil || out.Breach {
		return out, err
	}
	if out := l.byOne(ctx); out.Breach {
		return out, nil
	}
	return held("rollouts wait for another person, work on one machine is refused, also once the policy is taken away"),
		nil
}

func rolloutsOf(c *harness.Client) baremetalv1.RolloutServiceClient {
	return baremetalv1.NewRolloutServiceClient(c.Conn())
}

// byRollout creates a rollout without the flag, and approves it by itself and by its token. It cancels it afterwards.
func (l *loner) byRollout(ctx context.Context) (Outcome, error) {
	for name, c := range l.clients() {
		spec := &baremetalv1.RolloutSpec{Filter: "machine_id=" + l.machine, Type: "REPAVE",
			Params: map[string]string{"image_ref": "ubuntu-2204"}}
		preview, err := rolloutsOf(c).PreviewRollout(ctx, &baremetalv1.PreviewRolloutRequest{Spec: spec})
		if err != nil {
			return Outcome{}, err
		}
		l.requests++
		made, err := rolloutsOf(c).CreateRollout(ctx, &baremetalv1.CreateRolloutRequest{
			RequestId: fmt.Sprint("ro-", l.requests), Spec: spec, Digest: preview.GetDigest()})
		if err != nil {
			return Outcome{}, err
		}
		if made.GetState() != baremetalv1.Rollout_AWAITING_APPROVAL {
			return breached("a rollout of %s begins: %s", name, made.GetState()), nil
		}
		for who, other := range l.clients() {
			_, err := rolloutsOf(other).ApproveRollout(ctx,
				&baremetalv1.ApproveRolloutRequest{RolloutId: made.GetRolloutId(), Digest: preview.GetDigest()})
			if !harness.HasReason(err, "ROLLOUT_SELF_APPROVAL") {
				return breached("%s approves the rollout of %s: %v", who, name, err), nil
			}
		}
		if _, err := rolloutsOf(c).CancelRollout(ctx,
			&baremetalv1.CancelRolloutRequest{RolloutId: made.GetRolloutId()}); err != nil {
			return Outcome{}, err
		}
	}
	return Outcome{}, nil
}

// byOne reimages and decommissions the machine without a rollout, and names a rollout that there isn't.
func (l *loner) byOne(ctx context.Context) Outcome {
	for name, c := range l.clients() {
		l.requests++
		request := fmt.Sprint("one-", l.requests)
		_, err := c.Machines().ReimageMachine(ctx, &baremetalv1.ReimageMachineRequest{MachineId: l.machine,
			RequestId: request, ImageRef: "ubuntu-2204"})
		if !harness.HasReason(err, "APPROVAL_REQUIRED") {
			return breached("%s reimages the machine: %v", name, err)
		}
		_, err = c.Workflows().StartWorkflow(ctx, &baremetalv1.StartWorkflowRequest{MachineId: l.machine,
			RequestId: request, Kind: baremetalv1.Workflow_DECOMMISSION, Mode: baremetalv1.Workflow_FULL_DECOMMISSION})
		if !harness.HasReason(err, "APPROVAL_REQUIRED") {
			return breached("%s decommissions the machine: %v", name, err)
		}
		op, err := baremetalv1.NewRunServiceClient(c.Conn()).StartRun(ctx, &baremetalv1.StartRunRequest{
			MachineId: l.machine, RequestId: request, Type: "REPAVE",
			Params: map[string]string{"image_ref": "ubuntu-2204", "rollout_id": "ro-1"}})
		if err == nil {
			return breached("%s starts a run in the name of a rollout: %s", name, op.GetRunId())
		}
	}
	return Outcome{}
}

package trial

import (
	"context"
	"fmt"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/chaos/check"
	"github.com/ingot-metal/ingot/lab/chaos/program"
)

func (p *controllerProgram) rollouts() baremetalv1.RolloutServiceClient {
	return baremetalv1.NewRolloutServiceClient(p.conn)
}

// rolloutSpec is that of the run's rollout: one that stops by itself when too many machines have failed.
func (r *attempt) rolloutSpec() *baremetalv1.RolloutSpec {
	o := r.p.Rollout
	return &baremetalv1.RolloutSpec{
		Filter: "labels." + widePart + "=" + rolled, PlanId: widePlan, Canary: o.Canary, Percents: []int32{o.Percent},
		MaxInFlight: o.AtOnce, TotalGate: &baremetalv1.RolloutGate{Failures: o.Failures}, OnGate: "cancel",
	}
}

// rolloutPatience is how long a client tries to begin a rollout. The effect of an unknown outcome shows later.
const rolloutPatience = 6 * time.Second

// rollOut begins a rollout as a client does whose controllers may die: with one request id, again and again.
func (r *attempt) rollOut(ctx context.Context) error {
	program.Rest(ctx, r.p.Rollout.At-r.since())
	ctx, cancel := context.WithTimeout(ctx, rolloutPatience)
	defer cancel()
	for i := 0; ctx.Err() == nil; i++ {
		p := r.c.controllers[i%len(r.c.controllers)]
		if r.beginRollout(ctx, p) == nil {
			return nil
		}
		program.Rest(ctx, again)
	}
	return nil
}

func (r *attempt) beginRollout(ctx context.Context, p *controllerProgram) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	preview, err := p.rollouts().PreviewRollout(ctx, &baremetalv1.PreviewRolloutRequest{Spec: r.rolloutSpec()})
	if err != nil {
		return err
	}
	_, err = p.rollouts().CreateRollout(ctx, &baremetalv1.CreateRolloutRequest{
		RequestId: r.request("rollout"), Spec: r.rolloutSpec(), Digest: preview.GetDigest(),
	})
	return err
}

// rollout reads the run's rollout; nil where none was taken.
func (r *attempt) rollout(ctx context.Context) (*baremetalv1.Rollout, error) {
	ctx, cancel := context.WithTimeout(ctx, restLimit)
	defer cancel()
	list, err := r.c.controllers[0].rollouts().ListRollouts(ctx,
		&baremetalv1.ListRolloutsRequest{Filter: "request_id=" + r.request("rollout")})
	if err != nil || len(list.GetRollouts()) == 0 {
		return nil, err
	}
	return list.GetRollouts()[0], nil
}

// awaitRollout waits for the run's rollout to end.
func (r *attempt) awaitRollout(ctx context.Context) error {
	if r.p.Rollout == nil {
		return nil
	}
	var last *baremetalv1.Rollout
	err := program.Until(ctx, r.c.o.Quiet, "the rollout to end", func() bool {
		var err error
		last, err = r.rollout(ctx)
		return err == nil && (last == nil || last.GetState() > baremetalv1.Rollout_STOPPING)
	})
	if err != nil {
		return fmt.Errorf("%w: it is %s (%s: %s)", err, last.GetState(), last.GetWaitReason(), last.GetMessage())
	}
	return nil
}

// ofRollout reports whether an operation is one of the run's rollout: nothing else acts on these machines.
func (r *attempt) ofRollout(o *baremetalv1.Operation) bool {
	return r.c.o.Wide && strings.HasPrefix(o.GetMachineId(), "r-") && o.GetCreatedAt().AsTime().After(r.begun)
}

func (r *attempt) collectRollout(ctx context.Context, h *check.History) error {
	if r.p.Rollout == nil {
		return nil
	}
	o, err := r.rollout(ctx)
	if err != nil || o == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, restLimit)
	defer cancel()
	list, err := r.c.controllers[0].rollouts().ListRolloutMachines(ctx,
		&baremetalv1.ListRolloutMachinesRequest{RolloutId: o.GetRolloutId()})
	if err != nil {
		return fmt.Errorf("list the machines of a rollout: %w", err)
	}
	out := check.Rollout{
		ID: o.GetRolloutId(), State: o.GetState().String(), AtOnce: int(o.GetSpec().GetMaxInFlight()),
		Failures: int(o.GetSpec().GetTotalGate().GetFailures()),
	}
	for _, m := range list.GetMachines() {
		out.Machines = append(out.Machines, check.RolloutMachine{
			Machine: m.GetMachineId(), Wave: int(m.GetWave()), State: m.GetState().String(), Operation: m.GetOperationId(),
		})
	}
	h.Rollouts = append(h.Rollouts, out)
	return nil
}

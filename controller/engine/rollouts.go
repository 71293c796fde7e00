package engine

import (
	"context"
	"errors"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	rolloutstore "github.com/ingot-metal/ingot/controller/store/rollout"
)

// rolloutEvery is how often due rollouts are looked for. Nobody tells of operations that have ended: most belong to
// none.
const rolloutEvery = 250 * time.Millisecond

// CreateRollout begins a rollout, or returns the one that the same request has begun before.
func (e *Engine) CreateRollout(ctx context.Context, r rolloutstore.RolloutRequest) (*baremetalv1.Rollout, error) {
	ro, created, err := e.store.CreateRollout(ctx, r, e.clock.Now())
	if created {
		e.log.Info("rollout created", "rollout_id", ro.GetRolloutId(), "type", string(r.Work.Type), "machines",
			ro.GetTally().GetMachines(),
			"state", ro.GetState().String())
		e.publish()
	}
	return ro, err
}

// ActOnRollout takes an operator's action. What is left to do after it is done by the next look.
func (e *Engine) ActOnRollout(ctx context.Context, a rolloutstore.RolloutAct) (*baremetalv1.Rollout, error) {
	ro, move, err := e.store.ActOnRollout(ctx, a, e.clock.Now())
	if err != nil {
		return nil, err
	}
	if move != nil {
		e.log.Info("rollout acted on", "rollout_id", a.RolloutID, "action", string(a.Action), "state", string(move.State))
		e.publish()
	}
	return ro, nil
}

// advanceRollouts moves every rollout that is due. One that fails does not hold up the others.
func (e *Engine) advanceRollouts(ctx context.Context) error {
	due, err := e.store.DueRollouts(ctx, e.clock.Now())
	if err != nil {
		return err
	}
	var failed []error
	for _, id := range due {
		failed = append(failed, e.advanceRollout(ctx, id))
	}
	return errors.Join(failed...)
}

func (e *Engine) advanceRollout(ctx context.Context, id string) error {
	m, err := e.store.AdvanceRollout(ctx, id, e.clock.Now())
	if err != nil || m == nil {
		return err
	}
	if m.Moved {
		e.log.Info("rollout moved", "rollout_id", id, "state", string(m.State), "wave", m.Wave, "reason", m.Message)
	}
	if m.Changed {
		e.publish()
	}
	var failed []error
	for _, machineID := range m.Starting {
		failed = append(failed, e.startInRollout(ctx, id, machineID))
	}
	for _, operationID := range m.Cancel {
		failed = append(failed, e.cancelInRollout(ctx, operationID))
	}
	return errors.Join(failed...)
}

func (e *Engine) startInRollout(ctx context.Context, rolloutID, machineID string) error {
	op, err := e.store.StartRolloutMachine(ctx, rolloutID, machineID, e.clock.Now())
	if err != nil || op == nil {
		return err
	}
	e.log.Info("operation created", "operation_id", op.GetOperationId(), "machine_id", machineID, "type",
		op.GetType().String(),
		"rollout_id", rolloutID)
	e.publish()
	return nil
}

// cancelInRollout asks an operation to stop. One that has ended meanwhile, or is past stopping, goes its way.
func (e *Engine) cancelInRollout(ctx context.Context, operationID string) error {
	a, err := e.store.Cancel(ctx, operationID, "system", e.clock.Now())
	if err != nil {
		return err
	}
	e.afterApply(a)
	return nil
}

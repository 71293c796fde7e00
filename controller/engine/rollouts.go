package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/engine/uniquejob"
	rolloutstore "github.com/ingot-metal/ingot/controller/store/rollout"
)

// rolloutArgs ask for a step of a rollout that is due.
type rolloutArgs struct {
	RolloutID string `json:"rollout_id" river:"unique"`
}

// rolloutTime bounds the run of a rollout's job.
const rolloutTime = time.Minute

// Kind implements river.JobArgs.
func (rolloutArgs) Kind() string { return "rollout" }

// InsertOpts implements river.JobArgsWithInsertOpts.
func (rolloutArgs) InsertOpts() river.InsertOpts { return uniquejob.Options() }

type rolloutWorker struct {
	river.WorkerDefaults[rolloutArgs]
	e *Engine
}

// NextRetry implements river.Worker.
func (w *rolloutWorker) NextRetry(job *river.Job[rolloutArgs]) time.Time {
	return w.e.clock.Now().Add(retryDelay(job.Attempt))
}

// Timeout implements river.Worker: a wave starts many machines.
func (w *rolloutWorker) Timeout(*river.Job[rolloutArgs]) time.Duration { return rolloutTime }

// Work implements river.Worker.
func (w *rolloutWorker) Work(ctx context.Context, job *river.Job[rolloutArgs]) error {
	return w.e.advanceRollout(ctx, job.Args.RolloutID)
}

// sweepRollouts inserts a job for every rollout that is due. Nobody tells of operations that have ended: most belong to
// none.
func (e *Engine) sweepRollouts(ctx context.Context) error {
	due, err := e.store.Rollouts.DueRollouts(ctx, e.clock.Now())
	if err != nil || len(due) == 0 {
		return err
	}
	jobs := make([]river.InsertManyParams, 0, len(due))
	for _, id := range due {
		jobs = append(jobs, river.InsertManyParams{Args: rolloutArgs{RolloutID: id}})
	}
	if _, err := e.river.InsertMany(ctx, jobs); err != nil {
		return fmt.Errorf("enqueue due rollouts: %w", err)
	}
	return nil
}

// CreateRollout begins a rollout, or returns the one that the same request has begun before.
func (e *Engine) CreateRollout(ctx context.Context, r rolloutstore.RolloutRequest) (*baremetalv1.Rollout, error) {
	ro, created, err := e.store.Rollouts.CreateRollout(ctx, r, e.clock.Now())
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
	ro, move, err := e.store.Rollouts.ActOnRollout(ctx, a, e.clock.Now())
	if err != nil {
		return nil, err
	}
	if move != nil {
		e.log.Info("rollout acted on", "rollout_id", a.RolloutID, "action", string(a.Action), "state", string(move.State))
		e.publish()
	}
	return ro, nil
}

func (e *Engine) advanceRollout(ctx context.Context, id string) error {
	m, err := e.store.Rollouts.AdvanceRollout(ctx, id, e.clock.Now())
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
	op, err := e.store.Rollouts.StartRolloutMachine(ctx, rolloutID, machineID, e.clock.Now())
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
	began := e.clock.Now()
	a, err := e.store.Operations.Cancel(ctx, operationID, "system", began)
	if err != nil {
		return err
	}
	e.applied(ctx, a, began)
	return nil
}

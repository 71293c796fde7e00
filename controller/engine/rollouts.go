package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"

	"github.com/ingot-metal/ingot/controller/engine/uniquejob"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
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
	rollouts *rollouts
}

// NextRetry implements river.Worker.
func (w *rolloutWorker) NextRetry(job *river.Job[rolloutArgs]) time.Time {
	return w.rollouts.clock.Now().Add(retryDelay(job.Attempt))
}

// Timeout implements river.Worker: a wave starts many machines.
func (w *rolloutWorker) Timeout(*river.Job[rolloutArgs]) time.Duration { return rolloutTime }

// Work implements river.Worker.
func (w *rolloutWorker) Work(ctx context.Context, job *river.Job[rolloutArgs]) error {
	return w.rollouts.advance(ctx, job.Args.RolloutID)
}

// sweepRollouts inserts a job for every rollout that is due. The end of an operation wakes no
// rollout: most operations belong to none.
func (s *scheduler) sweepRollouts(ctx context.Context) error {
	due, err := s.rollouts.DueRollouts(ctx, s.clock.Now())
	if err != nil || len(due) == 0 {
		return err
	}
	jobs := make([]river.InsertManyParams, 0, len(due))
	for _, id := range due {
		jobs = append(jobs, river.InsertManyParams{Args: rolloutArgs{RolloutID: id}})
	}
	if _, err := s.river.InsertMany(ctx, jobs); err != nil {
		return fmt.Errorf("enqueue due rollouts: %w", err)
	}
	return nil
}

// rollouts moves rollouts that are due.
type rollouts struct {
	common
	rollouts   *rolloutstore.Store
	operations *operationstore.Store
	decisions  *decisions
	changes    *changes
}

func (r *rollouts) advance(ctx context.Context, id string) error {
	m, err := r.rollouts.AdvanceRollout(ctx, id, r.clock.Now())
	if err != nil || m == nil {
		return err
	}
	if m.Moved {
		r.log.Info("rollout moved", "rollout_id", id, "state", string(m.State), "wave", m.Wave, "reason", m.Message)
	}
	if m.Changed {
		r.changes.publish()
	}
	var failed []error
	for _, machineID := range m.Starting {
		failed = append(failed, r.start(ctx, id, machineID))
	}
	for _, operationID := range m.Cancel {
		failed = append(failed, r.cancel(ctx, operationID))
	}
	return errors.Join(failed...)
}

func (r *rollouts) start(ctx context.Context, rolloutID, machineID string) error {
	op, err := r.rollouts.StartRolloutMachine(ctx, rolloutID, machineID, r.clock.Now())
	if err != nil || op == nil {
		return err
	}
	r.log.Info("operation created", "operation_id", op.GetOperationId(), "machine_id", machineID, "type",
		op.GetType().String(),
		"rollout_id", rolloutID)
	r.changes.publish()
	return nil
}

// cancel asks an operation to stop. One that has ended meanwhile, or is past stopping, goes its way.
func (r *rollouts) cancel(ctx context.Context, operationID string) error {
	began := r.clock.Now()
	a, err := r.operations.Cancel(ctx, operationID, "system", began)
	if err != nil {
		return err
	}
	r.decisions.applied(ctx, a, began)
	return nil
}

package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

var fpInJob = failpoint.Register("engine.in-job")

// evaluateArgs asks somebody to look at an operation at a version. Every decision moves the version, so a stale job
// ends at once, and no job that a dead controller left running can swallow a newer one.
type evaluateArgs struct {
	OperationID string `json:"operation_id" river:"unique"`
	Version     int64  `json:"version" river:"unique"`
}

// Kind names the job.
func (evaluateArgs) Kind() string { return "operation_look" }

// InsertOpts makes one job per operation and version.
func (evaluateArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}, MaxAttempts: 5}
}

type evaluateWorker struct {
	river.WorkerDefaults[evaluateArgs]
	e *Engine
}

// Work looks once.
func (w *evaluateWorker) Work(ctx context.Context, job *river.Job[evaluateArgs]) error {
	version := job.Args.Version
	if job.Attempt > 1 {
		// The attempt before may have committed and failed before its commands left: look at whatever there is now.
		version = 0
	}
	return w.e.evaluate(ctx, job.Args.OperationID, version)
}

// evaluate has an operation looked at, if it still has the version; 0 is any.
func (e *Engine) evaluate(ctx context.Context, operationID string, version int64) error {
	if err := fpInJob.HitCtx(ctx); err != nil {
		return err
	}
	a, err := e.store.Decide(ctx, operationID, version, operation.Evaluate{}, e.clock.Now())
	if err != nil {
		return err
	}
	e.afterApply(a)
	return nil
}

func newRiver(e *Engine) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &evaluateWorker{e: e})
	if e.hooks != nil {
		river.AddWorker(workers, &deliverWorker{e: e})
	}
	c, err := river.NewClient(riverpgxv5.New(e.store.Pool()), &river.Config{
		ID:                          e.cfg.ControllerID,
		Logger:                      e.log.With("component", "river"),
		Queues:                      map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: e.cfg.Workers}},
		Workers:                     workers,
		JobTimeout:                  10 * time.Second,
		RescueStuckJobsAfter:        30 * time.Second,
		FetchCooldown:               5 * time.Millisecond,
		FetchPollInterval:           500 * time.Millisecond,
		CompletedJobRetentionPeriod: 10 * time.Minute,
	})
	if err != nil {
		return nil, fmt.Errorf("set up River: %w", err)
	}
	return c, nil
}

// sweepAtMost bounds the looks that wait because of sweeps. A look that has waited for longer than a claim lasts is
// claimed again, which makes the one that waits worth nothing: more of them than are done in that time would feed
// themselves.
const sweepAtMost = 200

// sweep finds operations whose time has come and has somebody look at each.
func (e *Engine) sweep(ctx context.Context) (int, error) {
	waiting, err := e.store.WaitingJobs(ctx, evaluateArgs{}.Kind(), sweepAtMost)
	if err != nil || waiting == sweepAtMost {
		return 0, err
	}
	due, err := e.store.ClaimDue(ctx, e.clock.Now(), int32(sweepAtMost-waiting))
	if err != nil || len(due) == 0 {
		return 0, err
	}
	jobs := make([]river.InsertManyParams, 0, len(due))
	for _, d := range due {
		jobs = append(jobs, river.InsertManyParams{Args: evaluateArgs{d.OperationID, d.Version}})
	}
	if _, err := e.river.InsertMany(ctx, jobs); err != nil {
		return 0, fmt.Errorf("enqueue looks: %w", err)
	}
	e.cfg.Observer.Rescued(len(due))
	return len(due), nil
}

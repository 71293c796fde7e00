package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/internal/task"

	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
)

// A controller evaluates the operations that it creates in the transaction that creates them, or as soon as that has
// committed, without waiting for River's notification and fetch. The job of such an operation is inserted as scheduled,
// which no worker fetches, and the next change deletes it. A job that is still scheduled after firstRunTime is made
// available to all controllers: its creator was killed, was busy, did not learn of its commit, or failed to evaluate
// the operation.

const (
	// firstRunTime is how long a new operation is left to the controller that created it. A second evaluation beside a
	// late first one changes nothing.
	firstRunTime = time.Second
	// firstRunsWaiting bounds the new operations that wait for a worker; the jobs of further ones become available.
	firstRunsWaiting = 4096
	// deleteJobsEvery is the time between two statements that delete jobs of evaluated operations which no change has
	// deleted. Two of them fit in firstRunTime.
	deleteJobsEvery = 400 * time.Millisecond
	// lastDeletionTime bounds the deletion when a controller stops.
	lastDeletionTime = 2 * time.Second
)

// firstRuns are the new operations of this controller.
type firstRuns struct {
	// running reports whether the workers take operations.
	running atomic.Bool
	waiting chan *operationstore.NewJob
}

func newFirstRuns() *firstRuns {
	return &firstRuns{waiting: make(chan *operationstore.NewJob, firstRunsWaiting)}
}

// enqueueCreated inserts the jobs of new operations in the transaction that creates them.
func (s *scheduler) enqueueCreated(ctx context.Context, tx pgx.Tx, created []*operationstore.NewJob) error {
	keys := make([]operationstore.JobKey, len(created))
	for i, j := range created {
		keys[i] = j.JobKey
	}
	jobs := operationJobs(keys)
	if s.first.running.Load() {
		for i := range jobs {
			jobs[i].InsertOpts = leftToCreator()
		}
	}
	inserted, err := s.river.InsertManyTx(ctx, tx, jobs)
	if err != nil {
		return fmt.Errorf("enqueue operations: %w", err)
	}
	for i, r := range inserted {
		if !r.UniqueSkippedAsDuplicate {
			created[i].ID = r.Job.ID
		}
	}
	return nil
}

// takeCreated hands operations that were created here to the workers. It does not wait.
func (s *scheduler) takeCreated(created []*operationstore.NewJob) {
	if !s.first.running.Load() {
		return
	}
	for _, j := range created {
		if j.Decided {
			s.operations.First.Done(j.ID)
			continue
		}
		select {
		case s.first.waiting <- j:
		default: // its job becomes available
		}
	}
}

// runFirst evaluates new operations until ctx ends. Then it deletes the jobs of those that were evaluated, which the
// next controller would run for nothing.
func (s *scheduler) runFirst(ctx context.Context) error {
	g, _ := task.New(ctx) // no worker returns an error, so that none ends the others
	for range s.cfg.Workers {
		g.Go("first evaluations", s.evaluateCreated)
	}
	g.Go("delete jobs", func(ctx context.Context) error {
		return s.every(ctx, deleteJobsEvery, "delete jobs of evaluated operations", s.operations.First.DeleteJobs)
	})
	s.first.running.Store(true)
	err := g.Wait()
	s.first.running.Store(false)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastDeletionTime)
	defer cancel()
	if deleteErr := s.operations.First.DeleteJobs(last); deleteErr != nil {
		s.log.Warn("jobs of evaluated operations are left to other controllers", "error", deleteErr.Error())
	}
	return err
}

func (s *scheduler) evaluateCreated(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case j := <-s.first.waiting:
			limited, cancel := context.WithTimeout(ctx, jobTime)
			err := s.evaluate(limited, j.OperationID, 1)
			cancel()
			if err != nil {
				s.log.Debug("a new operation was not evaluated; its job becomes available", "operation_id", j.OperationID,
					"error", err.Error())
				continue
			}
			s.operations.First.Done(j.ID)
		}
	}
}

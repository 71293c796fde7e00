package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/engine/delivery"
	"github.com/ingot-metal/ingot/controller/engine/spans"
	"github.com/ingot-metal/ingot/controller/engine/uniquejob"
	"github.com/ingot-metal/ingot/controller/store"
	jobstore "github.com/ingot-metal/ingot/controller/store/job"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	rolloutstore "github.com/ingot-metal/ingot/controller/store/rollout"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

// Jobs run what is due; when it is due stands in our own tables. A job is unique among those that have not finished, so
// that inserting it again does nothing, and a job that is lost is inserted again by the next sweep.

var fpInJob = failpoint.Register("engine.in-job")

const (
	// jobTime bounds the run of a job.
	jobTime = 10 * time.Second
	// jobLease is how long a controller's running jobs count as worked on after a renewal.
	jobLease = 2 * time.Second
	// jobLeaseEvery is the time between two renewals.
	jobLeaseEvery = 500 * time.Millisecond
	// jobPoll is how often River asks for jobs of which no notification came.
	jobPoll = 50 * time.Millisecond
	// mostRetryDelay bounds the delay of a failing job.
	mostRetryDelay = 30 * time.Second
)

// retryDelay is the delay after so many failed attempts.
func retryDelay(attempts int) time.Duration {
	return min(time.Second<<min(attempts, 6), mostRetryDelay)
}

// operationArgs ask for the evaluation of an operation that is due.
type operationArgs struct {
	MachineID   string `json:"target_id" river:"unique"`
	RequestID   string `json:"request_id" river:"unique"`
	OperationID string `json:"operation_id"`
}

// Kind implements river.JobArgs.
func (operationArgs) Kind() string { return operationquery.JobKind }

// InsertOpts implements river.JobArgsWithInsertOpts.
func (operationArgs) InsertOpts() river.InsertOpts { return uniquejob.Options() }

type operationWorker struct {
	river.WorkerDefaults[operationArgs]
	scheduler *scheduler
}

// NextRetry implements river.Worker.
func (w *operationWorker) NextRetry(job *river.Job[operationArgs]) time.Time {
	return w.scheduler.clock.Now().Add(retryDelay(job.Attempt))
}

// Work evaluates the operation if it is due; it implements river.Worker. Another run of it, or one that ends anywhere,
// changes nothing more.
func (w *operationWorker) Work(ctx context.Context, job *river.Job[operationArgs]) error {
	return w.scheduler.evaluate(ctx, job.Args.OperationID, job.Attempt)
}

// scheduler turns what is due into jobs of River, and evaluates operations.
type scheduler struct {
	common
	jobs       *jobstore.Store
	operations *operationstore.Store
	queries    *operationquery.Store
	rollouts   *rolloutstore.Store
	sessions   *sessionstore.Store
	decisions  *decisions
	spans      *spans.Recorder
	river      *river.Client[pgx.Tx]
	// webhooks sends events to other systems; nil sends none.
	webhooks *delivery.Publisher
	first    *firstRuns
}

// evaluate brings an operation's time to it, for the attempt-th run of its job.
func (s *scheduler) evaluate(ctx context.Context, operationID string, attempt int) error {
	if err := fpInJob.HitCtx(ctx); err != nil {
		return err
	}
	ctx, ended := s.spans.Job(ctx, operationID, attempt)
	_, err := s.decisions.handle(ctx, operationID, operation.Due{})
	ended(err)
	return err
}

// openRiver makes River's client and what it works with.
func (s *scheduler) openRiver(st *store.Store, rollouts *rollouts, retention *retention, changed func() <-chan struct{},
) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, &operationWorker{scheduler: s})
	river.AddWorker(workers, &rolloutWorker{rollouts: rollouts})
	river.AddWorker(workers, &retentionWorker{retention: retention})
	if s.cfg.Webhooks != nil {
		s.webhooks = delivery.New(*s.cfg.Webhooks, delivery.Parts{
			Store: st.Webhooks, Clock: s.clock, Log: s.log, Changed: changed, Sent: s.cfg.Observer.Sent,
		}, workers)
	}
	c, err := river.NewClient(riverpgxv5.New(st.DB.Pool()), &river.Config{
		ID:     s.cfg.ControllerID,
		Logger: s.log.With("component", "river"),
		Queues: map[string]river.QueueConfig{
			uniquejob.Queue: {MaxWorkers: s.cfg.Workers, FetchPollInterval: jobPoll},
		},
		Workers:                     workers,
		Hooks:                       []rivertype.Hook{&databaseTime{}},
		PeriodicJobs:                s.periodicJobs(),
		JobTimeout:                  jobTime,
		FetchCooldown:               5 * time.Millisecond,
		FetchPollInterval:           500 * time.Millisecond,
		RescueStuckJobsAfter:        notByRiver,
		CompletedJobRetentionPeriod: -1, // as removeJobs has it
		CancelledJobRetentionPeriod: -1,
		DiscardedJobRetentionPeriod: -1,
		// The one place at which River takes a clock, of all that it writes.
		Test: river.TestConfig{Time: jobClock{s.clock}},
	})
	if err != nil {
		return fmt.Errorf("set up River: %w", err)
	}
	if s.webhooks != nil {
		s.webhooks.Use(c)
	}
	s.river = c
	return nil
}

func operationJobs(keys []operationstore.JobKey) []river.InsertManyParams {
	jobs := make([]river.InsertManyParams, 0, len(keys))
	for _, k := range keys {
		jobs = append(jobs, river.InsertManyParams{
			Args: operationArgs{MachineID: k.MachineID, RequestID: k.RequestID, OperationID: k.OperationID},
		})
	}
	return jobs
}

const (
	// sweepEvery is how often what is due is turned into jobs.
	sweepEvery = 250 * time.Millisecond
	// sweepPage bounds the jobs that one sweep inserts of a kind.
	sweepPage = 1000
)

// sweep ends the sessions of controllers that are gone, makes their jobs available again, and inserts a job for
// everything that is due and has none.
func (s *scheduler) sweep(ctx context.Context) error {
	now := s.clock.Now()
	_, rescueErr := s.rescueJobs(ctx)
	_, operationErr := s.sweepOperations(ctx)
	return errors.Join(s.sessions.EndSessionsOf(ctx, "", now), rescueErr, operationErr, s.sweepRollouts(ctx))
}

func (s *scheduler) rescueJobs(ctx context.Context) (int64, error) {
	n, err := s.jobs.RescueJobs(ctx)
	if n > 0 {
		s.cfg.Observer.Rescued(int(n))
		s.log.Info("jobs of controllers that are gone are available again", "jobs", n)
	}
	left, leftErr := s.jobs.ReleaseScheduledJobs(ctx, operationquery.JobKind, firstRunTime)
	if left > 0 {
		s.log.Info("jobs of operations that their creators did not evaluate are available", "jobs", left)
	}
	return n + left, errors.Join(err, leftErr)
}

// tidyJobsEvery is how often jobs are searched that no worker would fetch.
const tidyJobsEvery = 15 * time.Second

// tidyJobs removes the jobs of older versions, whose last controller may have gone, and hastens those that wait by a
// clock that was ahead.
func (s *scheduler) tidyJobs(ctx context.Context) error {
	old, err := s.jobs.RemoveOldJobs(ctx)
	if old > 0 {
		s.log.Info("jobs of an older version are removed", "jobs", old)
	}
	late, lateErr := s.jobs.HastenJobs(ctx, []string{operationArgs{}.Kind(), rolloutArgs{}.Kind()}, 2*mostRetryDelay)
	if late > 0 {
		s.log.Info("jobs that would wait by a clock that was ahead are available", "jobs", late)
	}
	return errors.Join(err, lateErr, s.removeJobs(ctx))
}

func (s *scheduler) sweepOperations(ctx context.Context) (int, error) {
	due, err := s.queries.DueOperations(ctx, s.clock.Now(), sweepPage)
	if err != nil || len(due) == 0 {
		return 0, err
	}
	if _, err := s.river.InsertMany(ctx, operationJobs(due)); err != nil {
		return 0, fmt.Errorf("enqueue due operations: %w", err)
	}
	return len(due), nil
}

// mostUnwritten is how long the database may have stored nothing of a controller that counts as ready.
const mostUnwritten = 4 * time.Second

// Every time of a job is the database's. What River would take from this machine's wall clock is set here: the time to
// which a job is put off, the time of a retry, and which jobs count as hung or as old.

// databaseTime has the database write when a job was made available. River's driver would write the time of this
// machine, whose clock may be ahead of the database's: no controller would fetch the job until then.
type databaseTime struct{ river.HookDefaults }

var _ rivertype.HookInsertBegin = (*databaseTime)(nil)

// InsertBegin implements rivertype.HookInsertBegin. The driver's statements read the zero time as now().
func (*databaseTime) InsertBegin(_ context.Context, job *rivertype.JobInsertParams) error {
	job.CreatedAt = &time.Time{}
	if job.State == rivertype.JobStateAvailable || job.Kind == operationquery.JobKind {
		job.ScheduledAt = &time.Time{}
	}
	return nil
}

// leftToCreator are the options of a job that the controller which created its operation works on first. Any time makes
// the job scheduled; the database writes its own.
func leftToCreator() *river.InsertOpts { return &river.InsertOpts{ScheduledAt: time.Unix(1, 0)} }

// jobClock is the controller's clock, which follows the database's, as River asks for it.
type jobClock struct{ clock.Clock }

// NowOrNil implements rivertype.TimeGenerator: statements use the database's own time.
func (jobClock) NowOrNil() *time.Time { return nil }

const (
	// notByRiver is further back than any job: River's own search for hung jobs uses this machine's wall clock.
	notByRiver = 100 * 365 * 24 * time.Hour
	// hungAfter is how long after its time a job still counts as worked on.
	hungAfter = 20 * time.Second
	// keepJobs is how long finished jobs stay in their table.
	keepJobs = 15 * time.Second
)

// jobTimes are how long the jobs of a kind may run. A kind without an entry has jobTime.
func (s *scheduler) jobTimes() map[string]time.Duration {
	out := map[string]time.Duration{rolloutArgs{}.Kind(): rolloutTime, retentionArgs{}.Kind(): retentionEvery}
	if s.webhooks != nil {
		out[delivery.JobKind] = s.webhooks.JobTime()
	}
	return out
}

// removeJobs bounds how many finished jobs are kept, and frees those that hang.
func (s *scheduler) removeJobs(ctx context.Context) error {
	if _, err := s.jobs.RemoveFinishedJobs(ctx, keepJobs); err != nil {
		return err
	}
	hung, err := s.jobs.RescueHungJobs(ctx, s.jobTimes(), jobTime, hungAfter)
	if hung > 0 {
		s.cfg.Observer.Rescued(int(hung))
		s.log.Warn("jobs that ran for longer than their time are available again", "jobs", hung)
	}
	return err
}

// runRiver starts River and stops it with ctx. A database that is away at the start is waited for.
func (s *scheduler) runRiver(ctx context.Context) error {
	for {
		err := s.river.Start(context.WithoutCancel(ctx))
		if err == nil {
			break
		}
		s.log.Warn("River did not start; trying again", "error", err.Error())
		select {
		case <-ctx.Done():
			return nil
		case <-s.clock.After(time.Second):
		}
	}
	<-ctx.Done()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := s.river.StopAndCancel(stop); err != nil {
		s.log.Warn("River did not stop in time; its jobs will be rescued", "error", err.Error())
	}
	return nil
}

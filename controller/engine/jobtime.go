package engine

import (
	"context"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/ingot-metal/ingot/controller/engine/delivery"
	"github.com/ingot-metal/ingot/internal/clock"
)

// Every time of a job is the database's. What River would take from this machine's wall clock is set here: the time to
// which a job is put off, the time of a retry, and which jobs count as hung or as old.

// databaseTime has the database write when a job was made available. River's driver would write the time of this
// machine, whose clock may be ahead of the database's: no controller would fetch the job until then.
type databaseTime struct{ river.HookDefaults }

var _ rivertype.HookInsertBegin = (*databaseTime)(nil)

// InsertBegin implements rivertype.HookInsertBegin. The driver's statements read the zero time as now().
func (*databaseTime) InsertBegin(_ context.Context, job *rivertype.JobInsertParams) error {
	job.CreatedAt = &time.Time{}
	if job.State == rivertype.JobStateAvailable {
		job.ScheduledAt = &time.Time{}
	}
	return nil
}

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
func (e *Engine) jobTimes() map[string]time.Duration {
	out := map[string]time.Duration{rolloutArgs{}.Kind(): rolloutTime, retentionArgs{}.Kind(): retentionEvery}
	if e.webhooks != nil {
		out[delivery.JobKind] = e.webhooks.JobTime()
	}
	return out
}

// removeJobs bounds how many finished jobs are kept, and frees those that hang.
func (e *Engine) removeJobs(ctx context.Context) error {
	if _, err := e.store.RemoveFinishedJobs(ctx, keepJobs); err != nil {
		return err
	}
	hung, err := e.store.RescueHungJobs(ctx, e.jobTimes(), jobTime, hungAfter)
	if hung > 0 {
		e.cfg.Observer.Rescued(int(hung))
		e.log.Warn("jobs that ran for longer than their time are available again", "jobs", hung)
	}
	return err
}

// Package uniquejob has the options of jobs of which one at a time is enough.
package uniquejob

import (
	"math"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
)

// Queue is River's queue of all jobs but webhook deliveries. A controller of an older version does not work on it: it
// would fail jobs of kinds that it does not know.
const Queue = "work"

// unfinished are the states of a job that keep another one of its key out.
var unfinished = []rivertype.JobState{
	rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable, rivertype.JobStateRunning,
	rivertype.JobStateScheduled,
}

// Options are those of a job that is unique by the marked arguments while it has not finished. It is tried for ever.
func Options() river.InsertOpts {
	return river.InsertOpts{
		Queue:       Queue,
		MaxAttempts: math.MaxInt16,
		UniqueOpts:  river.UniqueOpts{ByArgs: true, ByState: unfinished},
	}
}

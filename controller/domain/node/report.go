package node

import (
	"fmt"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// The installation statuses of a report.
const (
	Started  = "started"
	Progress = "progress"
	Complete = "complete"
	Failed   = "failed"
)

// Statuses lists every status.
func Statuses() []string { return []string{Started, Progress, Complete, Failed} }

// Install is how a node's installation stands.
type Install struct {
	State State
	// Attempts that have failed since the counter was reset.
	Attempts  int
	LastError string
	// Percent of the attempt that runs, 0 to 100.
	Percent int
}

// Report is an installer's report of its work. An empty status is not about an installation.
type Report struct {
	Status  string
	Percent int
	Error   string
}

// Decide returns the state of an installation after a report. A report that does not fit the node's state is refused
// and changes nothing.
func Decide(now Install, r Report) (Install, *fleet.Refusal) {
	next := now
	switch {
	case r.Status == Started && now.State == Pending:
		next = Install{State: Installing}
	case r.Status == Started && now.State == Installing:
		next.Percent = 0
	case r.Status == Progress && now.State == Installing:
		next.Percent = r.Percent
	case r.Status == Complete && now.State == Installing:
		next = Install{State: Installed, Percent: 100}
	case r.Status == Failed && now.State == Installing:
		next = FailedAttempt(now, r.Error)
	default:
		return now, &fleet.Refusal{Reason: "REPORT_REFUSED",
			Message: fmt.Sprintf("an installation cannot be %q of a node that is %s", r.Status, Name(now.State))}
	}
	return next, nil
}

// FailedAttempt counts a failed attempt: after the last one the installation has failed, before it stays as it is.
func FailedAttempt(now Install, why string) Install {
	next := now
	next.Attempts++
	next.LastError = why
	if next.Attempts >= MaxAttempts {
		next.State = InstallFailed
	}
	return next
}

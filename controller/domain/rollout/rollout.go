// Package rollout decides how one piece of work goes over many machines: in which waves, which machine begins next, and
// when too many have failed to go on.
//
// A wave begins when the one before it has ended and rested. Within it at most so many machines are under work at a
// time, and at most so many of each failure domain. When a gate closes nothing further begins: the touched machines are
// then those that have ended and those under way.
//
// It is pure: the stored state goes in, the state to store comes out. A decision may be made any number of times. Under
// the rollout's lock it claims machines before their operations are made, so that a claimed machine counts as under way
// for later decisions.
package rollout

import "time"

// State of a rollout.
type State string

// The states. Succeeded, CompletedWithFailures, Failed and Canceled have no exit.
const (
	AwaitingApproval State = "AWAITING_APPROVAL"
	Running          State = "RUNNING"
	Paused           State = "PAUSED"
	// Stopping starts no more work and waits for the rest.
	Stopping  State = "STOPPING"
	Succeeded State = "SUCCEEDED"
	// CompletedWithFailures has ended on every machine, and not all of them were done.
	CompletedWithFailures State = "COMPLETED_WITH_FAILURES"
	Failed                State = "FAILED"
	Canceled              State = "CANCELED"
)

// States are all of them.
func States() []State {
	return []State{AwaitingApproval, Running, Paused, Stopping, Succeeded, CompletedWithFailures, Failed, Canceled}
}

// Ended reports whether nothing happens to the rollout any more.
func (s State) Ended() bool {
	return s == Succeeded || s == CompletedWithFailures || s == Failed || s == Canceled
}

// Cause is who has paused or stopped a rollout.
type Cause string

// The causes.
const (
	Operator Cause = "OPERATOR"
	ByGate   Cause = "GATE"
)

// The things that a rollout waits for, as in Rollout.wait_reason.
const (
	ForApproval      = "WAITING_FOR_APPROVAL"
	ForMachines      = "WAITING_FOR_MACHINES"
	ForBudget        = "WAITING_FOR_BUDGET"
	Soaking          = "SOAKING"
	Frozen           = "FLEET_FROZEN"
	PausedByOperator = "PAUSED_BY_OPERATOR"
	PausedByGate     = "PAUSED_BY_GATE"
)

// Gate closes when so many machines have failed. Each number is a gate of its own, and 0 is none.
type Gate struct{ Failures, Percent int }

// Spec is how carefully a rollout goes.
type Spec struct {
	// Canary is the size of the first wave; 0: no wave of its own.
	Canary int
	// Percents are how far the waves after it reach; a last one of 100 is understood.
	Percents []int
	// MaxInFlight bounds the machines under work at a time; 0: as many as the wave has.
	MaxInFlight int
	// MaxPerDomain bounds them in each failure domain; 0: machines are not spread.
	MaxPerDomain int
	WaveGate     Gate
	TotalGate    Gate
	Soak         time.Duration
	// CancelOnGate cancels the rest where else it would wait for a person.
	CancelOnGate bool
}

// Tally counts machines by state. Running are those that are claimed, too.
type Tally struct{ Machines, Pending, Running, Succeeded, Failed, Skipped, Canceled int }

// Add is the sum of both.
func (t Tally) Add(o Tally) Tally {
	return Tally{
		t.Machines + o.Machines, t.Pending + o.Pending, t.Running + o.Running, t.Succeeded + o.Succeeded,
		t.Failed + o.Failed, t.Skipped + o.Skipped, t.Canceled + o.Canceled,
	}
}

// Sum is a tally in the words of every view. Machines that were refused or canceled are in none of the three.
type Sum struct{ Done, Failed, Left int }

// Sum returns the counts that the API, the command line and the console show.
func (t Tally) Sum() Sum {
	return Sum{Done: t.Succeeded, Failed: t.Failed, Left: t.Pending + t.Running}
}

// EndState returns the state of a rollout that has ended on every machine. The worst machine decides: one that failed,
// was canceled, or was skipped at its turn is enough that the rollout has not succeeded. A closed gate is worse than
// any of them. The refused machines, which the preview left out, count for nothing.
func EndState(t Tally, refused int, gateClosed bool) State {
	switch {
	case gateClosed:
		return Failed
	case t.Failed > 0 || t.Canceled > 0 || t.Skipped > refused:
		return CompletedWithFailures
	}
	return Succeeded
}

// Machine is one that can be worked on.
type Machine struct{ ID, Domain string }

// World is the stored state of a rollout.
type World struct {
	State State
	Cause Cause
	// Wave is the one under way, from 1, of Waves.
	Wave, Waves int
	SoakUntil   time.Time
	// Acked failures count for no gate any more; AckedWave are those of the wave under way.
	Acked, AckedWave int
	// Total is over all waves, InWave over that under way.
	Total, InWave Tally
	// Refused are the skipped machines of Total that the preview left out: they are in no wave.
	Refused int
	// InDomain are the machines under way by domain.
	InDomain map[string]int
	// HeldByBudget are those of them whose operations wait for a budget.
	HeldByBudget int
	// Pending are those of the wave under way, in their order.
	Pending []Machine
	// FleetFrozen: nothing may begin on any machine.
	FleetFrozen bool
}

// Decision is the state to store.
type Decision struct {
	State            State
	Cause            Cause
	Wave             int
	SoakUntil        time.Time
	Acked, AckedWave int
	// Start are the machines to begin on.
	Start []string
	// CancelPending ends those whose turn has not come.
	CancelPending bool
	// Wait names what it waits for; empty when it has ended, or goes on at once.
	Wait    string
	Message string
	// Next is when to look again; zero while only a person can move it.
	Next time.Time
}

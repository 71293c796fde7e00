package workflow

import "slices"

// Kind is the purpose of a workflow, as in the API.
type Kind string

// The kinds.
const (
	Onboarding   Kind = "ONBOARDING"
	Decommission Kind = "DECOMMISSION"
)

// Mode is the result of a decommission, as in the API; an onboarding has none.
type Mode string

// The modes.
const (
	NoMode           Mode = ""
	SoftReset        Mode = "SOFT_RESET"
	Reimage          Mode = "REIMAGE"
	FullDecommission Mode = "FULL_DECOMMISSION"
	StorageCleanup   Mode = "STORAGE_CLEANUP"
)

// Modes of a kind, in the order in which they destroy more.
func Modes(k Kind) []Mode {
	if k == Onboarding {
		return []Mode{NoMode}
	}
	return []Mode{SoftReset, Reimage, StorageCleanup, FullDecommission}
}

// Fits reports whether workflows of the kind have the mode.
func Fits(k Kind, m Mode) bool {
	return (k == Onboarding || k == Decommission) && slices.Contains(Modes(k), m)
}

// Destructive reports whether the workflow loses the data of the machine's disks.
func Destructive(k Kind, m Mode) bool { return m != SoftReset }

// State is the state of a workflow, as in the API.
type State string

// The states.
const (
	Pending         State = "PENDING"
	Running         State = "RUNNING"
	Completed       State = "COMPLETED"
	FailedRetryable State = "FAILED_RETRYABLE"
	FailedManual    State = "FAILED_MANUAL_INTERVENTION"
	Cancelled       State = "CANCELLED"
	Compensating    State = "COMPENSATING"
	Reconciled      State = "RECONCILED"
)

// States lists every state.
func States() []State {
	return []State{Pending, Running, Completed, FailedRetryable, FailedManual, Cancelled, Compensating, Reconciled}
}

// Transitions has the states that may follow each state.
var Transitions = map[State][]State{
	Pending:         {Running, FailedRetryable, FailedManual, Compensating},
	Running:         {Completed, Reconciled, FailedRetryable, FailedManual, Compensating},
	FailedRetryable: {Pending, FailedManual, Compensating},
	FailedManual:    {Pending, Compensating},
	Cancelled:       {Pending, Compensating},
	Compensating:    {Cancelled, FailedManual, Pending},
	Completed:       nil,
	Reconciled:      nil,
}

// Terminal reports whether the workflow never changes again.
func Terminal(s State) bool { return s == Completed || s == Reconciled }

// Holds reports whether the workflow still has a claim on its machine: no other may begin.
func Holds(s State) bool { return !Terminal(s) && s != Cancelled }

// Working reports whether an attempt is under way.
func Working(s State) bool { return s == Pending || s == Running || s == Compensating }

// Workflow is the stored state of one workflow.
type Workflow struct {
	ID, MachineID string
	// Provider of the machine: it decides how some stages are done.
	Provider string
	Kind     Kind
	Mode     Mode
	State    State
	// Stage is the one that the attempt is at, or was when it ended; StageIdx its place in the plan, from 0.
	Stage    string
	StageIdx int
	// Plan names the stages of this workflow, in order. It does not change.
	Plan []string
	// Attempts counts the operations, the running one included.
	Attempts int
	// Failures counts the failed attempts by stage, since a clean start, a rerun, or progress past the stage. Bound is how
	// many of them end the retries; 0 means DefaultBound.
	Failures        map[string]int
	Bound           int
	FailureClass    Class
	Reason, Message string
	// LastAction is the one that began the current attempt; empty for the first.
	LastAction Action
	// Adopted is set when a stage was taken as done by an observation.
	Adopted bool
	// Unclean reports whether a stage was begun that changes the machine, and the workflow has not completed since.
	Unclean bool
	// Evidence is what the stages have proved so far, in all attempts since the last clean start.
	Evidence map[string]string
	// OperationID is the current attempt's, or the last one's.
	OperationID string
}

// mayMove panics on a transition that the table does not have: such a decision is a bug, and must not be stored.
func mayMove(from, to State) {
	if from != to && !slices.Contains(Transitions[from], to) {
		panic("workflow: no transition " + string(from) + " → " + string(to))
	}
}

func (w *Workflow) move(to State) {
	mayMove(w.State, to)
	w.State = to
}

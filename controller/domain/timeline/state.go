package timeline

import "time"

// State is what a machine was after an entry. Values are those of the database's columns.
type State struct {
	// Exists is true once the machine is known.
	Exists bool
	// Machine is the machine's own columns by name, without empty ones. "spec" is a digest of spec and labels.
	Machine map[string]string
	// OperationsBefore is how many operations had finished before the history began.
	OperationsBefore string
	// Conditions by type, the others by id.
	Conditions map[string]ConditionState
	Operations map[string]OperationState
	Commands   map[string]CommandState
	Workflows  map[string]WorkflowState
	// Audits are the rows of the audit log, Moves those of the node's log, by number.
	Audits map[string]AuditRow
	Moves  map[string]MoveState
	// MovesBefore is how many moves were in the node's log when it began to be held against the history, LastMove their
	// last number.
	MovesBefore, LastMove string
	// Repeated are the numbers of audit rows that were chained more than once.
	Repeated []string
	// Restores are the points at which the database went back, in order.
	Restores []Restore
	// Last is the last entry that was applied, without its fields.
	Last Entry
}

// ConditionState is one condition.
type ConditionState struct {
	Status, Reason, Message string
	// Since is the time of the entry that set the status.
	Since time.Time
	// Unknown is set when the condition's witness was silent.
	Unknown bool `json:",omitempty"`
}

// OperationState is one operation.
type OperationState struct {
	Type, Phase, Stage, WaitReason, Error, Evidence string
	CancelRequested                                 bool
	// Steps by name, those that have begun.
	Steps map[string]StepState
}

// StepState is one step that has begun.
type StepState struct {
	State, Retries, Evidence string
	// Message is that of its check, or its failure; Untold where it was written down before histories kept messages.
	Message string
}

// Untold is the message of a step that the history does not know.
const Untold = "\x00"

// CommandState is one attempt of one step.
type CommandState struct {
	OperationID, Kind, Step, Attempt, Executor  string
	State, Outcome, Reason, Evidence, SettledBy string
	Claimed                                     bool
}

// WorkflowState is one onboarding or decommission.
type WorkflowState struct {
	Kind, Mode, State, Stage, Plan string
	Attempt, Repeats, OperationID  string
	FailureClass, Reason, Message  string
	Observed, Action, Evidence     string
	Adopted, Ended                 bool
}

// MoveState is one move of the node's state.
type MoveState struct{ From, To, By, User string }

// AuditRow is what the chain knows of a row of the audit log.
type AuditRow struct {
	Actor, OperationID, Verb, Target, RequestID string
	// At is microseconds since 1970.
	At string
	// Digest is lower hex of the SHA-256 of salt and data.
	Digest string
	// ScrubThrough is set where the row announces that data is emptied: of older rows of its target up to this number,
	// and of the verb ScrubVerb, or of every verb where that is empty.
	ScrubThrough, ScrubVerb string
}

// Restore is the point in a history at which the database went back to an older copy.
type Restore struct {
	// Seq is the entry that was written then. The copy had the entries before it.
	Seq int64
	// Time is that of the entry, Through that of the newest entry in the copy, of all histories.
	Time, Through time.Time
}

// NewState is the state before the first entry.
func NewState() *State {
	return &State{
		Machine: map[string]string{}, Conditions: map[string]ConditionState{}, Operations: map[string]OperationState{},
		Commands: map[string]CommandState{}, Workflows: map[string]WorkflowState{}, Audits: map[string]AuditRow{},
		Moves: map[string]MoveState{},
	}
}

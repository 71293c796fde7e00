package operation

import "slices"

// PhaseTable has the phases that may follow each phase.
var PhaseTable = map[Phase][]Phase{
	Pending:   {Running, Canceled, Failed},
	Running:   {Succeeded, Failed, Canceled},
	Succeeded: nil,
	Failed:    nil,
	Canceled:  nil,
}

// StepTable has the states that may follow each step state.
var StepTable = map[StepState][]StepState{
	StepWaiting:   {StepRunning},
	StepRunning:   {StepSucceeded, StepFailed},
	StepSucceeded: nil,
	StepFailed:    nil,
}

// CommandTable has the states that may follow each command state. UNKNOWN is the only final state that can still move:
// a late result, proof or an operator settles it.
var CommandTable = map[CommandState][]CommandState{
	Queued:          {Sent, CommandCanceled, Expired},
	Sent:            {Acked, Granted, Done, CommandCanceled, Expired, Unknown},
	Acked:           {Granted, Done, CommandCanceled, Expired, Unknown},
	Granted:         {Done, Unknown},
	Unknown:         {Done},
	Done:            nil,
	CommandCanceled: nil,
	Expired:         nil,
}

// IsTerminal reports whether an operation in this phase never changes again.
func IsTerminal(p Phase) bool { return len(PhaseTable[p]) == 0 }

// IsFinalCommand reports whether no event of the operation's life moves the command any more.
func IsFinalCommand(s CommandState) bool { return s == Unknown || len(CommandTable[s]) == 0 }

// MayMove panics on a transition that its table does not have: such a decision is a bug, and the transaction that it
// would have been part of must not commit.
func MayMove[S ~string](table map[S][]S, from, to S) {
	if from != to && !slices.Contains(table[from], to) {
		panic("operation: no transition " + string(from) + " → " + string(to))
	}
}

// Package decider decides how an operation moves. It is pure: from the stored operation, the observed world and one
// event, Decide returns what to store next and whom to notify. The store applies the answer in one transaction guarded
// by the operation's version.
//
// # How a decision is made
//
// A question is a pure function: it takes a situation.Situation and returns a verdict. A verdict is a list of moves, a
// closed set of small values, and the question that follows them, if one does. The draft applies the moves to copies of
// the operation, the command and the world, holds them against the state tables, and asks the next question of the
// situation that results. No question sees a draft.
//
// # What is authoritative
//
// The row of the operation, its steps and its commands. Agents, jobs and timers only bring events; an event that comes
// twice, late, or to a finished operation changes nothing.
//
// # State model
//
// Three small machines, each a table of package operation: the operation's phase, the state of a step, and the state of
// a command. A command is one attempt of one step. A further attempt is a new command and is made only when the one
// before is settled, so attempts never overlap.
//
// # Failure handling
//
// Every changing command needs a grant. A command that was never granted provably never acted: it may be canceled,
// expired or replaced. A granted command that ends without a result is UNKNOWN, the operation fails with
// OUTCOME_UNKNOWN, and the machine is fenced by that command until a late result, proof, or an operator settles it.
// A success is a claim until the world confirms it.
package decider

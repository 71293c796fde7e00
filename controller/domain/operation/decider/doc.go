// Package decider decides how an operation moves. It is pure: given what is stored, what may be observed of the world
// right now, and one event, Decide answers what to store next and whom to tell. The store applies the answer in one
// transaction guarded by the operation's version.
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

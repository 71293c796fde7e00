// Package operation is what an operation is made of: its steps, its commands, the states of all three, the events that
// move it, and the decision that package decider makes of one. It also says what settles a command that is UNKNOWN, and
// what proves that a system has come up.
package operation

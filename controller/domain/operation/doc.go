// Package operation has the parts of an operation: its steps, its commands, the states of all three, the events that
// move it, and the decision that package decider makes of one. It also has the rules that settle an UNKNOWN command,
// and those that prove that a system has come up.
package operation

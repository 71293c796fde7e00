// Package script runs a catalogued script on a machine over SSH. It is done when the machine reports the script's exit
// code.
//
// The machine itself records the run under the command's id (package agent/provider/ssh). After a crash of the agent
// the state is read from it: never started, running, or ended with its code. Resume never starts a run; it follows one
// that is under way to its end, because its grant was used up.
package script

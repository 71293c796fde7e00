// Package script runs a catalogued script on a machine over SSH. It is done when the machine says with which exit code
// the script has ended.
//
// The machine itself remembers the run under the command's id (package agent/provider/ssh), so that the three answers
// after a crash of the agent are read, not guessed: never started, running, or ended with its code. A run is never
// started by Resume; one that is under way is followed to its end there, because the leave to start it was used up.
package script

// Package engine moves operations: it brings events to the store's Decide, sends the commands of committed decisions,
// and evaluates operations that are due when no call comes.
//
// # Parts
//
// Engine composes and runs the parts. Requests carries out what clients ask for, Agents takes what agents send, and
// decisions commits what either of them brings. commandSender and peers reach agents here and on other controllers.
// scheduler, sessionScan, repairs and budgetSlots work without a call.
//
// # What is authoritative
//
// Postgres. River's jobs, and the list of what was created here, mean "evaluate now" and may be lost, doubled or late;
// operations.wake_at is when an operation must be evaluated in any case. No goroutine waits for a machine.
//
// # State model
//
// The engine has none of its own beyond the live sessions, the controller's lease, acknowledgements that wait a
// moment to be written in one go, and which operations the commands that it sent are of, which never changes.
//
// # Failure handling
//
// Every method may be repeated. A controller that cannot renew its lease in Postgres stops sending commands and grants
// at half of the lease, by its monotonic clock, and closes its sessions at the end of it.
package engine

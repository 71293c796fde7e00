// Package engine moves operations: it brings events to the store's Decide, sends what a committed decision wants sent,
// and makes sure that somebody looks when nobody calls.
//
// # What is authoritative
//
// Postgres. River's jobs, and the list of what was created here, say "look now" and may be lost, doubled or late;
// operations.wake_at says when somebody must look whatever they say. No goroutine waits for a machine.
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

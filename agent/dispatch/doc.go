// Package dispatch takes commands from the controller and always answers them.
//
// # Overview
//
// A command is made durable, acknowledged, and queued behind the others for its target. It asks the controller for a
// grant, writes its intent, and is executed. Its result is durable before it is sent. Results are sent again until the
// controller acknowledges them.
//
// # Sources of truth
//
// Package state records which commands were begun. The executors read the world for what happened. Only the
// controller's grant permits an effect. Nothing in the memory of this package outlives a restart, grants least of all.
//
// # State model
//
//	(unknown) --durable--> RECEIVED --grant, intent durable--> STARTED --result durable--> DONE --ack--> settled
//
// A known command id is answered with its state or its stored result and never executed again. One command at a time
// per target, in the order of arrival; targets run in parallel. A grant counts for 30 s from the moment of the ask, by
// the boot-time clock. The last check stands between the durable intent and the effect.
//
// # Failure handling
//
//   - Crash: RECEIVED commands ask for a new grant, STARTED ones go to their executor's Resume.
//   - Panic: FAILED before the intent was written, UNKNOWN after it.
//   - Time-out: the executor reports its result; for one that doesn't return in time it is UNKNOWN, and its
//     target stays closed until it does return.
//   - Full disk: a command that cannot be made durable is not acknowledged and is tried again; a result waits.
//   - Rolled-back memory: the dispatcher ends with state.ErrRolledBack, and its owner takes a new state id.
package dispatch

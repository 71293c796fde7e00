// Package state is the agent's memory: one SQLite database and, beside it, the files of its identity.
//
// # Overview
//
// Store keeps the data that must survive a crash at any instruction. These are the agent's commands and their progress,
// the intents written before side effects, results that the controller has not acknowledged, and numbered events. Two
// counters (grants asked for, events) show by a repetition that the agent was rolled back to a copy. A site agent's
// Store also has the last document of its controller, and its leases. Dir keeps keys, certificates and the result of
// the enrolment.
//
// # Sources of truth
//
// Data that is committed here is authoritative for the promises of this agent and the commands that it began. It is no
// evidence of an effect: for that the executors read the world. The database is opened in WAL mode with
// synchronous=FULL, so that data is on the disk when a method returns without an error.
//
// # State model
//
//	RECEIVED -> STARTED(intent) -> DONE(result) -> settled -> evicted
//
// A command is acknowledged only after RECEIVED is durable, and has an effect only after STARTED is durable. Its result
// is sent only after DONE is durable. Settled commands are evicted seven days after they were done. A command that the
// controller has not settled stays for ever, whatever the clock.
//
// state_id is random and made with the database. NewStateID turns the memory into a new one in place: it is called when
// the controller has proved that this database is an old copy. The original may have sent its buffered events by then:
// Doubt and Recognized determine which. None is lost. Only events of a process without a session at the time of the
// copy may be stored twice.
//
// # Failure handling
//
// A full disk is ErrStorageFull. It loses no data, since the transaction is rolled back as a whole and the caller
// neither acknowledges nor goes on. Fence makes a handle useless, which is how a crash is simulated in process:
// whatever still runs can no longer write.
package state

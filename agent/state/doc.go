// Package state is the agent's memory: one SQLite database and, beside it, the files of its identity.
//
// # Overview
//
// Store keeps what must survive a crash at any instruction: which commands the agent holds and how far each
// got, the intents written before side effects, results that the controller has not acknowledged, numbered
// events, and the two counters (grants asked for, events) whose repetition would show that the agent was rolled
// back to a copy. A site agent's Store also has the last document that it was told to serve by, and the leases that
// it has given. Dir keeps keys, certificates and what enrolment said.
//
// # What is authoritative
//
// What is committed here is authoritative for what this agent promised and began. It says nothing about whether
// an effect happened: for that the executors read the world. The database is opened in WAL mode with
// synchronous=FULL, so that what a method has returned without an error is on the disk.
//
// # State model
//
//	RECEIVED -> STARTED(intent) -> DONE(result) -> settled -> evicted
//
// A command is acknowledged only after RECEIVED is durable, has an effect only after STARTED is durable, and
// its result is sent only after DONE is durable. Settled commands are evicted seven days after they were
// done; a command that the controller has not settled stays for ever, whatever the clock says.
//
// state_id is random and made with the database. NewStateID gives up the memory in place: it is called when
// the controller has proved that this database is an old copy. Its buffered events may have been stored by then, sent
// by the original: Doubt and Recognized find out which. None is lost; stored twice is at most what was buffered by a
// process that had had no session yet when the copy was made of it.
//
// # Failure handling
//
// A full disk is ErrStorageFull; nothing is lost by it, since the transaction is rolled back as a whole and the
// caller neither acknowledges nor goes on. Fence makes a handle useless, which is how a crash is simulated in
// process: whatever still runs can no longer write.
package state

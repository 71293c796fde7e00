// Package follow reads the streams of a controller to their end, through broken connections and restarted
// controllers.
//
// # Overview
//
// Operation merges the events and the log of one operation into one ordered series of items. Watch follows
// the events of many operations. Both go on where they stopped: events by the cursor, logs by the number of
// the last chunk, and what arrives twice all the same is dropped by its number.
//
// # Sources of truth
//
// The controller. An operation counts as finished when a snapshot of it shows that; a stream that merely ends means
// nothing.
//
// # Failure handling
//
// A transient error opens the stream again after a growing pause, for as long as the context lives: the operation goes
// on without its watchers. Any other error ends the following and is returned. An outage is reported once, however many
// streams broke with it.
package follow

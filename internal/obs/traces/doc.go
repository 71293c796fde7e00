// Package traces exports each operation as one OpenTelemetry trace, with spans from controllers and agents.
//
// An operation lives longer than the processes that work on it. So the ids of its trace, its own span and its commands'
// spans follow from the ids of the operation and the commands (see TraceOf): a controller that takes over from one that
// was killed goes on in the same trace, and needs to know nothing of it.
//
// A span is written when its work has ended, with the times at which it began and ended. Nothing is held open: what a
// killed process was in the middle of has no span, and the operation above it has.
//
// Spans go to a queue in memory, and from there to the receiver (Config). A receiver that is away or slow costs the
// spans that the queue has no room for, and nothing else. Attributes (Attribute) are ids, numbers, and names of the API
// and of the steps of plans: no parameter, message, comment or output goes into one.
package traces

// Package public serves baremetal.v1: it checks what clients send, asks the store and the engine, and follows
// changes for those who watch.
//
// # Overview
//
// The services are in packages of their own: machine, operation, node, rollout, catalog and admin, a file a subject.
// Package service has what they share, package query the filters of lists. A handler validates and refuses work that is
// not built. Then it calls the engine (for changes of an operation or an agent) or the store (for everything else). It
// holds no state between calls.
//
// # Sources of truth
//
// The database. Streams read it. The engine's Changed is only a hint to read now. A slow poll backs it, since other
// controllers commit as well.
//
// # Streams
//
// A watch on everything reads the feed. It is ordered by transaction and ends below the oldest open one, so nothing
// ever commits behind a cursor. A watch on one operation reads that operation's own numbered events. The two kinds of
// cursor differ: the second may be ahead of the feed. A stream holds one page and one message in flight. A reader that
// takes no message for a while is cut off and resumes by its last cursor.
//
// # Failure handling
//
// Handlers return errors of internal/failure; the server's interceptor maps them. When the database goes away in the
// middle of a stream, the stream ends with UNAVAILABLE and the client resumes. When the controller stops, streams end
// with CONTROLLER_DRAINING.
package public

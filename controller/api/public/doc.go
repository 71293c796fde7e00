// Package public serves baremetal.v1: it checks what clients send, asks the store and the engine, and follows
// changes for those who watch.
//
// # Overview
//
// The services are in packages of their own: machine, operation, node, rollout, catalog and admin, a file a subject.
// Package service has what they share, package query the filters of lists. A handler validates, then says whether the
// work is built at all, then calls the engine (whatever changes an operation or an agent) or the store (everything
// else). It holds no state between calls.
//
// # Sources of truth
//
// The database. Streams read it; the engine's Changed is only a hint that reading now is worth while, and a slow poll
// stands behind it, since other controllers commit as well.
//
// # Streams
//
// A watch on everything reads the feed, which is ordered by transaction and ends below the oldest open one, so a cursor
// never has anything commit behind it. A watch on one operation reads that operation's own numbered events. The two
// kinds of cursor differ: the second may be ahead of the feed. A stream holds one page and one message in flight; a
// reader that takes no message for a while is cut off and resumes by its last cursor.
//
// # Failure handling
//
// Handlers return errors of internal/failure; the server's interceptor maps them. When the database goes away in the
// middle of a stream, the stream ends with UNAVAILABLE and the client resumes. When the controller stops, streams end
// with CONTROLLER_DRAINING.
package public

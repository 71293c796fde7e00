// Package fairqueue decides which calls of clients may begin, which wait and which are refused. It slows down only the
// client that floods the controller, and bounds the number of waiting calls.
//
// A client is the holder of one bearer token. Its reads and its writes are counted in a bucket each. A call that its
// bucket lets through runs when one of a bounded number of places is free, and waits its turn else: the next place goes
// to the client that has the fewest calls under way, and among those to the one that has waited longest. Of the places
// few are for lists. Streams hold no place, since they mostly rest; they are counted by themselves.
//
// It is pure: whose call it is and what time it is comes in, a verdict comes out. A Book is not safe for concurrent
// use.
package fairqueue

import "time"

// Kind is what a call does.
type Kind uint8

// The kinds of calls.
const (
	Read Kind = iota
	Write
	// List is a read that may be of very many things. It counts as a read, and has places of its own beside.
	List
)

// Cause names a refusal. The names are the labels of a metric.
type Cause string

// The refusals.
const (
	// ReadRate and WriteRate: the client calls too often.
	ReadRate  Cause = "read_rate"
	WriteRate Cause = "write_rate"
	// Streams and AllStreams: the client has too many streams open, or all clients together have.
	Streams    Cause = "streams"
	AllStreams Cause = "all_streams"
	// ClientQueue and Queue: too many calls of the client wait, or of all clients together.
	ClientQueue Cause = "client_queue"
	Queue       Cause = "queue"
)

// Rate is a bucket: PerSecond calls flow in, Burst at most are in it.
type Rate struct{ PerSecond, Burst int }

// Limits bound what clients may do. Each must be positive.
type Limits struct {
	// Read and Write are of each client.
	Read, Write Rate
	// ClientStreams are open at a time for each client, Streams for all of them.
	ClientStreams, Streams int
	// Running is how many calls are under way at a time. No client has more than three quarters of that, so that another
	// one finds a place at once.
	Running int
	// Lists is how many of them may be lists: those keep processors and the database busy, and a call for one thing
	// must find them free. No client has more than three quarters of these either.
	Lists int
	// ClientWaiting is how many calls of one client wait, Waiting how many of all.
	ClientWaiting, Waiting int
	// WaitingBytes is how large the requests that wait may be together.
	WaitingBytes int
}

// Refusal is why a call may not begin, and after which time it may be tried again; 0 is when others have finished.
type Refusal struct {
	Why   Cause
	After time.Duration
}

// share is how many of so many places one client may have.
func share(places int) int { return max(1, places*3/4) }

package fairqueue

import (
	"slices"
	"time"
)

// Ledger knows what every client is doing.
type Ledger struct {
	limits  Limits
	clients map[string]*client
	// queue are the clients of which calls wait, in the order in which they were served last.
	queue []*client
	// running, waiting, bytes and streams are sums over all clients.
	running, lists, waiting, bytes, streams int
}

// client is never forgotten: there are no more of them than bearer tokens.
type client struct {
	read, write             bucket
	running, lists, streams int
	waiting                 []*Ticket
}

// Ticket is one call.
type Ticket struct {
	of    *client
	kind  Kind
	size  int
	ready chan struct{}
}

// Ready is closed when the call may run.
func (t *Ticket) Ready() <-chan struct{} { return t.ready }

// New opens a book.
func New(l Limits) *Ledger { return &Ledger{limits: l, clients: map[string]*client{}} }

// Running and Waiting are how many calls of all clients are under way and wait.
func (b *Ledger) Running() int { return b.running }

// Waiting is how many calls wait for a place.
func (b *Ledger) Waiting() int { return b.waiting }

func (b *Ledger) client(name string) *client {
	c := b.clients[name]
	if c == nil {
		c = &client{}
		b.clients[name] = c
	}
	return c
}

// rate takes a call out of the client's bucket.
func (b *Ledger) rate(c *client, k Kind, now time.Time) *Refusal {
	of, limit, why := &c.read, b.limits.Read, ReadRate
	if k == Write {
		of, limit, why = &c.write, b.limits.Write, WriteRate
	}
	if wait := of.take(limit, now); wait > 0 {
		return &Refusal{Why: why, After: wait}
	}
	return nil
}

// Enter asks for a place for a call whose request has so many bytes. Its ticket goes back with Leave, whether it ran or
// gave up before.
func (b *Ledger) Enter(name string, k Kind, size int, now time.Time) (*Ticket, *Refusal) {
	c := b.client(name)
	if no := b.rate(c, k, now); no != nil {
		return nil, no
	}
	t := &Ticket{of: c, kind: k, size: size, ready: make(chan struct{})}
	if len(c.waiting) == 0 && b.hasCapacity(t) {
		b.start(t)
		return t, nil
	}
	switch {
	case len(c.waiting) >= b.limits.ClientWaiting:
		return nil, &Refusal{Why: ClientQueue}
	case b.waiting >= b.limits.Waiting || b.waiting > 0 && b.bytes+size > b.limits.WaitingBytes:
		return nil, &Refusal{Why: Queue}
	}
	if len(c.waiting) == 0 {
		b.queue = append(b.queue, c)
	}
	c.waiting = append(c.waiting, t)
	b.waiting, b.bytes = b.waiting+1, b.bytes+size
	return t, nil
}

// hasCapacity reports whether the call may run now.
func (b *Ledger) hasCapacity(t *Ticket) bool {
	l, c := b.limits, t.of
	return b.running < l.Running && c.running < share(l.Running) &&
		(t.kind != List || b.lists < l.Lists && c.lists < share(l.Lists))
}

func (b *Ledger) start(t *Ticket) {
	b.count(t, 1)
	close(t.ready)
}

// count adds n calls such as t to those that run.
func (b *Ledger) count(t *Ticket, n int) {
	b.running += n
	t.of.running += n
	if t.kind == List {
		b.lists += n
		t.of.lists += n
	}
}

// Leave ends a call, or removes a waiting one, and admits others to free places.
func (b *Ledger) Leave(t *Ticket) {
	c := t.of
	if i := slices.Index(c.waiting, t); i >= 0 {
		b.unqueue(c, i)
	} else {
		b.count(t, -1)
	}
	for b.running < b.limits.Running {
		next := b.next()
		if next == nil {
			return
		}
		t := next.waiting[0]
		b.unqueue(next, 0)
		if len(next.waiting) > 0 { // to the end, behind those that have waited longer
			b.queue = append(slices.DeleteFunc(b.queue, func(c *client) bool { return c == next }), next)
		}
		b.start(t)
	}
}

// unqueue takes the call at i out of the client's queue.
func (b *Ledger) unqueue(c *client, i int) {
	b.waiting, b.bytes = b.waiting-1, b.bytes-c.waiting[i].size
	c.waiting = slices.Delete(c.waiting, i, i+1)
	if len(c.waiting) == 0 {
		b.queue = slices.DeleteFunc(b.queue, func(o *client) bool { return o == c })
	}
}

// next returns the client whose turn it is: nil when no waiting client may have a place.
func (b *Ledger) next() *client {
	var best *client
	for _, c := range b.queue {
		if b.hasCapacity(c.waiting[0]) && (best == nil || c.running < best.running) {
			best = c
		}
	}
	return best
}

// OpenStream counts a stream, until CloseStream. Opening it counts as a call of its kind.
func (b *Ledger) OpenStream(name string, k Kind, now time.Time) *Refusal {
	c := b.client(name)
	if no := b.rate(c, k, now); no != nil {
		return no
	}
	switch {
	case c.streams >= b.limits.ClientStreams:
		return &Refusal{Why: Streams}
	case b.streams >= b.limits.Streams:
		return &Refusal{Why: AllStreams}
	}
	c.streams++
	b.streams++
	return nil
}

// CloseStream ends a stream that OpenStream has counted.
func (b *Ledger) CloseStream(name string) {
	b.client(name).streams--
	b.streams--
}

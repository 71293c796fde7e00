package ratelimit

import (
	"container/list"
	"context"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc/peer"
)

// AnonymousCalls bounds calls of unknown callers, of which each may hold a message. It is safe for concurrent use.
type AnonymousCalls struct {
	most  int
	limit time.Duration

	mu    sync.Mutex
	calls list.List // of *strangerCall, the oldest first
	of    map[netip.Addr]int
}

type anonymousCall struct {
	from   netip.Addr
	cancel context.CancelFunc
	place  *list.Element // nil once it counts no more
}

// NewAnonymousCalls lets so many calls be under way at a time, each for so long; 0 is any time.
func NewAnonymousCalls(most int, limit time.Duration) *AnonymousCalls {
	return &AnonymousCalls{most: most, limit: limit, of: map[netip.Addr]int{}}
}

// Enter counts a call until the context that it returns ends, which is when the call does, or until Received. Where too
// many are under way, one is cancelled: the oldest of the address that has the most.
func (s *AnonymousCalls) Enter(ctx context.Context) context.Context {
	c := &anonymousCall{}
	ctx = context.WithValue(ctx, anonymousKey{}, c)
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		c.from = shareOf(keyOf(p.Addr).Addr())
	}
	if s.limit > 0 {
		ctx, c.cancel = context.WithTimeout(ctx, s.limit)
	} else {
		ctx, c.cancel = context.WithCancel(ctx)
	}
	s.mu.Lock()
	var gives *anonymousCall
	if s.calls.Len() >= s.most {
		gives = s.largest()
		s.drop(gives)
	}
	c.place = s.calls.PushBack(c)
	s.of[c.from]++
	s.mu.Unlock()
	if gives != nil {
		gives.cancel()
	}
	context.AfterFunc(ctx, func() {
		c.cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drop(c)
	})
	return ctx
}

// largest is the oldest call of the address that has the most. It needs mu, and a call.
func (s *AnonymousCalls) largest() (found *anonymousCall) {
	for e := s.calls.Front(); e != nil; e = e.Next() {
		c, ok := e.Value.(*anonymousCall)
		if ok && (found == nil || s.of[c.from] > s.of[found.from]) {
			found = c
		}
	}
	return found
}

// drop needs mu.
func (s *AnonymousCalls) drop(c *anonymousCall) {
	if c.place == nil {
		return
	}
	s.calls.Remove(c.place)
	c.place = nil
	if s.of[c.from]--; s.of[c.from] == 0 {
		delete(s.of, c.from)
	}
}

type anonymousKey struct{}

// Received notes that the message of a call has come whole: from then on it counts no more, and is not cancelled for
// others.
func (s *AnonymousCalls) Received(call context.Context) {
	if c, ok := call.Value(anonymousKey{}).(*anonymousCall); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drop(c)
	}
}

// Len is how many calls are under way.
func (s *AnonymousCalls) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls.Len()
}

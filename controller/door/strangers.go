package door

import (
	"container/list"
	"context"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc/peer"
)

// Strangers bounds calls whose callers nobody knows, of which each may hold a message. It is safe for concurrent use.
type Strangers struct {
	most  int
	limit time.Duration

	mu    sync.Mutex
	calls list.List // of *strangerCall, the oldest first
	of    map[netip.Addr]int
}

type strangerCall struct {
	from   netip.Addr
	cancel context.CancelFunc
	place  *list.Element // nil once it counts no more
}

// NewStrangers lets so many calls be under way at a time, each for so long; 0 is any time.
func NewStrangers(most int, limit time.Duration) *Strangers {
	return &Strangers{most: most, limit: limit, of: map[netip.Addr]int{}}
}

// Enter counts a call until the context that it returns ends, which is when the call does, or until Received. Where too many are under way, one
// is cancelled: the oldest of the address that has the most.
func (s *Strangers) Enter(ctx context.Context) context.Context {
	c := &strangerCall{}
	ctx = context.WithValue(ctx, strangerKey{}, c)
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		c.from = shareOf(keyOf(p.Addr).Addr())
	}
	if s.limit > 0 {
		ctx, c.cancel = context.WithTimeout(ctx, s.limit)
	} else {
		ctx, c.cancel = context.WithCancel(ctx)
	}
	s.mu.Lock()
	var gives *strangerCall
	if s.calls.Len() >= s.most {
		gives = s.crowding()
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

// crowding is the oldest call of the address that has the most. It needs mu, and a call.
func (s *Strangers) crowding() (found *strangerCall) {
	for e := s.calls.Front(); e != nil; e = e.Next() {
		c, ok := e.Value.(*strangerCall)
		if ok && (found == nil || s.of[c.from] > s.of[found.from]) {
			found = c
		}
	}
	return found
}

// drop needs mu.
func (s *Strangers) drop(c *strangerCall) {
	if c.place == nil {
		return
	}
	s.calls.Remove(c.place)
	c.place = nil
	if s.of[c.from]--; s.of[c.from] == 0 {
		delete(s.of, c.from)
	}
}

type strangerKey struct{}

// Received notes that the message of a call has come whole: from then on it counts no more, and is not cancelled for others.
func (s *Strangers) Received(call context.Context) {
	if c, ok := call.Value(strangerKey{}).(*strangerCall); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drop(c)
	}
}

// Len is how many calls are under way.
func (s *Strangers) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls.Len()
}

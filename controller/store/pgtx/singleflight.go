package pgtx

import (
	"context"
	"sync"
)

// LockKey identifies the rows that a change reads first: an operation with the command that an event is about, or its
// latest one; or a machine and a request for work on it. The machine is locked. AgentID and StateID name the memory
// whose grants are counted, where the change is about a grant.
type LockKey struct{ OperationID, CommandID, MachineID, RequestID, AgentID, StateID string }

// SingleFlight are found among the requests that are being answered here. Callers with the same request wait for the
// first, whose answer is theirs as well. Otherwise each would wait for its machine with a connection.
type SingleFlight struct {
	mu    sync.Mutex
	under map[LockKey]chan struct{}
}

// Begin waits while another caller answers the same request, and reports then that it is a repeat. end must be called.
func (s *SingleFlight) Begin(ctx context.Context, a LockKey) (end func(), repeat bool, err error) {
	s.mu.Lock()
	if first := s.under[a]; first != nil {
		s.mu.Unlock()
		select {
		case <-first:
			return func() {}, true, nil
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	defer s.mu.Unlock()
	if s.under == nil {
		s.under = map[LockKey]chan struct{}{}
	}
	over := make(chan struct{})
	s.under[a] = over
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.under, a)
		close(over)
	}, false, nil
}

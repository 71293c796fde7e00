package session

import "context"

// Reconnect leaves the session for a new one, after the ways out of the machine have changed. A connection from an
// address that is gone would otherwise be found dead by its timeouts only.
func (r *Runner) Reconnect() {
	s := r.current.Load()
	if s == nil {
		return
	}
	select {
	case s.moved <- struct{}{}:
	default: // told already
	}
}

// awaitReconnect ends the session on the controller's request.
func (s *session) awaitReconnect(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.moved:
		return errMoved
	}
}

package session

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/ingot-metal/ingot/agent/transport"
)

// reached is a connection that was made before anything was prepared for it. While a controller is away, a fleet asks
// for it again and again: reading keys and checking certificates each time would take processors from its recovery.
type reached struct {
	conn  net.Conn
	taken atomic.Bool
}

// predial connects to the address, if the last certificate is still valid; an expired one is replaced first. It returns
// nil without an error when the certificate is expired or unknown yet.
func (r *Runner) predial(ctx context.Context, address string, now time.Time) (*reached, error) {
	if !now.Before(r.expires) {
		return nil, nil
	}
	conn, err := r.cfg.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return &reached{conn: conn}, nil
}

// dialer returns the connection first, and others after that.
func (p *reached) dialer(next transport.Dialer) transport.Dialer {
	if p == nil {
		return next
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		if p.taken.CompareAndSwap(false, true) {
			return p.conn, nil
		}
		return next(ctx, address)
	}
}

// drop closes the connection unless it was taken.
func (p *reached) drop() {
	if p != nil && p.taken.CompareAndSwap(false, true) {
		_ = p.conn.Close() // nothing was on it
	}
}

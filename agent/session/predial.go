package session

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/ingot-metal/ingot/agent/transport"
)

// reached is a connection that was made before anything was prepared for it. While a controller is away, a fleet asks
// for it again and again: to read keys and check certificates each time would take the processors from what is to bring
// it back.
type reached struct {
	conn  net.Conn
	taken atomic.Bool
}

// predial connects to the address, if the certificate that was used last still counts; an expired one is replaced
// first. nil without an error says that nothing is known of it yet.
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

// drop closes the connection if nobody has taken it.
func (p *reached) drop() {
	if p != nil && p.taken.CompareAndSwap(false, true) {
		_ = p.conn.Close() // nothing was on it
	}
}

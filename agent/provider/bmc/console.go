package bmc

import (
	"context"
	"errors"
	"fmt"

	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/task"
)

// Console calls emit with every line that the machine writes to its serial port, scrubbed, until ctx ends; that is no
// error. The machine may be off or be switched meanwhile.
//
// It is IPMI's serial over LAN, also where the BMC is otherwise spoken to in Redfish: those services offer a console at
// best over SSH or a vendor's web socket. An endpoint redfish://… is refused with effect.ErrUnsupported. It has a
// session of its own; opening it takes its turn and its budget like any other exchange, capturing does not. A session
// that is attached already is kept, and this fails.
func (p *Provider) Console(ctx context.Context, t provider.Target, emit func(line string)) error {
	conn, err := p.openConsole(ctx, t)
	if err != nil {
		return fmt.Errorf("open serial console: %w", err)
	}
	lines := NewRedactor(emit)
	defer lines.Flush()
	err = task.Run(ctx, "console of "+t.MachineID, func(ctx context.Context) error { return conn.Console(ctx, lines) })
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.Timeout/4)
	defer cancel()
	closed := conn.Close(stop)
	if ctx.Err() != nil {
		return nil // the BMC forgets a session whose end it has not heard of
	}
	return errors.Join(err, closed)
}

// openConsole logs in under the budget of the link, and leaves its session alone.
func (p *Provider) openConsole(ctx context.Context, t provider.Target) (conn driver, err error) {
	e, err := ParseEndpoint(t.BMCEndpoint)
	if err != nil {
		return nil, err
	}
	l := p.connOf(e.Key())
	if err := l.take(ctx); err != nil {
		return nil, err
	}
	defer l.release()
	creds, id, err := p.admit(ctx, l, e, t)
	if err != nil {
		return nil, err
	}
	if e.Protocol == Unknown {
		e.Protocol = IPMI // the probed one may be Redfish, which has none
		if l.record.Protocol == Redfish {
			// The account may be good for the one and not for the other: that must not cost us the machine's power.
			id += " console"
		}
		leave, until := l.record.Budget.Ask(p.cfg.Clock.Now(), id)
		if err := refusal(l, leave, until, p.cfg.Clock.Now()); err != nil {
			return nil, err
		}
	}
	opening, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	conn, err = p.dial(opening, l, e, t, creds)
	if errors.Is(err, provider.ErrCredentials) {
		err = errors.Join(err, p.settle(ctx, l, e, id, err))
	}
	return conn, p.explain(ctx, l, err)
}

package server

import (
	"context"
	"fmt"
	"net"

	"github.com/ingot-metal/ingot/controller/config"
)

// Listeners are the open sockets; REST is nil where it is off.
type Listeners struct{ Frontpage, Fleet, Enrolment, HTTP, REST net.Listener }

// Open opens the listeners, and writes into the configuration at which ports they are. After an error it leaves none
// open.
func Open(ctx context.Context, at *config.Config) (out Listeners, err error) {
	var lc net.ListenConfig
	for _, l := range []struct {
		what    string
		address *string
		into    *net.Listener
	}{
		{"frontpage", &at.Listen.Frontpage, &out.Frontpage},
		{"fleet", &at.Listen.Fleet, &out.Fleet},
		{"enrolment", &at.Listen.Enrolment, &out.Enrolment},
		{"http", &at.Listen.HTTP, &out.HTTP},
		{"rest", &at.Listen.REST, &out.REST},
	} {
		if l.what == "rest" && *l.address == "" {
			continue
		}
		open, err := lc.Listen(ctx, "tcp", *l.address)
		if err != nil {
			out.Close()
			return Listeners{}, fmt.Errorf("open %s listener: %w", l.what, err)
		}
		*l.into = open
		// Port 0 has become a real one; what is advertised follows from it.
		*l.address = open.Addr().String()
	}
	return out, nil
}

// Close closes the listeners.
func (l Listeners) Close() {
	for _, one := range []net.Listener{l.Frontpage, l.Fleet, l.Enrolment, l.HTTP, l.REST} {
		if one != nil {
			// Closing a listener twice is harmless, and there is no caller to tell of an error.
			_ = one.Close()
		}
	}
}

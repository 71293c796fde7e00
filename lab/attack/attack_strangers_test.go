package attack

import (
	"context"
	"io"
	"net"
	"time"
)

// strangerAttempts are those of anybody who reaches a port.
func strangerAttempts() []Attempt {
	return []Attempt{
		{Party: Stranger, Attempt: "many connections that say nothing", Rule: 3, Run: silentConnections},
	}
}

// silentConnections opens connections to every listener, from many addresses, and sends nothing.
func silentConnections(ctx context.Context, r *Rig) (Outcome, error) {
	at := r.Addresses()
	targets := []string{at.Frontpage, at.Fleet, at.Enrolment, at.HTTP, at.REST}
	n := r.Many(1000, 10_000)
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for i := range n {
		c, err := r.Dial(ctx, i, targets[i%len(targets)])
		if err != nil {
			return Outcome{}, err
		}
		open = append(open, c)
	}
	// Each is closed by the controller sooner or later.
	for i, c := range open {
		if err := c.SetReadDeadline(time.Now().Add(40 * time.Second)); err != nil {
			return Outcome{}, err
		}
		if _, err := io.Copy(io.Discard, c); isTimeout(err) {
			return breached("connection %d of %d to %s is open after 40 s", i, n, targets[i%len(targets)]), nil
		}
	}
	return held("%d connections, all closed", n), nil
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}

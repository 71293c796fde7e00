package controller

import (
	"context"
	"time"

	"github.com/ingot-metal/ingot/controller/limit/reconnect"
)

// sessionGrace is how long after its time to leave a session is waited for.
const sessionGrace = time.Second

// spread is over what time agents go elsewhere when this controller stops.
func (c *Controller) spread() time.Duration {
	limit := c.cfg.Drain.Timeout.Duration * 3 / 4
	return reconnect.Spread(c.sessions.Len(), c.cfg.Agents.Admission.Limits(), c.engine.Peers(), limit)
}

// sayDraining lets operators see what this controller is doing. It drains without it, too.
func (c *Controller) sayDraining() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := c.store.Sessions.DrainController(ctx, c.id, c.clock.Now()); err != nil {
		c.log.Warn("others do not see that this controller drains", "controller_id", c.id, "error", err.Error())
	}
}

// drainAll stops taking work, waits until what is under way has ended or gone elsewhere, and returns. The engine goes
// on meanwhile: grants are given and results are stored to the last.
func (c *Controller) drainAll(quiet context.CancelFunc) {
	begun := c.clock.Now()
	c.ready.stop("shutting down")
	if d := c.cfg.Drain.Delay.Duration; d > 0 {
		<-c.clock.After(d)
	}
	c.sayDraining()
	n := c.sessions.Len()
	limit := min(c.spread()+sessionGrace, c.cfg.Drain.Timeout.Duration)
	quiet()
	c.drain()
	late := c.clock.After(limit)
	for c.sessions.Len() > 0 {
		select {
		case <-late:
			c.log.Warn("agents have not gone elsewhere in time", "controller_id", c.id, "sessions", c.sessions.Len())
			return
		case <-c.clock.After(20 * time.Millisecond):
		}
	}
	c.log.Info("controller drained", "controller_id", c.id, "sessions", n, "took",
		c.clock.Now().Sub(begun).Round(time.Millisecond).String())
}

package controller

import (
	"context"
	"time"
)

// timeEvery is how often the database is asked for the time.
const timeEvery = 2 * time.Second

// keepTime has the controller's clock follow the database's, which all controllers share. What is stored with a time,
// such as when an operation is to be looked at again, then means the same to each of them, and survives that somebody
// sets a machine's clock.
func (c *Controller) keepTime(ctx context.Context) error {
	t := c.clock.NewTicker(timeEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C():
		}
		if err := c.followTime(ctx); err != nil && ctx.Err() == nil {
			// Others say that the database is away. The clock goes on from where it was.
			c.log.Debug("the database does not tell the time", "error", err.Error())
		}
	}
}

func (c *Controller) followTime(ctx context.Context) error {
	if c.steered == nil {
		return c.store.DB.Ping(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, timeEvery)
	defer cancel()
	behind, set, err := c.steered.Follow(func() (time.Time, error) { return c.store.Sessions.Time(limited) })
	if err == nil && set {
		c.log.Warn("the clock was set to the database's", "behind", behind.Round(time.Millisecond).String())
	}
	return err
}

package pid1

import (
	"context"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
)

// poll calls ok until it is true, ctx ends or the time is up, and returns the last answer. Devices appear
// without telling a program that has no udev.
func poll(ctx context.Context, limit time.Duration, ok func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			return ok()
		case <-clock.Real().After(pollInterval):
		}
	}
	return true
}

func pause(d time.Duration) { <-clock.Real().After(d) }

// wait returns early, with the reason, when ctx ends.
func wait(ctx context.Context, c clock.Clock, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.After(d):
		return nil
	}
}

package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
)

// common is used by every part of the engine.
type common struct {
	cfg   Config
	log   *slog.Logger
	clock clock.Clock
}

// every runs fn again and again.
func (c common) every(ctx context.Context, d time.Duration, what string, fn func(context.Context) error) error {
	t := c.clock.NewTicker(d)
	defer t.Stop()
	w := work{what: what}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C():
		}
		c.attempt(ctx, &w, fn)
	}
}

// attempt does it onc. A failure is logged once when it starts and once when it is over.
func (c common) attempt(ctx context.Context, w *work, fn func(context.Context) error) {
	err := fn(ctx)
	switch {
	case err != nil && ctx.Err() == nil && !w.failing:
		c.log.Error("background work failed; it is tried again", "work", w.what, "error", err.Error())
		w.failing = true
	case err == nil && w.failing:
		c.log.Info("background work goes on", "work", w.what)
		w.failing = false
	}
}

// work is a piece of work that is repeated, for the log.
type work struct {
	what    string
	failing bool
}

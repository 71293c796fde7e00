package controller

import (
	"context"
	"log/slog"
	"time"

	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/internal/clock"
)

// timeEvery is how often the database is asked for the time.
const timeEvery = 2 * time.Second

// timekeeper steers the controller's clock by the database's.
type timekeeper struct {
	store *store.Store
	// steered is nil where the clock is not steered.
	steered *clock.Steered
	clock   clock.Clock
	log     *slog.Logger
}

// keep has the controller's clock follow the database's, which all controllers share. Stored times, such as
// an operation's next evaluation, then mean the same to each of them. They survive a change of a machine's clock.
func (t *timekeeper) keep(ctx context.Context) error {
	ticker := t.clock.NewTicker(timeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		if err := t.follow(ctx); err != nil && ctx.Err() == nil {
			// Others report that the database is unavailable. The clock goes on from where it was.
			t.log.Debug("the database does not tell the time", "error", err.Error())
		}
	}
}

func (t *timekeeper) follow(ctx context.Context) error {
	if t.steered == nil {
		return t.store.DB.Ping(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, timeEvery)
	defer cancel()
	behind, set, err := t.steered.Follow(func() (time.Time, error) { return t.store.Sessions.Time(limited) })
	if err == nil && set {
		t.log.Warn("the clock was set to the database's", "behind", behind.Round(time.Millisecond).String())
	}
	return err
}

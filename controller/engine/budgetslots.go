package engine

import (
	"context"
	"time"
)

const (
	// admitEvery is how long a slot of a budget stays free at most when nobody has told of it: it was given back on
	// another controller, or an hour is over.
	admitEvery = time.Second
	// admitPause is the least time between two rounds.
	admitPause = 20 * time.Millisecond
	// admitShare is how many times as long as a round took there is none after it, so that a long queue costs a fifth of a
	// processor at most.
	admitShare = 4
)

// admissions gives the slots of budgets to those who wait for them, as soon as they are free.
func (e *Engine) admissions(ctx context.Context) error {
	w := work{what: "admit destructive operations"}
	t := e.clock.NewTicker(admitEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.signals.room:
		case <-t.C():
		}
		began := e.clock.Now()
		e.attempt(ctx, &w, e.admit)
		select {
		case <-ctx.Done():
			return nil
		case <-e.clock.After(max(admitPause, admitShare*e.clock.Now().Sub(began))):
		}
	}
}

// admit is one round, in one transaction. The next sweep has somebody look at those who got a slot. It is not called
// here: with many operations due it would queue looks faster than they are made.
func (e *Engine) admit(ctx context.Context) error {
	_, busy, err := e.store.Budgets.AdmitDestructive(ctx, e.clock.Now())
	if busy {
		e.signals.room.fire() // what is free now may have become so after the other one looked
	}
	return err
}

package engine

import (
	"context"
	"time"

	budgetstore "github.com/ingot-metal/ingot/controller/store/budget"
)

const (
	// admitEvery is how long a slot of a budget stays free at most where no signal came: it was given back on
	// another controller, or an hour is over.
	admitEvery = time.Second
	// admitPause is the least time between two rounds.
	admitPause = 20 * time.Millisecond
	// admitShare is how many times as long as a round took there is none after it, so that a long queue costs a fifth of a
	// processor at most.
	admitShare = 4
)

// budgetSlots admits destructive operations that wait for a slot of a budget.
type budgetSlots struct {
	common
	budgets *budgetstore.Store
	// room wakes the round.
	room signal
}

// run grants the slots of budgets to operations that wait for them, as soon as the slots are free.
func (b *budgetSlots) run(ctx context.Context) error {
	w := work{what: "admit destructive operations"}
	t := b.clock.NewTicker(admitEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.room:
		case <-t.C():
		}
		began := b.clock.Now()
		b.attempt(ctx, &w, b.admit)
		select {
		case <-ctx.Done():
			return nil
		case <-b.clock.After(max(admitPause, admitShare*b.clock.Now().Sub(began))):
		}
	}
}

// admit is one round, in one transaction. The next sweep evaluates the operations that got a slot. It is not called
// here: with many operations due it would queue looks faster than they are made.
func (b *budgetSlots) admit(ctx context.Context) error {
	_, busy, err := b.budgets.AdmitDestructive(ctx, b.clock.Now())
	if busy {
		b.room.fire() // what is free now may have become so after the other one looked
	}
	return err
}

package trial

import (
	"context"
	"errors"
	"time"

	"github.com/ingot-metal/ingot/lab/chaos/plan"
	"github.com/ingot-metal/ingot/lab/chaos/program"
	"github.com/ingot-metal/ingot/lab/relay"
)

// holdAnswers keeps the grant that the agent is about to ask for on its way: what comes down to the agent is held from
// the moment at which it has the command.
func (a *agentProgram) holdAnswers(ctx context.Context) {
	for ctx.Err() == nil {
		if c, err := a.command(ctx); err == nil && c.GetState() == "ACKED" {
			for _, w := range a.ways() {
				w.FreezeWay(relay.Down)
			}
			return
		}
		program.Rest(ctx, pollEvery)
	}
}

// suspend suspends the machine right after its agent was granted a command, for longer than a grant lasts. Its
// boot-time clock shows that; its wall clock does where step is as long.
func (a *agentProgram) suspend(ctx context.Context, s plan.Strike) (asleep time.Duration, begun time.Time, err error) {
	a.Busy.Lock()
	defer a.Busy.Unlock()
	limited, cancel := context.WithTimeout(ctx, workLimit)
	defer cancel()
	if s.Kind == plan.SuspendAsking {
		a.holdAnswers(limited)
		defer func() {
			for _, w := range a.ways() {
				w.Heal()
			}
		}()
	}
	granted := func() bool {
		c, err := a.command(limited)
		return err == nil && c.GetState() == "GRANTED" && time.Since(c.GetGrantedAt().AsTime()) < plan.FreshGrant
	}
	for !granted() {
		program.Rest(limited, pollEvery)
		if limited.Err() != nil {
			return 0, time.Time{}, nil
		}
	}
	if !a.Clock.MappedBy(a.Pid()) {
		return 0, time.Time{}, nil
	}
	begun = time.Now()
	asleep = s.Step.Abs()
	step := time.Duration(0)
	if s.Stays {
		step = asleep
	}
	err = errors.Join(a.Freeze(), a.Clock.Suspend(asleep, step), a.Thaw())
	return asleep, begun, err
}

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
			a.each(func(w *relay.Relay) { w.FreezeWay(relay.Down) })
			return
		}
		program.Rest(ctx, pollEvery)
	}
}

// sleep is a suspension: for how long by the machine's boot-time clock, and between which moments of the harness's.
type sleep struct {
	asleep       time.Duration
	begun, ended time.Time
}

// heldOn is how long answers are held after a suspension, so that what follows on them is certainly later.
const heldOn = 200 * time.Millisecond

// suspend suspends the machine right after its agent was granted a command, for longer than a grant lasts. Its
// boot-time clock shows that; its wall clock does where step is as long.
func (a *agentProgram) suspend(ctx context.Context, s plan.Strike) (out sleep, err error) {
	a.Busy.Lock()
	defer a.Busy.Unlock()
	limited, cancel := context.WithTimeout(ctx, workLimit)
	defer cancel()
	if s.Kind == plan.SuspendAsking {
		a.holdAnswers(limited)
		defer func() {
			program.Rest(ctx, heldOn)
			a.each((*relay.Relay).Heal)
		}()
	}
	granted := func() bool {
		c, err := a.command(limited)
		return err == nil && c.GetState() == "GRANTED" && time.Since(c.GetGrantedAt().AsTime()) < plan.FreshGrant
	}
	for !granted() {
		program.Rest(limited, pollEvery)
		if limited.Err() != nil {
			return sleep{}, nil
		}
	}
	if !a.Clock.MappedBy(a.Pid()) {
		return sleep{}, nil
	}
	out = sleep{asleep: s.Step.Abs(), begun: time.Now()}
	step := time.Duration(0)
	if s.Stays {
		step = out.asleep
	}
	err = errors.Join(a.Freeze(), a.Clock.Suspend(out.asleep, step), a.Thaw())
	out.ended = time.Now()
	return out, err
}

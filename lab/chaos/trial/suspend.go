package trial

import (
	"context"
	"errors"
	"time"

	"github.com/ingot-metal/ingot/lab/chaos/plan"
	"github.com/ingot-metal/ingot/lab/chaos/program"
)

// suspend suspends the machine right after its agent was granted a command, for longer than a grant lasts. Its
// boot-time clock shows that; its wall clock does where step is as long.
func (a *agentProgram) suspend(ctx context.Context, s plan.Strike) (asleep time.Duration, begun time.Time, err error) {
	a.Busy.Lock()
	defer a.Busy.Unlock()
	limited, cancel := context.WithTimeout(ctx, workLimit)
	defer cancel()
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

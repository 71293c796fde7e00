package main

import (
	"context"
	"errors"
	"time"
)

// suspend suspends the machine right after its agent was granted a command, for longer than a grant lasts. Its
// boot-time clock shows that; its wall clock does where step is as long.
func (a *agentProgram) suspend(ctx context.Context, s strike) (asleep time.Duration, begun time.Time, err error) {
	a.busy.Lock()
	defer a.busy.Unlock()
	limited, cancel := context.WithTimeout(ctx, workLimit)
	defer cancel()
	granted := func() bool {
		c, err := a.command(limited)
		return err == nil && c.GetState() == "GRANTED" && time.Since(c.GetGrantedAt().AsTime()) < freshGrant
	}
	for !granted() {
		rest(limited, pollEvery)
		if limited.Err() != nil {
			return 0, time.Time{}, nil
		}
	}
	if !a.clock.mappedBy(a.pid()) {
		return 0, time.Time{}, nil
	}
	begun = time.Now()
	asleep = s.step.Abs()
	step := time.Duration(0)
	if s.stays {
		step = asleep
	}
	err = errors.Join(a.freeze(), a.clock.suspend(asleep, step), a.thaw())
	return asleep, begun, err
}

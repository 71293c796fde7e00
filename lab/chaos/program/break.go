package program

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/lab/measure"
)

// Break kills or stops a process, or steps its clock or has it drift. A clock is set back in the end, unless it stays.
func Break(
	ctx context.Context, p *Program, what string, length, step time.Duration, stays bool,
) (took bool, err error) {
	p.Busy.Lock()
	defer p.Busy.Unlock()
	switch what {
	case "stop":
		err := p.Freeze()
		Rest(ctx, length)
		return measure.Stopped(p.Pid()), errors.Join(err, p.Thaw())
	case "kill":
		if err := p.Kill(); err != nil {
			return false, err
		}
		Rest(ctx, length/4)
		return true, p.Start("")
	case "step":
		err := p.Clock.Set(step)
		took := p.Clock.MappedBy(p.Pid())
		Rest(ctx, length)
		if !stays {
			err = errors.Join(err, p.Clock.Set(0))
		}
		return took, err
	case "drift":
		err := p.Clock.Drift(ctx, step/100, length)
		took := p.Clock.MappedBy(p.Pid())
		if !stays {
			err = errors.Join(err, p.Clock.Set(0))
		}
		return took, err
	}
	return false, fmt.Errorf("there is no fault %q", what)
}

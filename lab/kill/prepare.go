package main

import (
	"context"
	"fmt"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/chaos/check"
	"github.com/ingot-metal/ingot/lab/chaos/program"
)

// atOnce is how many machines are taken into service at the same time.
const atOnce = 16

// pollEvery is the pause between two looks at an operation.
const pollEvery = 200 * time.Millisecond

// takeIn installs every second machine of the site and takes it into service. So a silence of the site's agent is seen
// on idle machines.
func (f *fleet) takeIn(ctx context.Context) error {
	group, _ := task.New(ctx)
	for part := range atOnce {
		group.Go("take machines in", func(ctx context.Context) error {
			for i := 2 * part; i < len(f.machines); i += 2 * atOnce {
				for _, kind := range []string{enter, reimage, leave} {
					if err := f.complete(ctx, f.machines[i], kind); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// complete starts an operation and waits until it has succeeded.
func (f *fleet) complete(ctx context.Context, machine, kind string) error {
	p := f.controllers[0]
	o, err := begin(ctx, p, kind, machine, "prepare-"+kind, int32(f.o.rest/time.Second))
	if err != nil {
		return fmt.Errorf("%s %s: %w", kind, machine, err)
	}
	err = program.Until(ctx, f.o.rest, kind+" of "+machine, func() bool {
		program.Rest(ctx, pollEvery)
		now, err := p.operations().GetOperation(ctx, &baremetalv1.GetOperationRequest{OperationId: o.GetOperationId()})
		if err == nil {
			o = now
		}
		return check.Ended(o)
	})
	if err == nil && o.GetPhase() != baremetalv1.Operation_SUCCEEDED {
		err = fmt.Errorf("%s %s: %s %v", kind, machine, o.GetPhase(), o.GetError())
	}
	return err
}

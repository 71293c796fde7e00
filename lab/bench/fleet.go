package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ingot-metal/ingot/lab/fleet"
)

// crew is a fleet in this process, with the names of its machines.
type crew struct {
	*fleet.Fleet
	machines []string
}

func (c *crew) workers() workers {
	return workers{machines: c.machines, gone: c.Done(), why: func() string { return c.Status().Failed },
		received: c.Receipts().Take}
}

// startCrew registers machines, unless they have been before, starts their agents and waits for every session.
func (g *rig) startCrew(ctx context.Context, prefix string, n int) (*crew, error) {
	specs, err := fleet.Register(ctx, g.Conn, g.Path("agents"), prefix, 0, n)
	if err != nil {
		return nil, err
	}
	c := &crew{}
	c.Fleet, err = fleet.Start(ctx, fleet.Config{Dir: g.Path("agents"), Addresses: []string{g.Controllers[0].Fleet}})
	if err != nil {
		return nil, err
	}
	for _, s := range specs {
		c.machines = append(c.machines, s.Name)
	}
	c.Add(specs...)
	if err := c.AwaitConnected(ctx, n); err != nil {
		return nil, errors.Join(fmt.Errorf("connect agents: %w", err), c.Stop())
	}
	return c, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ingot-metal/ingot/lab/fleet"
)

// crew is a fleet in this process, with the names of its machines.
type crew struct {
	*fleet.Fleet
	machines []string
}

// startCrew registers machines, unless they have been before, starts their agents and waits for every session.
func (g *rig) startCrew(ctx context.Context, prefix string, n int) (*crew, error) {
	specs, err := fleet.Register(ctx, g.conn, g.path("agents"), prefix, 0, n)
	if err != nil {
		return nil, err
	}
	c := &crew{}
	c.Fleet, err = fleet.Start(ctx, fleet.Config{Dir: g.path("agents"), Addresses: []string{g.addresses.Fleet}})
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

// startAgentProcess starts the agent whose memory is read: a process of its own that is never given anything to do.
func (g *rig) startAgentProcess(ctx context.Context) (*process, error) {
	lone, err := fleet.RegisterOne(ctx, g.conn, g.path("lone"), fleet.Spec{Name: "lone"})
	if err != nil {
		return nil, err
	}
	token := g.path("lone-token")
	if err := os.WriteFile(token, []byte(lone.Bundle), 0o600); err != nil {
		return nil, err
	}
	return startProcess(g.dir, "agent", filepath.Join(g.o.bin, "ingot-agent"), "run", "--host", "sim",
		"--state-dir", g.path("lone"), "--sim-dir", g.path("lone-world"), "--token-file", token)
}

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/measure"
)

// idleSessions measures what sessions cost the controller that only beat. Identities are made first, by one controller;
// a fresh one is measured without a session and then with all.
func (g *rig) idleSessions(ctx context.Context) (m sessionMemory, err error) {
	benchrig.Say("sessions: enrolling %d agents", g.o.sessions)
	if err := g.enrolIdle(ctx); err != nil {
		return m, err
	}
	if err := g.Up(ctx, 1); err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, g.Down()) }()
	if err := g.Controllers[0].Rest(ctx, settle); err != nil {
		return m, err
	}
	before, err := g.memory(ctx)
	if err != nil {
		return m, err
	}
	benchrig.Say("sessions: opening %d", g.o.sessions)
	s, err := g.startCrew(ctx, idlePrefix, g.o.sessions)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	// What the opening took is not what idleness takes.
	if err := benchrig.Pause(ctx, settle); err != nil {
		return m, err
	}
	cpuBefore, err := g.CPU()
	if err != nil {
		return m, err
	}
	if err := benchrig.Pause(ctx, g.o.idle); err != nil {
		return m, err
	}
	cpuAfter, err := g.CPU()
	if err != nil {
		return m, err
	}
	if st := s.Status(); st.Opened != int64(g.o.sessions) {
		return m, fmt.Errorf("a session ended: %+v", st)
	}
	after, err := g.memory(ctx)
	if err != nil {
		return m, err
	}
	n := float64(g.o.sessions)
	return sessionMemory{
		Sessions: g.o.sessions, RSSBefore: before.rss, RSSAfter: after.rss,
		RSSPerSession: float64(after.rss-before.rss) / n, HeapPerSession: (after.heap - before.heap) / n,
		CPU: cpuAfter.Since(cpuBefore, g.o.idle.Seconds()),
	}, nil
}

// idlePrefix begins the names of the machines whose agents only beat.
const idlePrefix = "idle"

// enrolIdle gives the agents that only beat their identities.
func (g *rig) enrolIdle(ctx context.Context) (err error) {
	if err := g.Up(ctx, 1); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Down()) }()
	c, err := g.startCrew(ctx, idlePrefix, g.o.sessions)
	if err != nil {
		return err
	}
	return c.Stop()
}

// memory is what the controller uses.
type memory struct {
	rss int64
	// heap is what the Go runtime has in use for the heap and for stacks.
	heap float64
}

func (g *rig) memory(ctx context.Context) (m memory, err error) {
	told, err := measure.ReadMetrics(ctx, g.Controllers[0].HTTP)
	if err != nil {
		return m, err
	}
	m.heap = told.InUse()
	m.rss, err = g.Controllers[0].RSS()
	return m, err
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/measure"
	"github.com/ingot-metal/ingot/migrations"
)

// loops times what a controller does again and again, by itself, when nothing is to be done.
func (g *rig) loops(ctx context.Context, f *fleet) error {
	now := time.Now()
	s := g.store
	for _, l := range []struct {
		what  string
		every time.Duration
		run   func() error
	}{
		{"heartbeats and reachability", time.Second,
			func() error { return s.UpdateReachable(ctx, now.Add(-30*time.Second), now) }},
		{"admission to budgets", time.Second, func() error { _, _, err := s.AdmitDestructive(ctx, now); return err }},
		{"due operations", time.Second, func() error { _, err := s.DueOperations(ctx, now, 1000); return err }},
		{"sessions of lost controllers", time.Second, func() error { return s.EndSessionsOf(ctx, "", now) }},
		{"counts for the metrics", 30 * time.Second, func() error { _, err := s.CountMachines(ctx); return err }},
		{"end of the cursor", 30 * time.Second, func() error { _, _, err := s.HeadCursor(ctx); return err }},
		{"operations that nobody wakes", 30 * time.Second,
			func() error { _, err := s.CountUnwakeable(ctx, now); return err }},
		{"long steps", 30 * time.Second,
			func() error { _, err := s.LongSteps(ctx, now.Add(-explain.StuckFloor), 1000); return err }},
		{"normal durations of steps", 30 * time.Second, func() error { _, err := s.StepNormals(ctx); return err }},
		{"nodes without an owner", 30 * time.Second,
			func() error { _, err := s.OwnerlessNodes(ctx, now.Add(-time.Minute)); return err }},
		{"conditions of node states", time.Minute, func() error { _, err := s.RecomputeConditions(ctx, now); return err }},
	} {
		var all []time.Duration
		for range 10 {
			began := time.Now()
			if err := l.run(); err != nil {
				return fmt.Errorf("%s: %w", l.what, err)
			}
			all = append(all, time.Since(began))
		}
		f.Loops = append(f.Loops, loop{Name: l.what, Every: l.every.Seconds(), Latency: measure.Percentiles(all)})
	}
	return nil
}

// idle leaves the controller alone and sees what it does.
func (g *rig) idle(ctx context.Context, f *fleet) error {
	scanned, err := g.scanned(ctx)
	if err != nil {
		return err
	}
	if f.Idle.CPU, err = g.used(g.o.idle.Seconds(), func() error { return benchrig.Pause(ctx, g.o.idle) }); err != nil {
		return err
	}
	all, err := g.scanned(ctx)
	f.Idle.ScannedPerSecond = float64(all-scanned) / g.o.idle.Seconds()
	return err
}

// migration takes the migration with the indexes for large fleets back and applies it again, with all machines there.
// The controller is stopped for it: it locks tables in another order than the migration, which takes whole ones.
func (g *rig) migration(ctx context.Context) (seconds float64, err error) {
	benchrig.Say("migrating %d machines", g.o.machines)
	if err := g.Down(); err != nil {
		return 0, fmt.Errorf("stop the controller: %w", err)
	}
	for _, file := range []string{"0015_scale.down.sql", "0015_scale.up.sql"} {
		sql, err := migrations.Files.ReadFile(file)
		if err != nil {
			return 0, err
		}
		began := time.Now()
		if _, err := g.Admin.Exec(ctx, string(sql)); err != nil {
			return 0, fmt.Errorf("apply %s: %w", file, err)
		}
		seconds = time.Since(began).Seconds()
	}
	return seconds, nil
}

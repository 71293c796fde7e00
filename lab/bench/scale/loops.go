package scale

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/measure"
	"github.com/ingot-metal/ingot/migrations"
)

// loops times what a controller does again and again, by itself, when nothing is to be done.
func (b *bench) loops(ctx context.Context) error {
	now := time.Now()
	s := b.store
	for _, l := range []struct {
		what  string
		every time.Duration
		run   func() error
	}{
		{"heartbeats and reachability", time.Second,
			func() error { return s.NodeStates.UpdateReachable(ctx, now.Add(-30*time.Second), now) }},
		{"admission to budgets", time.Second, func() error { _, _, err := s.Budgets.AdmitDestructive(ctx, now); return err }},
		{"due operations", time.Second, func() error { _, err := s.OperationQueries.DueOperations(ctx, now, 1000); return err }},
		{"sessions of lost controllers", time.Second, func() error { return s.Sessions.EndSessionsOf(ctx, "", now) }},
		{"counts for the metrics", 30 * time.Second, func() error { _, err := s.Machines.CountMachines(ctx); return err }},
		{"end of the cursor", 30 * time.Second, func() error { _, _, err := s.MachineFeed.HeadCursor(ctx); return err }},
		{"operations that nobody wakes", 30 * time.Second,
			func() error { _, err := s.OperationQueries.CountUnwakeable(ctx, now); return err }},
		{"long steps", 30 * time.Second,
			func() error { _, err := s.Explain.LongSteps(ctx, now.Add(-explain.StuckFloor), 1000); return err }},
		{"normal durations of steps", 30 * time.Second, func() error { _, err := s.Explain.StepNormals(ctx); return err }},
		{"nodes without an owner", 30 * time.Second,
			func() error { _, err := s.Nodes.OwnerlessNodes(ctx, now.Add(-time.Minute)); return err }},
		{"conditions of node states", time.Minute, func() error { _, err := s.Nodes.RecomputeConditions(ctx, now); return err }},
	} {
		took, err := measure.Times(10, 0, func(int) error { return l.run() })
		if err != nil {
			return fmt.Errorf("%s: %w", l.what, err)
		}
		b.add(l.what, took, fmt.Sprintf("; the controller does this by itself, each %s", l.every))
	}
	return nil
}

// idle measures a controller without calls.
func (b *bench) idle(ctx context.Context) error {
	before, err := b.scanned(ctx)
	if err != nil {
		return err
	}
	use, err := b.Used(ctx, func() error { return rig.Pause(ctx, b.o.idle) })
	if err != nil {
		return err
	}
	after, err := b.scanned(ctx)
	use = use.Each(use.Seconds)
	b.run.Add("controller left alone, each second", use.Controllers+use.Postgres, "ms", nil, "%s", use)
	b.run.Add("left alone: rows read by scans of whole tables", float64(after-before)/b.o.idle.Seconds(), "/s", nil,
		"of tables that grow with the fleet")
	return err
}

// migration takes the migration with the indexes for large fleets back and applies it again, with all machines there.
// The controller is stopped for it: it locks tables in another order than the migration, which takes whole ones.
func (b *bench) migration(ctx context.Context) error {
	rig.Say("migrating %d machines", b.machines)
	if err := b.Down(); err != nil {
		return fmt.Errorf("stop the controller: %w", err)
	}
	var took time.Duration
	for _, file := range []string{"0015_scale.down.sql", "0015_scale.up.sql"} {
		sql, err := migrations.Files.ReadFile(file)
		if err != nil {
			return err
		}
		began := time.Now()
		if _, err := b.Admin.Exec(ctx, string(sql)); err != nil {
			return fmt.Errorf("apply %s: %w", file, err)
		}
		took = time.Since(began)
	}
	b.run.Add("migration 15 on all of them", took.Seconds(), "s", nil, "the indexes for large fleets are made anew")
	return nil
}

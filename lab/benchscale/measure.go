package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/fill"
	"github.com/ingot-metal/ingot/lab/measure"
)

// measureAll fills and measures twice.
func measureAll(ctx context.Context, o options) (r report, err error) {
	began := time.Now()
	g, err := newRig(ctx, o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	have := 0
	for _, n := range []int{o.small, o.machines} {
		benchrig.Say("filling in machines %d to %d", have, n)
		filled := time.Now()
		err := fill.Rows(ctx, g.Admin, have, n, func(done int) { benchrig.Say("  %d", done) })
		if err != nil {
			return r, err
		}
		have = n
		one := fleet{Machines: n, FillSeconds: time.Since(filled).Seconds()}
		if err := g.fresh(ctx, &one); err != nil {
			return r, fmt.Errorf("right after the load of %d machines: %w", n, err)
		}
		if err := fill.Analyze(ctx, g.Admin); err != nil {
			return r, err
		}
		if err := g.fleet(ctx, &one); err != nil {
			return r, fmt.Errorf("with %d machines: %w", n, err)
		}
		r.Fleets = append(r.Fleets, one)
	}
	if r.Flood, err = g.flood(ctx, have); err != nil {
		return r, fmt.Errorf("flood: %w", err)
	}
	if r.MigrationSeconds, err = g.migration(ctx); err != nil {
		return r, err
	}
	r.TookSeconds = time.Since(began).Seconds()
	return r, nil
}

// fleet measures one size.
func (g *rig) fleet(ctx context.Context, f *fleet) (err error) {
	for _, part := range []struct {
		what string
		run  func(context.Context, *fleet) error
	}{
		{"single reads", g.reads}, {"reconciling", g.reconcile}, {"filters", g.filters}, {"a full walk", g.walk},
		{"the same pages, of the database alone", g.raw},
		{"the controller's own work", g.loops}, {"a controller that is left alone", g.idle},
	} {
		benchrig.Say("%d machines: %s", f.Machines, part.what)
		if err := part.run(ctx, f); err != nil {
			return fmt.Errorf("%s: %w", part.what, err)
		}
	}
	return nil
}

func (g *rig) machines() pb.MachineServiceClient { return pb.NewMachineServiceClient(g.Conn) }

func (g *rig) operations() pb.OperationServiceClient { return pb.NewOperationServiceClient(g.Conn) }

// uncounted are the first calls of a kind.
const uncounted = 10

// times makes calls one after the other, after a few that are not counted.
func (g *rig) times(ctx context.Context, call func(ctx context.Context, i int) error) (measure.Latency, error) {
	var all []time.Duration
	for i := range g.o.calls + uncounted {
		began := time.Now()
		if err := call(ctx, i); err != nil {
			return measure.Latency{}, err
		}
		if i >= uncounted {
			all = append(all, time.Since(began))
		}
	}
	return measure.Percentiles(all), nil
}

func (g *rig) timed(ctx context.Context, f *fleet, what string, call func(ctx context.Context, i int) error) error {
	l, err := g.times(ctx, call)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	f.Calls = append(f.Calls, named{what, l})
	return nil
}

// reads are of one thing each.
func (g *rig) reads(ctx context.Context, f *fleet) error {
	some := rand.New(rand.NewPCG(1, 2))
	return errors.Join(
		g.timed(ctx, f, "GetMachine", func(ctx context.Context, _ int) error {
			_, err := g.machines().GetMachine(ctx, &pb.GetMachineRequest{MachineId: fill.Machine(some.IntN(f.Machines))})
			return err
		}),
		g.timed(ctx, f, "GetOperation", func(ctx context.Context, _ int) error {
			n := some.IntN(f.Machines) / fill.OperationEvery * fill.OperationEvery
			_, err := g.operations().GetOperation(ctx, &pb.GetOperationRequest{OperationId: fill.Operation(n)})
			return err
		}),
		g.timed(ctx, f, "ListOperations, newest 100", func(ctx context.Context, _ int) error {
			_, err := g.operations().ListOperations(ctx, &pb.ListOperationsRequest{PageSize: 100})
			return err
		}),
		g.timed(ctx, f, "ListOperations of a machine", func(ctx context.Context, _ int) error {
			_, err := g.operations().ListOperations(ctx, &pb.ListOperationsRequest{Filter: "machine_id=" +
				fill.Machine(some.IntN(f.Machines))})
			return err
		}),
		g.timed(ctx, f, "ListOperations, phase=RUNNING (none)", func(ctx context.Context, _ int) error {
			_, err := g.operations().ListOperations(ctx, &pb.ListOperationsRequest{Filter: "phase=RUNNING"})
			return err
		}),
		g.timed(ctx, f, "ListOperations, phase=FAILED, 100", func(ctx context.Context, _ int) error {
			_, err := g.operations().ListOperations(ctx, &pb.ListOperationsRequest{Filter: "phase=FAILED", PageSize: 100})
			return err
		}),
	)
}

func since(changed int) string {
	return fmt.Sprintf("ListMachines, updated_since, %d changed", changed)
}

// change changes machines, each in a transaction of its own.
func (g *rig) change(ctx context.Context, f *fleet) error {
	for n := range min(g.o.changed, f.Machines) {
		_, err := g.Admin.Exec(ctx, "UPDATE machines SET config_generation = config_generation + 1 WHERE machine_id = $1",
			fill.Machine(n*(f.Machines/min(g.o.changed, f.Machines))))
		if err != nil {
			return fmt.Errorf("change a machine: %w", err)
		}
	}
	return nil
}

// reconcile asks what has changed, by time and by cursor, when much has and when nothing has.
func (g *rig) reconcile(ctx context.Context, f *fleet) error {
	head, err := g.machines().ListMachines(ctx, &pb.ListMachinesRequest{PageSize: 1})
	if err != nil {
		return err
	}
	// Whatever was stamped before lies before this time.
	var from time.Time
	if err := g.Admin.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&from); err != nil {
		return err
	}
	if err := g.change(ctx, f); err != nil {
		return err
	}
	changed := min(g.o.changed, f.Machines)
	f.changed = changed
	ask := func(r *pb.ListMachinesRequest, want int) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error {
			got, err := g.machines().ListMachines(ctx, r)
			if err == nil && len(got.GetMachines()) != want {
				err = fmt.Errorf("%d machines instead of %d", len(got.GetMachines()), want)
			}
			return err
		}
	}
	last, err := g.machines().ListMachines(ctx, &pb.ListMachinesRequest{Cursor: head.GetNextCursor(), PageSize: 1000})
	if err != nil {
		return err
	}
	if f.Reconcile, err = g.used(float64(g.o.calls+uncounted), func() error {
		return g.timed(ctx, f, since(changed),
			ask(&pb.ListMachinesRequest{UpdatedSince: timestamppb.New(from), PageSize: 1000}, changed))
	}); err != nil {
		return err
	}
	return errors.Join(
		g.timed(ctx, f, "  the first 100 of them",
			ask(&pb.ListMachinesRequest{UpdatedSince: timestamppb.New(from), PageSize: 100}, min(100, changed))),
		g.timed(ctx, f, fmt.Sprintf("ListMachines, cursor, %d changed", changed),
			ask(&pb.ListMachinesRequest{Cursor: head.GetNextCursor(), PageSize: 1000}, changed)),
		g.timed(ctx, f, "ListMachines, cursor, nothing changed",
			ask(&pb.ListMachinesRequest{Cursor: last.GetNextCursor(), PageSize: 1000}, 0)),
	)
}

func (g *rig) filters(ctx context.Context, f *fleet) error {
	var errs []error
	for _, filter := range []string{
		"phase=MAINTENANCE", "phase=READY", "labels.fill.rare=yes", "labels.rack=r7", "labels.env=prod", "site=site-3",
		"effective_state=IDLE", "effective_state=BUSY", "conditions.NeedsIntervention=true", "node_state=quarantined",
	} {
		errs = append(errs, g.timed(ctx, f, "ListMachines, 100, "+filter, func(ctx context.Context, _ int) error {
			_, err := g.machines().ListMachines(ctx, &pb.ListMachinesRequest{Filter: filter, PageSize: 100})
			return err
		}))
	}
	return errors.Join(errs...)
}

// walk reads the whole fleet, page by page.
func (g *rig) walk(ctx context.Context, f *fleet) (err error) {
	if f.Machines == g.o.machines {
		end, err := benchrig.StartProfile(g.o.profile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	before, err := g.CPU()
	if err != nil {
		return err
	}
	began, n, page := time.Now(), 0, ""
	for {
		got, err := g.machines().ListMachines(ctx, &pb.ListMachinesRequest{PageSize: 1000, PageToken: page})
		if err != nil {
			return err
		}
		if n += len(got.GetMachines()); len(got.GetMachines()) > 0 && len(got.GetMachines()[0].GetLabels()) != 5 {
			return errors.New("a machine has not its five labels")
		}
		if page = got.GetNextPageToken(); page == "" {
			break
		}
	}
	if n != f.Machines {
		return fmt.Errorf("the walk has %d machines of %d", n, f.Machines)
	}
	f.Walk.Seconds = time.Since(began).Seconds()
	f.Walk.PerSecond = float64(n) / f.Walk.Seconds
	after, err := g.CPU()
	f.Walk.CPU = after.Since(before, float64(n)).Times(1000)
	return err
}

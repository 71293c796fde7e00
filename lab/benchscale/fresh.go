package main

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/fill"
)

// fresh asks what everybody asks right after a load, when the database knows nothing yet of what is in its tables.
func (g *rig) fresh(ctx context.Context, f *fleet) error {
	before, err := g.scanned(ctx)
	if err != nil {
		return err
	}
	list := func(r *pb.ListMachinesRequest) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error {
			_, err := g.machines().ListMachines(ctx, r)
			return err
		}
	}
	for _, c := range []struct {
		name string
		call func(context.Context, int) error
	}{
		{"GetMachine", func(ctx context.Context, i int) error {
			_, err := g.machines().GetMachine(ctx, &pb.GetMachineRequest{MachineId: fill.Machine(i % f.Machines)})
			return err
		}},
		{"ListMachines, 100", list(&pb.ListMachinesRequest{PageSize: 100})},
		{"ListMachines, 100, labels.rack=r7", list(&pb.ListMachinesRequest{PageSize: 100, Filter: "labels.rack=r7"})},
		{"ListMachines, 100, phase=MAINTENANCE", list(&pb.ListMachinesRequest{PageSize: 100, Filter: "phase=MAINTENANCE"})},
		{"ListMachines, updated_since, nothing",
			list(&pb.ListMachinesRequest{PageSize: 100, UpdatedSince: timestamppb.New(time.Now().Add(-time.Second))})},
		{"admission to budgets", func(ctx context.Context, _ int) error {
			_, _, err := g.store.AdmitDestructive(ctx, time.Now())
			return err
		}},
		{"due operations", func(ctx context.Context, _ int) error {
			_, err := g.store.DueOperations(ctx, time.Now(), 1000)
			return err
		}},
	} {
		l, err := g.times(ctx, c.call)
		if err != nil {
			return err
		}
		f.Fresh = append(f.Fresh, named{c.name, l})
	}
	after, err := g.scanned(ctx)
	f.FreshScanned = after - before
	return err
}

// scanned is what has been read by scans of whole tables, of those that grow with the fleet.
func (g *rig) scanned(ctx context.Context) (n int64, err error) {
	err = g.Admin.QueryRow(ctx, `SELECT coalesce(sum(seq_tup_read), 0)::bigint FROM pg_stat_user_tables
		WHERE relname IN ('machines', 'machine_conditions', 'agents', 'agent_sessions', 'operations')`).Scan(&n)
	return n, err
}

// raw reads the pages of a walk from the database itself, and looks at nothing in them: what is left is what the
// database does.
func (g *rig) raw(ctx context.Context, f *fleet) error {
	began, after, n := time.Now(), "", 0
	for {
		rows, err := g.Admin.Query(ctx,
			"SELECT * FROM machines WHERE deleted_at IS NULL AND machine_id > $1 ORDER BY machine_id LIMIT 1000", after)
		if err != nil {
			return err
		}
		got := 0
		for rows.Next() {
			after = string(rows.RawValues()[0])
			got++
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if n += got; got == 0 {
			f.Raw = float64(n) / time.Since(began).Seconds()
			return nil
		}
	}
}

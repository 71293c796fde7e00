package scale

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/fill"
)

// fresh makes the usual calls right after a load, when the database knows nothing yet of the content of its tables.
func (b *bench) fresh(ctx context.Context) error {
	before, err := b.scanned(ctx)
	if err != nil {
		return err
	}
	const right = "right after the load: "
	err = b.time(ctx, "",
		call{right + "GetMachine", func(ctx context.Context, i int) error {
			_, err := b.api().GetMachine(ctx, &pb.GetMachineRequest{MachineId: fill.Machine(i % b.machines)})
			return err
		}},
		b.list(right+"ListMachines, 100", -1, &pb.ListMachinesRequest{PageSize: 100}),
		b.list(right+"ListMachines, 100, labels.rack=r7", -1,
			&pb.ListMachinesRequest{PageSize: 100, Filter: "labels.rack=r7"}),
		b.list(right+"ListMachines, 100, phase=MAINTENANCE", -1,
			&pb.ListMachinesRequest{PageSize: 100, Filter: "phase=MAINTENANCE"}),
		b.list(right+"ListMachines, updated_since, nothing", -1,
			&pb.ListMachinesRequest{PageSize: 100, UpdatedSince: timestamppb.New(time.Now().Add(-time.Second))}),
		call{right + "admission to budgets", func(ctx context.Context, _ int) error {
			_, _, err := b.store.Budgets.AdmitDestructive(ctx, time.Now())
			return err
		}},
		call{right + "due operations", func(ctx context.Context, _ int) error {
			_, err := b.store.OperationQueries.DueOperations(ctx, time.Now(), 1000)
			return err
		}},
	)
	if err != nil {
		return err
	}
	after, err := b.scanned(ctx)
	b.run.Add(
		right+"rows read by scans of whole tables",
		float64(after-before),
		"",
		nil,
		"for all of these calls together",
	)
	return err
}

// scanned counts the rows that scans of whole tables have read, of those that grow with the fleet.
func (b *bench) scanned(ctx context.Context) (n int64, err error) {
	err = b.Admin.QueryRow(ctx, `SELECT coalesce(sum(seq_tup_read), 0)::bigint FROM pg_stat_user_tables
		WHERE relname IN ('machines', 'machine_conditions', 'agents', 'agent_sessions', 'operations')`).Scan(&n)
	return n, err
}

// reads are of one thing each.
func (b *bench) reads(ctx context.Context) error {
	some := rand.New(rand.NewPCG(1, 2))
	operations := pb.NewOperationServiceClient(b.Conn)
	list := func(name string, r func() *pb.ListOperationsRequest) call {
		return call{"ListOperations" + name, func(ctx context.Context, _ int) error {
			_, err := operations.ListOperations(ctx, r())
			return err
		}}
	}
	return b.time(ctx, "",
		call{"GetMachine", func(ctx context.Context, _ int) error {
			_, err := b.api().GetMachine(ctx, &pb.GetMachineRequest{MachineId: fill.Machine(some.IntN(b.machines))})
			return err
		}},
		call{"GetOperation", func(ctx context.Context, _ int) error {
			n := some.IntN(b.machines) / fill.OperationEvery * fill.OperationEvery
			_, err := operations.GetOperation(ctx, &pb.GetOperationRequest{OperationId: fill.Operation(n)})
			return err
		}},
		list(", newest 100", func() *pb.ListOperationsRequest { return &pb.ListOperationsRequest{PageSize: 100} }),
		list(" of a machine", func() *pb.ListOperationsRequest {
			return &pb.ListOperationsRequest{Filter: "machine_id=" + fill.Machine(some.IntN(b.machines))}
		}),
		list(", phase=RUNNING (none)",
			func() *pb.ListOperationsRequest { return &pb.ListOperationsRequest{Filter: "phase=RUNNING"} }),
		list(", phase=FAILED, 100",
			func() *pb.ListOperationsRequest {
				return &pb.ListOperationsRequest{Filter: "phase=FAILED", PageSize: 100}
			}),
	)
}

func since(changed int) string {
	return fmt.Sprintf("ListMachines, updated_since, %d changed", changed)
}

// change changes machines, each in a transaction of its own.
func (b *bench) change(ctx context.Context, changed int) error {
	for n := range changed {
		_, err := b.Admin.Exec(ctx, "UPDATE machines SET config_generation = config_generation + 1 WHERE machine_id = $1",
			fill.Machine(n*(b.machines/changed)))
		if err != nil {
			return fmt.Errorf("change a machine: %w", err)
		}
	}
	return nil
}

// reconcile lists the changes, by time and by cursor, when much has changed and when nothing has.
func (b *bench) reconcile(ctx context.Context) error {
	head, err := b.api().ListMachines(ctx, &pb.ListMachinesRequest{PageSize: 1})
	if err != nil {
		return err
	}
	// Whatever was stamped before lies before this time.
	var from time.Time
	if err := b.Admin.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&from); err != nil {
		return err
	}
	changed := min(b.o.changed, b.machines)
	if err := b.change(ctx, changed); err != nil {
		return err
	}
	last, err := b.api().ListMachines(ctx, &pb.ListMachinesRequest{Cursor: head.GetNextCursor(), PageSize: 1000})
	if err != nil {
		return err
	}
	at := timestamppb.New(from)
	use, err := b.Used(ctx, func() error {
		return b.time(ctx, "", b.list(since(changed), changed, &pb.ListMachinesRequest{UpdatedSince: at, PageSize: 1000}))
	})
	if err != nil {
		return err
	}
	b.run.Figures[len(b.run.Figures)-1].Limit = report.AtMost(mostSince)
	use = use.Each(float64(b.o.calls + uncounted))
	b.run.Add("processor time of a page of changes", use.CPU(), "ms", nil, "%s", use)
	return b.time(ctx, "",
		b.list("the first 100 of them", min(100, changed), &pb.ListMachinesRequest{UpdatedSince: at, PageSize: 100}),
		b.list(fmt.Sprintf("ListMachines, cursor, %d changed", changed), changed,
			&pb.ListMachinesRequest{Cursor: head.GetNextCursor(), PageSize: 1000}),
		b.list("ListMachines, cursor, nothing changed", 0,
			&pb.ListMachinesRequest{Cursor: last.GetNextCursor(), PageSize: 1000}),
	)
}

func (b *bench) filters(ctx context.Context) error {
	for _, filter := range []string{
		"phase=MAINTENANCE", "phase=READY", "labels.fill.rare=yes", "labels.rack=r7", "labels.env=prod", "site=site-3",
		"effective_state=IDLE", "effective_state=BUSY", "conditions.NeedsIntervention=true", "node_state=quarantined",
	} {
		call := b.list("ListMachines, 100, "+filter, -1, &pb.ListMachinesRequest{Filter: filter, PageSize: 100})
		if err := b.time(ctx, "", call); err != nil {
			return err
		}
	}
	return nil
}

// walk reads the whole fleet, page by page, and then the same pages from the database alone.
func (b *bench) walk(ctx context.Context) error {
	n := float64(b.machines)
	use, err := b.Used(ctx, func() error {
		if b.machines == b.o.machines {
			return b.Profiled(func() error { return b.pages(ctx) })
		}
		return b.pages(ctx)
	})
	if err != nil {
		return err
	}
	raw, err := b.raw(ctx)
	if err != nil {
		return err
	}
	b.run.Add("full walk", n/use.Seconds, "machines/s", report.AtLeast(leastWalk, ""),
		"%.1f s; the database alone has %.0f machines/s of the same pages", use.Seconds, raw)
	use = use.Each(n / 1000)
	b.run.Add("processor time of a machine of the walk", use.CPU(), "µs", nil, "%s", use)
	return nil
}

func (b *bench) pages(ctx context.Context) error {
	n, page := 0, ""
	for {
		got, err := b.api().ListMachines(ctx, &pb.ListMachinesRequest{PageSize: 1000, PageToken: page})
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
	if n != b.machines {
		return fmt.Errorf("the walk has %d machines of %d", n, b.machines)
	}
	return nil
}

// raw returns the rate at which the database alone returns the pages of a walk, to a client that only counts rows.
func (b *bench) raw(ctx context.Context) (float64, error) {
	began, after, n := time.Now(), "", 0
	for {
		rows, err := b.Admin.Query(ctx,
			"SELECT * FROM machines WHERE deleted_at IS NULL AND machine_id > $1 ORDER BY machine_id LIMIT 1000", after)
		if err != nil {
			return 0, err
		}
		got := 0
		for rows.Next() {
			after = string(rows.RawValues()[0])
			got++
		}
		if err := rows.Err(); err != nil {
			return 0, err
		}
		if n += got; got == 0 {
			return float64(n) / time.Since(began).Seconds(), nil
		}
	}
}

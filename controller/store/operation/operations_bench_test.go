package operation_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// BenchmarkOperation is one operation of one step as an engine has the store do it: its start, the first look, the
// grant, the result. Many machines are at it at once, as many as the sub-benchmark's name says. The processor times are
// those of this process and of the database; they hardly depend on what else the computer does.
//
//	go test ./controller/store -run '^$' -bench Operation -benchtime 2000x
func BenchmarkOperation(b *testing.B) {
	for _, machines := range []int{1, 8, 32} {
		b.Run(fmt.Sprint(machines), func(b *testing.B) { benchmarkOperation(b, machines) })
	}
}

func benchmarkOperation(b *testing.B, machines int) {
	c := &storetest.Trips{}
	s := storetest.With(b, store.Config{Tracer: c, Logger: slog.New(slog.DiscardHandler)})
	agents := make([]storetest.Enrolled, machines)
	for i := range agents {
		agents[i] = storetest.Live(b, s, fmt.Sprintf("m-%d", i))
	}
	next := make(chan int)
	run := func(from, n int) {
		var wg sync.WaitGroup
		for _, a := range agents {
			wg.Go(func() {
				for i := range next {
					if err := netbootOnce(b.Context(), s, a, i+1); err != nil {
						b.Error(err)
					}
				}
			})
		}
		for i := range n {
			next <- from + i
		}
		close(next)
		wg.Wait()
		next = make(chan int)
	}
	const warm = 200 // every connection plans each statement a few times first
	run(0, warm)
	statements, trips, own, server, wal := c.Statements.Load(), c.RoundTrips.Load(), storetest.OwnTime(b),
		storetest.ServerTime(b, s), storetest.WalPosition(b, s)
	b.ResetTimer()
	run(warm, b.N)
	b.StopTimer()
	n := float64(b.N)
	b.ReportMetric(float64((storetest.OwnTime(b)-own).Microseconds())/n, "own-cpu-µs/op")
	b.ReportMetric(float64((storetest.ServerTime(b, s)-server).Microseconds())/n, "server-cpu-µs/op")
	b.ReportMetric(float64(c.Statements.Load()-statements)/n, "statements/op")
	b.ReportMetric(float64(c.RoundTrips.Load()-trips)/n, "trips/op")
	b.ReportMetric(float64(storetest.WalPosition(b, s)-wal)/n, "wal-B/op")
}

// netbootOnce does what an engine does for one operation that leaves the agent its session. The number counts up for
// the agent.
func netbootOnce(ctx context.Context, s *store.Store, a storetest.Enrolled, n int) error {
	op, _, err := s.Operations.Start(ctx, operationstore.StartRequest{MachineID: a.Machine, RequestID: fmt.Sprint("n-", n),
		Type: fleet.Netboot, Actor: "tester"}, storetest.Now())
	if err != nil {
		return err
	}
	id := op.GetOperationId()
	first, err := s.Operations.Decide(ctx, id, operation.Evaluate{}, storetest.Now())
	if err != nil {
		return err
	}
	c := first.Command
	if _, err := s.Operations.Decide(ctx, id, storetest.Ask(a, c, uint64(n), 1), storetest.Now()); err != nil {
		return err
	}
	d, err := s.Operations.Decide(ctx, id, operation.Resulted{
		CommandID: c.ID, AgentID: a.ID, Outcome: operation.OutcomeSucceeded,
		Evidence: map[string]string{evidence.BootNext: "PXE"},
	}, storetest.Now())
	if err == nil && d.Phase != operation.Succeeded {
		err = fmt.Errorf("it is %s", d.Phase)
	}
	return err
}

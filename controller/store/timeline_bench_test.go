package store_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// timelineTables have triggers that write the history.
var timelineTables = []string{
	"machines", "machine_conditions", "operations", "operation_steps", "commands", "node_state_log", "audit_log",
}

func switchHistory(t testing.TB, s *store.Store, on bool) {
	t.Helper()
	rows, err := s.Pool().Query(t.Context(), `SELECT format('ALTER TABLE %s %s TRIGGER %I', tgrelid::regclass, $1::text, tgname)
		FROM pg_trigger WHERE tgname LIKE '%\_timeline%' AND NOT tgisinternal AND tgrelid::regclass::text = ANY($2)`,
		map[bool]string{true: "ENABLE", false: "DISABLE"}[on], timelineTables)
	if err != nil {
		t.Fatal(err)
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range statements {
		if err := execSQL(t, s, q); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkHistory is a whole reboot at the store, without and with history.
func BenchmarkHistory(b *testing.B) {
	s := storetest.New(b)
	const machines, turn = 4, 100 // long turns: a switch makes every connection plan anew
	agents := make([]enrolled, machines)
	for i := range agents {
		agents[i] = live(b, s, fmt.Sprintf("m-%d", i))
	}
	// In turns: tables grow and slow down while this runs.
	used, n := map[bool]time.Duration{}, 0
	b.ResetTimer()
	for range b.N {
		for _, on := range []bool{false, true} {
			switchHistory(b, s, on)
			used[on] += cpuOf(b, s, func() {
				first := n
				n += turn
				for _, err := range together(b, machines, func(ctx context.Context, i int) error { return reboots(ctx, s, agents[i], first, turn) }) {
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
	each := func(on bool) float64 { return float64(used[on].Microseconds()) / float64(b.N*machines*turn) }
	b.ReportMetric(each(false), "cpu-µs/without")
	b.ReportMetric(each(true), "cpu-µs/with")
	b.ReportMetric(100*(each(true)/each(false)-1), "%added")
}

func reboots(ctx context.Context, s *store.Store, a enrolled, first, times int) error {
	for n := range times {
		if err := rebootOnce(ctx, s, a, first+n+1); err != nil {
			return err
		}
	}
	return nil
}

func rebootOnce(ctx context.Context, s *store.Store, a enrolled, n int) error {
	op, _, err := s.Start(ctx, store.StartRequest{MachineID: a.machine, RequestID: fmt.Sprint("r-", n), Type: fleet.Reboot, Actor: "tester"}, now())
	if err != nil {
		return err
	}
	id := op.GetOperationId()
	d, err := s.Decide(ctx, id, 0, operation.Look{}, now())
	if err != nil {
		return err
	}
	c := d.Command
	for _, e := range []operation.Event{
		operation.AckedByAgent{CommandID: c.ID, AgentID: a.id},
		ask(a, c, uint64(n), 1),
		operation.Resulted{CommandID: c.ID, AgentID: a.id, Outcome: operation.OutcomeSucceeded, SessionBootID: fmt.Sprint("boot-", n+1)},
	} {
		if d, err = s.Decide(ctx, id, 0, e, now()); err != nil {
			return err
		}
	}
	if d.Phase != operation.Succeeded {
		return fmt.Errorf("the reboot is %s", d.Phase)
	}
	return nil
}

// cpuOf is what fn costs in time of this process and of the store's server processes: a busy machine blurs any other time.
func cpuOf(t testing.TB, s *store.Store, fn func()) time.Duration {
	t.Helper()
	before := cpuTime(t, s)
	fn()
	return cpuTime(t, s) - before
}

func cpuTime(t testing.TB, s *store.Store) time.Duration {
	t.Helper()
	rows, err := s.Pool().Query(t.Context(), "SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
	if err != nil {
		t.Fatal(err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	var sum time.Duration
	for _, pid := range pids {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
		if err != nil {
			t.Fatal(err)
		}
		ns, err := strconv.ParseInt(strings.Fields(string(raw))[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(ns)
	}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		t.Fatal(err)
	}
	return sum + time.Duration(self.Utime.Nano()+self.Stime.Nano())
}

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
	"machines", "machine_conditions", "operations", "operation_steps", "commands", "node_state_log", "audit_log", "workflows",
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

// spent is what some reboots have cost.
type spent struct {
	cpu, wall time.Duration
	wal       int64
}

// BenchmarkHistory is a whole reboot at the store, without and with history, by four clients at once. CPU time is that of this
// process and of the database; write-ahead log and entries hardly depend on what else the computer does.
func BenchmarkHistory(b *testing.B) {
	s := storetest.New(b)
	const machines, turn = 4, 100 // long turns: a switch makes every connection plan anew
	agents := make([]enrolled, machines)
	for i := range agents {
		agents[i] = live(b, s, fmt.Sprintf("m-%d", i))
	}
	// In turns: tables grow and slow down while this runs.
	used, n := map[bool]spent{}, 0
	entries := count(b, s, "SELECT count(*) FROM machine_timeline")
	b.ResetTimer()
	for range b.N {
		for _, on := range []bool{false, true} {
			switchHistory(b, s, on)
			began, wal := time.Now(), walPosition(b, s)
			cpu := cpuOf(b, s, func() {
				first := n
				n += turn
				for _, err := range together(b, machines, func(ctx context.Context, i int) error { return reboots(ctx, s, agents[i], first, turn) }) {
					if err != nil {
						b.Fatal(err)
					}
				}
			})
			u := used[on]
			used[on] = spent{u.cpu + cpu, u.wall + time.Since(began), u.wal + walPosition(b, s) - wal}
		}
	}
	reboots := float64(b.N * machines * turn)
	for on, name := range map[bool]string{false: "without", true: "with"} {
		b.ReportMetric(float64(used[on].cpu.Microseconds())/reboots, "cpu-µs/"+name)
		b.ReportMetric(float64(used[on].wal)/reboots, "wal-B/"+name)
		b.ReportMetric(reboots/used[on].wall.Seconds(), "reboots/s/"+name)
	}
	b.ReportMetric(100*(float64(used[true].cpu)/float64(used[false].cpu)-1), "%added-cpu")
	b.ReportMetric(float64(count(b, s, "SELECT count(*) FROM machine_timeline")-entries)/reboots, "entries")
}

// walPosition is how much write-ahead log there ever was.
func walPosition(t testing.TB, s *store.Store) int64 {
	t.Helper()
	var n int64
	if err := s.Pool().QueryRow(t.Context(), "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
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
	return serverTime(t, s) + ownTime(t)
}

// serverTime is what the server processes of the store have used.
func serverTime(t testing.TB, s *store.Store) time.Duration {
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
	return sum
}

// ownTime is what this process has used.
func ownTime(t testing.TB) time.Duration {
	t.Helper()
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		t.Fatal(err)
	}
	return time.Duration(self.Utime.Nano() + self.Stime.Nano())
}

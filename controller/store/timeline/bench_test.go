package timeline_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// timelineTables have triggers that write the history.
var timelineTables = []string{
	"machines", "machine_conditions", "operations", "operation_steps", "commands", "node_state_log", "audit_log",
	"workflows",
}

func switchHistory(t testing.TB, s *store.Store, on bool) {
	t.Helper()
	rows, err := s.DB.Pool().Query(t.Context(),
		`SELECT format('ALTER TABLE %s %s TRIGGER %I', tgrelid::regclass, $1::text, tgname)
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
		if err := storetest.ExecSQL(t, s, q); err != nil {
			t.Fatal(err)
		}
	}
}

// spent is what some reboots have cost.
type spent struct {
	cpu, wall time.Duration
	wal       int64
}

// BenchmarkHistory is a whole reboot at the store, without and with history, by four clients at once. CPU time is that
// of this process and of the database; write-ahead log and entries hardly depend on what else the computer does.
func BenchmarkHistory(b *testing.B) {
	s := storetest.New(b)
	const machines, turn = 4, 100 // long turns: a switch makes every connection plan anew
	agents := make([]storetest.Enrolled, machines)
	for i := range agents {
		agents[i] = storetest.Live(b, s, fmt.Sprintf("m-%d", i))
	}
	// In turns: tables grow and slow down while this runs.
	used, n := map[bool]spent{}, 0
	entries := storetest.Count(b, s, "SELECT count(*) FROM machine_timeline")
	b.ResetTimer()
	for range b.N {
		for _, on := range []bool{false, true} {
			switchHistory(b, s, on)
			began, wal := time.Now(), storetest.WalPosition(b, s)
			cpu := storetest.ProcessorTime(b, s, func() {
				first := n
				n += turn
				for _, err := range storetest.Together(b, machines,
					func(ctx context.Context, i int) error { return reboots(ctx, s, agents[i], first, turn) }) {
					if err != nil {
						b.Fatal(err)
					}
				}
			})
			u := used[on]
			used[on] = spent{u.cpu + cpu, u.wall + time.Since(began), u.wal + storetest.WalPosition(b, s) - wal}
		}
	}
	reboots := float64(b.N * machines * turn)
	for on, name := range map[bool]string{false: "without", true: "with"} {
		b.ReportMetric(float64(used[on].cpu.Microseconds())/reboots, "cpu-µs/"+name)
		b.ReportMetric(float64(used[on].wal)/reboots, "wal-B/"+name)
		b.ReportMetric(reboots/used[on].wall.Seconds(), "reboots/s/"+name)
	}
	b.ReportMetric(100*(float64(used[true].cpu)/float64(used[false].cpu)-1), "%added-cpu")
	b.ReportMetric(float64(storetest.Count(b, s, "SELECT count(*) FROM machine_timeline")-entries)/reboots, "entries")
}

func reboots(ctx context.Context, s *store.Store, a storetest.Enrolled, first, times int) error {
	for n := range times {
		if err := storetest.RebootOnce(ctx, s, a, first+n+1); err != nil {
			return err
		}
	}
	return nil
}

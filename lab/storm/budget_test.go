//go:build storm

package storm

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/harness"
)

var (
	machines = flag.Int("machines", 10_000, "machines that are repaved at once")
	slots    = flag.Int("slots", 50, "the budget")
	sites    = flag.Int("sites", 10, "site agents that execute for them")
	limit    = flag.Duration("limit", 25*time.Minute, "how long all of it may take")
)

func TestMain(m *testing.M) { testkit.Main(m) }

func minutes(n int) *config.Duration {
	return &config.Duration{Duration: time.Duration(n) * time.Minute}
}

// calm are limits that a busy machine keeps.
func calm(c *config.Config) {
	none := 0
	for _, kind := range []string{"reboot", "netboot", "repave", "net", "wait_for_agent"} {
		c.Steps[kind] = config.Step{Timeout: minutes(10), Retries: &none}
	}
}

// TestTenThousandRepavesAtOnce asks for a repave of every machine of a fleet at once, under a budget. By the machines' own
// journals, which neither controller nor agents read, never are more being written than the budget has slots, though
// the controller is killed in the middle; and all come to their end.
func TestTenThousandRepavesAtOnce(t *testing.T) {
	url := testkit.Database(t)
	c := harness.New(t, harness.Options{Configure: calm, DatabaseURL: url})
	world, err := sim.OpenWorld(sim.WorldConfig{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range *sites {
		c.NewSite(t, site(i), world, harness.MachineOptions{RepaveTime: 200 * time.Millisecond}).WaitConnected()
	}
	register(t, c, url)
	budgets := baremetalv1.NewBudgetServiceClient(c.Conn())
	harness.Must(t, budgets.SetBudget, &baremetalv1.SetBudgetRequest{
		Budget: &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: int32(*slots)},
	})
	asked := time.Now()
	parallel(t, *machines, func(i int) {
		harness.Must(t, c.Machines().ReimageMachine, &baremetalv1.ReimageMachineRequest{
			MachineId: name(i), RequestId: "storm", ImageRef: "ubuntu-2204",
		})
	})
	all := time.Since(asked)
	say("%d repaves asked for in %.1f s", *machines, all.Seconds())

	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(t.Context()))
	killed, most, told := false, 0, time.Now()
	testkit.Eventually(t, *limit, func() bool {
		var held, done, failed int
		err := db.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM budget_slots WHERE released_at IS NULL),
			count(*) FILTER (WHERE phase IN ('SUCCEEDED', 'FAILED', 'CANCELED')),
			count(*) FILTER (WHERE phase IN ('FAILED', 'CANCELED')) FROM operations WHERE type = 'REIMAGE'`).Scan(&held, &done, &failed)
		if err != nil || held > *slots || failed > 0 {
			t.Fatalf("%d slots are held of %d, %d operations ended without success, %v", held, *slots, failed, err)
		}
		if most = max(most, held); time.Since(told) > 10*time.Second {
			told = time.Now()
			say("%d of %d have ended, %d slots are held", done, *machines, held)
		}
		if !killed && done > *machines/2 {
			killed = true
			c.Restart()
		}
		return done == *machines
	}, "not all repaves ended")
	took := time.Since(asked)
	peak, effects := peakOf(t, world)
	fmt.Printf("repaves asked for at once       %d, in %.1f s\n", *machines, all.Seconds())
	fmt.Printf("budget                          %d at once, one kill of the controller\n", *slots)
	fmt.Printf("most slots held                 %d\n", most)
	fmt.Printf("most being written              %d, by the machines' journals\n", peak)
	fmt.Printf("all done after                  %.1f s (%.1f /s)\n", took.Seconds(), float64(*machines)/took.Seconds())
	if peak > *slots || peak == 0 || effects != *machines || !killed {
		t.Errorf("%d were being written at once, %d in all; killed: %t", peak, effects, killed)
	}
}

func say(format string, args ...any) { println("storm: " + fmt.Sprintf(format, args...)) }

func site(i int) string { return fmt.Sprintf("storm-%d", i) }

func name(i int) string { return fmt.Sprintf("storm-%05d", i) }

// register makes machines in MAINTENANCE. That phase is set in the database: ten thousand operations before the ones that
// matter would be a test of their own.
func register(t *testing.T, c *harness.Cluster, url string) {
	t.Helper()
	say("%d machines", *machines)
	parallel(t, *machines, func(i int) {
		c.Register(&baremetalv1.Machine{MachineId: name(i), Spec: &baremetalv1.MachineSpec{Provider: "fake", Site: site(i % *sites)}})
	})
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(t.Context()))
	if _, err := db.Exec(t.Context(), "UPDATE machines SET phase = 'MAINTENANCE'"); err != nil {
		t.Fatal(err)
	}
}

// parallel calls fn for 0 to n-1, some at a time.
func parallel(t *testing.T, n int, fn func(i int)) {
	t.Helper()
	next := make(chan int)
	g, _ := task.New(t.Context())
	for range 32 {
		g.Go("caller", func(context.Context) error {
			for i := range next {
				fn(i)
			}
			return nil
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// peakOf counts how many machines were being written at once at most: from the first byte until what was written had been
// read back.
func peakOf(t *testing.T, w *sim.World) (peak, effects int) {
	t.Helper()
	records, err := sim.ReadJournal(w.Dir())
	if err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(records, func(a, b sim.EffectRecord) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Seq, b.Seq)) })
	now := 0
	for _, r := range records {
		switch {
		case r.Kind != sim.KindRepave:
		case r.Stage == sim.StageEffect:
			effects++
			now++
			peak = max(peak, now)
		case r.Stage == sim.StageVerified:
			now--
		}
	}
	return peak, effects
}

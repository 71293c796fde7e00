//go:build storm

package storm

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
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
	limit    = flag.Duration("limit", 15*time.Minute, "how long all of it may take")
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

// TestTenThousandRepavesAtOnce asks for a repave of every machine of a fleet at once, under a budget. By the machines'
// own journals, which neither controller nor agents read, the number of concurrent writes never exceeds the budget's
// slots. The controller is killed in the middle, and all operations end.
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
	register(t, url)
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

	db := connect(t, url)
	var begun time.Time // when all had been asked, by the database's clock
	if err := db.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&begun); err != nil {
		t.Fatal(err)
	}
	killed, told, most, peaks := false, time.Now(), state{}, measured{}
	testkit.Eventually(t, *limit, func() bool {
		now := look(t, db)
		if now.held > *slots || now.failed > 0 || now.silent > 0 && now.ended > 0 {
			t.Fatalf("of %d slots %d are held, %d operations ended without success (%s), %d wait and don't say for what",
				*slots, now.held, now.failed, whyFailed(t, db), now.silent)
		}
		most.held, most.waiting = max(most.held, now.held), max(most.waiting, now.waiting)
		peaks.take(t)
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			say("%d of %d have ended, %d slots are held, %d wait", now.ended, *machines, now.held, now.waiting)
		}
		if !killed && now.ended > *machines/2 {
			killed = true
			say("killing the controller")
			c.Restart()
		}
		return now.ended == *machines
	}, "not all repaves ended")
	took := time.Since(asked)
	peak, effects := peakOf(t, world)
	overtaken := overtakenSince(t, db, begun)
	rate := float64(*machines) / took.Seconds()
	fmt.Printf("repaves asked for at once       %d, in %.1f s\n", *machines, all.Seconds())
	fmt.Printf("budget                          %d at once, one kill of the controller\n", *slots)
	fmt.Printf("most slots held                 %d; %d waited at most, each with WAITING_FOR_BUDGET\n", most.held,
		most.waiting)
	fmt.Printf("most being written              %d, by the machines' journals: %s\n", peak, metOr(peak <= *slots))
	fmt.Printf("slots given out of order        %d: %s\n", overtaken, metOr(overtaken <= *machines/100))
	fmt.Printf("all done after                  %.1f s (%.1f /s, %.1f for each slot)\n", took.Seconds(), rate,
		rate/float64(*slots))
	fmt.Printf(
		"memory of controller, %2d site agents and this test: %d MiB at most; simulated machines on disk: %.1f KiB each\n",
		*sites, peaks.memory>>20, sizeOf(t, world.Dir())/1024/float64(*machines))
	if peak > *slots || peak == 0 || effects != *machines || !killed || most.waiting == 0 {
		t.Errorf("%d were being written at once, %d in all; killed: %t; %d waited", peak, effects, killed, most.waiting)
	}
	if overtaken > *machines/100 {
		t.Errorf("%d slots were given out of order", overtaken)
	}
}

func metOr(ok bool) string {
	if ok {
		return "met"
	}
	return "missed"
}

// state is how far all of it is. Silent ones are PENDING without a slot and have been looked at, and name nothing that
// they wait for.
type state struct{ held, ended, failed, waiting, silent int }

func look(t *testing.T, db *pgx.Conn) (s state) {
	t.Helper()
	err := db.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM budget_slots WHERE released_at IS NULL),
		count(*) FILTER (WHERE phase IN ('SUCCEEDED', 'FAILED', 'CANCELED')),
		count(*) FILTER (WHERE phase IN ('FAILED', 'CANCELED')),
		count(*) FILTER (WHERE phase = 'PENDING' AND wait_reason = 'WAITING_FOR_BUDGET'),
		count(*) FILTER (WHERE phase = 'PENDING' AND wait_reason <> 'WAITING_FOR_BUDGET'
			AND created_at < now() - interval '4 minutes'
			AND NOT EXISTS (SELECT 1 FROM budget_slots b WHERE b.operation_id = o.operation_id))
		FROM operations o WHERE type = 'REIMAGE'`).Scan(&s.held, &s.ended, &s.failed, &s.waiting, &s.silent)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// whyFailed returns the error of the first operation that failed.
func whyFailed(t *testing.T, db *pgx.Conn) (why string) {
	t.Helper()
	err := db.QueryRow(t.Context(),
		`SELECT coalesce(min(phase || ' ' || coalesce(error::text, '')), 'none') FROM operations
		WHERE type = 'REIMAGE' AND phase IN ('FAILED', 'CANCELED')`).Scan(&why)
	if err != nil {
		t.Fatal(err)
	}
	return why
}

// overtakenSince counts operations that got their slot in a later round than one that was created after them. It counts
// only slots that were taken after all had been created. One that is being looked at in the moment of a round is left
// for the next.
func overtakenSince(t *testing.T, db *pgx.Conn, begun time.Time) (n int) {
	t.Helper()
	err := db.QueryRow(t.Context(), `SELECT count(*) FROM (
		SELECT o.created_at,
			max(o.created_at) OVER (ORDER BY s.taken_at GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
		FROM budget_slots s JOIN operations o USING (operation_id) WHERE s.taken_at > $1) given
		WHERE before > created_at`, begun).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// measured is the most memory that the process has had resident.
type measured struct{ memory int64 }

func (m *measured) take(t *testing.T) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		t.Fatal(err)
	}
	m.memory = max(m.memory, resident*int64(os.Getpagesize()))
}

func sizeOf(t *testing.T, dir string) (bytes float64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytes += float64(info.Size())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close(context.WithoutCancel(t.Context())) })
	return db
}

func say(format string, args ...any) { println("storm: " + fmt.Sprintf(format, args...)) }

func site(i int) string { return fmt.Sprintf("storm-%d", i) }

func name(i int) string { return fmt.Sprintf("storm-%05d", i) }

// register makes machines in MAINTENANCE, in the database: ten thousand registrations and operations before the ones
// that matter would be a test of their own.
func register(t *testing.T, url string) {
	t.Helper()
	say("%d machines", *machines)
	_, err := connect(t, url).Exec(t.Context(),
		`INSERT INTO machines (machine_id, labels, spec, phase, node_state, node_state_changed_at, created_at)
		SELECT 'storm-' || lpad(n::text, 5, '0'), '{}',
			jsonb_build_object('provider', 'fake', 'site', 'storm-' || n % $2), 'MAINTENANCE', 'discovered', now(), now()
		FROM generate_series(0, $1 - 1) n`, *machines, *sites)
	if err != nil {
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

// peakOf counts how many machines were being written at once at most: from the first byte until what was written had
// been read back.
func peakOf(t *testing.T, w *sim.World) (peak, effects int) {
	t.Helper()
	records, err := sim.ReadJournal(w.Dir())
	if err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(records,
		func(a, b sim.EffectRecord) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Seq, b.Seq)) })
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

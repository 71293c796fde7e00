package pgtx_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// transactions counts those that were begun.
type transactions struct {
	mu sync.Mutex
	n  int
}

func (c *transactions) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(strings.ToLower(d.SQL), "begin") {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.n++
	}
	return ctx
}

func (c *transactions) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *transactions) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// held locks the machines in a transaction of somebody else's.
func held(t *testing.T, s *store.Store, machines ...string) (release func()) {
	t.Helper()
	tx, err := s.DB.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range machines {
		if _, err := tx.Exec(t.Context(), "SELECT 1 FROM machines WHERE machine_id = $1 FOR UPDATE", m); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// started is what became of one start.
type started struct {
	machine string
	made    bool
	err     error
}

func startAll(t *testing.T, s *store.Store, request string, machines ...string) (wait func() []started) {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all []started
	for _, m := range machines {
		wg.Go(func() {
			_, made, err := s.Operations.Start(t.Context(), rebootOf(m, request), storetest.Now())
			mu.Lock()
			defer mu.Unlock()
			all = append(all, started{m, made, err})
		})
	}
	return func() []started {
		wg.Wait()
		return all
	}
}

// Changes of different machines that come together are stored together, whatever becomes of each; a machine that
// somebody has locked holds up nobody else.
func TestChangesThatComeTogetherAreStoredTogether(t *testing.T) {
	c := &transactions{}
	s := storetest.With(t, store.Config{Tracer: c})
	for i := range 12 {
		storetest.Live(t, s, fmt.Sprintf("m-%d", i))
	}
	if _, made, err := s.Operations.Start(t.Context(), rebootOf("m-3", "before"), storetest.Now()); err != nil || !made {
		t.Fatal(made, err)
	}
	release := held(t, s, "m-0", "m-1", "m-2")
	first := startAll(t, s, "r", "m-0", "m-1") // hold up those behind them for a while
	testkit.Eventually(t, time.Minute, func() bool { return storetest.WaitingForLocks(t, s) == 2 },
		"the first two did not get to their machines")
	before := c.count()
	rest := startAll(t, s, "r", "m-2", "m-3", "m-4", "m-5", "m-6", "m-7", "m-8", "m-9", "m-10", "m-11", "m-none", "m-4")
	testkit.Eventually(t, time.Minute, func() bool { return active(t, s) == 8 }, "a locked machine holds up others")
	release()
	all := append(first(), rest()...)
	made := 0
	for _, o := range all {
		switch {
		case o.made:
			made++
		case o.machine == "m-none" && failure.ReasonOf(o.err) == "MACHINE_NOT_FOUND":
		case o.machine == "m-3" && failure.ReasonOf(o.err) == "MACHINE_BUSY":
		case o.machine == "m-4" && o.err == nil:
		default:
			t.Errorf("%s: %v", o.machine, o.err)
		}
	}
	if made != 11 {
		t.Errorf("%d were made of 11", made)
	}
	if n := c.count() - before; n >= len(all) {
		t.Errorf("%d transactions for %d changes", n, len(all))
	}
}

// A change that fails after it has written something takes nothing of the others with it.
func TestAGroupWhoseMemberFails(t *testing.T) {
	s := storetest.New(t)
	names := []string{"m-0", "m-1", "m-2", "m-3", "m-4", "m-5"}
	for _, m := range names {
		storetest.Live(t, s, m)
	}
	// The trigger makes one machine's operation impossible in the middle of its transaction.
	storetest.Exec(t, s, `CREATE FUNCTION no_m3() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.target_id = 'm-3' THEN RAISE EXCEPTION 'not this one'; END IF; RETURN NEW; END $$`)
	storetest.Exec(t, s, `CREATE TRIGGER no_m3 BEFORE INSERT ON operation_events FOR EACH ROW EXECUTE FUNCTION no_m3()`)
	release := held(t, s, "m-0", "m-1")
	first := startAll(t, s, "r", "m-0", "m-1")
	testkit.Eventually(t, time.Minute, func() bool { return storetest.WaitingForLocks(t, s) == 2 },
		"the first two did not get to their machines")
	rest := startAll(t, s, "r", "m-2", "m-3", "m-4", "m-5")
	testkit.Eventually(t, time.Minute, func() bool { return active(t, s) == 3 }, "one that fails holds up others")
	release()
	for _, o := range append(first(), rest()...) {
		if (o.err == nil) == (o.machine == "m-3") {
			t.Errorf("%s: %v", o.machine, o.err)
		}
	}
	if n := active(t, s); n != 5 {
		t.Errorf("%d operations", n)
	}
}

// Statements of a group go together, and each member hears of its own rows alone: of eight that ask for leave at once,
// the one whose number was used before is refused.
func TestAGroupTellsItsMembersApart(t *testing.T) {
	s := storetest.New(t)
	const members, stale = 8, 5
	agents, commands := make([]storetest.Enrolled, members), make([]*operation.Command, members)
	for i := range agents {
		agents[i] = storetest.Live(t, s, fmt.Sprintf("m-%d", i))
		op, _, err := s.Operations.Start(t.Context(), rebootOf(agents[i].Machine, "r"), storetest.Now())
		if err != nil {
			t.Fatal(err)
		}
		commands[i] = storetest.Decide(t, s, op.GetOperationId(), operation.Evaluate{}).Command
	}
	storetest.Exec(t, s, "UPDATE agent_states SET last_grant_seq = 7 WHERE agent_id = '"+agents[stale].ID+"'")
	release := held(t, s, "m-0", "m-1")
	granted := make([]bool, members)
	var wg sync.WaitGroup
	for i, a := range agents {
		wg.Go(func() {
			d, err := s.Operations.Decide(t.Context(), operationOf(t, s, a.Machine), storetest.Ask(a, commands[i], 3, 1),
				storetest.Now())
			if err != nil {
				t.Error(err)
				return
			}
			granted[i] = d.Decision.Grant
		})
		if i == 1 { // the first two hold up those behind them
			testkit.Eventually(t, time.Minute, func() bool { return storetest.WaitingForLocks(t, s) == 2 },
				"the first two did not get to their machines")
		}
	}
	release()
	wg.Wait()
	for i, got := range granted {
		if got == (i == stale) {
			t.Errorf("m-%d: granted %v", i, got)
		}
	}
	for i := range agents {
		want := int64(3)
		if i == stale {
			want = 7
		}
		if n := storetest.Count(t, s, "SELECT last_grant_seq FROM agent_states WHERE agent_id = $1",
			agents[i].ID); int64(n) != want {
			t.Errorf("m-%d: the last number is %d, want %d", i, n, want)
		}
		storetest.Intact(t, s, agents[i].Machine)
	}
}

func operationOf(t *testing.T, s *store.Store, machine string) string {
	t.Helper()
	id := ""
	if err := s.DB.Pool().QueryRow(t.Context(), "SELECT current_operation_id FROM machines WHERE machine_id = $1",
		machine).Scan(&id); err != nil {
		t.Error(err)
	}
	return id
}

// Decisions go on from each other in whatever groups they come.
func TestManyRebootsAtOnce(t *testing.T) {
	s := storetest.New(t)
	var wg sync.WaitGroup
	for i := range 10 {
		a := storetest.Live(t, s, fmt.Sprintf("m-%d", i))
		wg.Go(func() {
			for n := range 3 {
				if err := storetest.RebootOnce(t.Context(), s, a, n+1); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := storetest.Count(t, s,
		"SELECT count(*) FROM operations WHERE phase = 'SUCCEEDED' AND type = 'REBOOT'"); n != 30 {
		t.Errorf("%d of 30 reboots have succeeded", n)
	}
	for i := range 10 {
		storetest.Intact(t, s, fmt.Sprintf("m-%d", i))
	}
}

func active(t *testing.T, s *store.Store) int {
	return storetest.Count(t, s,
		"SELECT count(*) FROM operations WHERE phase IN ('PENDING', 'RUNNING') AND request_id = 'r'")
}

func rebootOf(machine, request string) operationstore.StartRequest {
	return operationstore.StartRequest{MachineID: machine, RequestID: request, Type: fleet.Reboot, Actor: "tester"}
}

package incarnation_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/position"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/incarnation"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// server is a database whose server can be exchanged for another one, as in a failover.
type server struct {
	t   *testing.T
	url string
	// admin is a store of its own, through which a test changes the database as a failover would.
	admin *store.Store
}

// newServer returns a server of system 1 on timeline 1.
func newServer(t *testing.T) *server {
	t.Helper()
	url := testkit.Database(t)
	v := &server{t: t, url: url, admin: storetest.With(t, store.Config{URL: url})}
	for _, sql := range []string{
		`CREATE SCHEMA test_server`,
		`CREATE TABLE test_server.identity (system bigint NOT NULL, wal text NOT NULL, started timestamptz NOT NULL)`,
		`INSERT INTO test_server.identity VALUES (1, '000000010000000000000001', '2030-01-01T00:00:00Z')`,
		`CREATE FUNCTION test_server.pg_control_system(OUT system_identifier bigint) LANGUAGE sql STABLE
			AS 'SELECT system FROM test_server.identity'`,
		`CREATE FUNCTION test_server.pg_walfile_name(pg_lsn) RETURNS text LANGUAGE sql STABLE
			AS 'SELECT wal FROM test_server.identity'`,
		`CREATE FUNCTION test_server.pg_postmaster_start_time() RETURNS timestamptz LANGUAGE sql STABLE
			AS 'SELECT started FROM test_server.identity'`,
	} {
		storetest.Exec(t, v.admin, sql)
	}
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	v.url += separator + "search_path=public,test_server,pg_catalog"
	return v
}

// controller is a store of a controller whose lease holds.
func (v *server) controller(id string, c store.Config) *store.Store {
	v.t.Helper()
	c.URL = v.url
	s := storetest.With(v.t, c)
	v.lease(id, time.Hour)
	return s
}

func (v *server) lease(id string, d time.Duration) {
	v.t.Helper()
	now := storetest.Now()
	if err := v.admin.Sessions.RenewLease(v.t.Context(), id, "test", now.Add(d), now); err != nil {
		v.t.Fatal(err)
	}
}

func (v *server) exec(sql string, args ...any) {
	v.t.Helper()
	if err := storetest.ExecSQL(v.t, v.admin, sql, args...); err != nil {
		v.t.Fatal(err)
	}
}

// restarts the server: the same history, begun anew.
func (v *server) restarts() {
	v.t.Helper()
	v.exec("UPDATE test_server.identity SET started = started + interval '1 hour'")
}

// promotes a standby: the next timeline of the system.
func (v *server) promotes() {
	v.t.Helper()
	v.restarts()
	v.exec("UPDATE test_server.identity SET wal = '000000020000000000000001'")
}

// connects anew, as a controller does to a server that has come up.
func connects(t *testing.T, s *store.Store) {
	t.Helper()
	s.DB.Pool().Reset()
	if err := s.DB.Pool().Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func compare(t *testing.T, s *store.Store, id string) incarnation.Comparison {
	t.Helper()
	c, err := s.Incarnations.ComparePosition(t.Context(), id, storetest.Now())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func incarnationOf(t *testing.T, v *server) (name string) {
	t.Helper()
	if err := v.admin.DB.Pool().QueryRow(t.Context(), "SELECT incarnation FROM cluster_state").Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}

// Each comparison counts the controller's beat up, and is sure of the server once it was compared.
func TestComparisonsBeat(t *testing.T) {
	t.Parallel()
	v := newServer(t)
	s := v.controller("ctl-1", store.Config{})
	if s.Incarnations.PositionSure() {
		t.Error("sure before the first comparison")
	}
	for beat := range int64(3) {
		now := storetest.Now().Add(time.Duration(beat) * time.Second)
		got, err := s.Incarnations.ComparePosition(t.Context(), "ctl-1", now)
		want := incarnation.Comparison{Mark: position.Mark{Incarnation: incarnationOf(t, v), ControllerID: "ctl-1",
			Beat: beat + 1, At: now}}
		if err != nil || got != want {
			t.Errorf("comparison %d: %+v, %v, want %+v", beat+1, got, err, want)
		}
		if !s.Incarnations.PositionSure() {
			t.Errorf("not sure after comparison %d", beat+1)
		}
	}
	other := v.controller("ctl-2", store.Config{})
	if got, err := other.Incarnations.ComparePosition(t.Context(), "ctl-unknown", storetest.Now()); err == nil {
		t.Errorf("a controller that has never had a lease has a beat: %+v", got)
	}
}

// What a controller has seen committed is compared with what the database has, as far as the database may have lost it.
func TestWhatTheDatabaseLacks(t *testing.T) {
	t.Parallel()
	const (
		op, command = "op-1", "cmd-1"
		older       = "operations are missing or older"
		grants      = "grants that were given are missing"
	)
	note := func(s *store.Store) { s.Incarnations.NotePosition(op, 3, command, 5) }
	mark := func(change func(*position.Mark)) func(*testing.T, *server, *store.Store) {
		return func(t *testing.T, v *server, s *store.Store) {
			t.Helper()
			v.lease("ctl-0", time.Hour)
			v.exec("UPDATE controllers SET beat = 8 WHERE controller_id = 'ctl-0'")
			m := position.Mark{Incarnation: incarnationOf(t, v), ControllerID: "ctl-0", Beat: 8, At: storetest.Now()}
			change(&m)
			s.Incarnations.RememberMark(m)
		}
	}
	stored := func(version, seq int64) func(*testing.T, *server, *store.Store) {
		return func(_ *testing.T, v *server, s *store.Store) {
			note(s)
			v.commits(op, version, command, seq)
		}
	}
	then := func(steps ...func(*testing.T, *server, *store.Store)) func(*testing.T, *server, *store.Store) {
		return func(t *testing.T, v *server, s *store.Store) {
			t.Helper()
			for _, step := range steps {
				step(t, v, s)
			}
		}
	}
	sql := func(statement string) func(*testing.T, *server, *store.Store) {
		return func(_ *testing.T, v *server, _ *store.Store) { v.exec(statement) }
	}
	noted := func(_ *testing.T, _ *server, s *store.Store) { note(s) }
	promoted := func(_ *testing.T, v *server, _ *store.Store) { v.promotes() }
	restarted := func(_ *testing.T, v *server, _ *store.Store) { v.restarts() }
	compared := func(t *testing.T, _ *server, s *store.Store) { t.Helper(); compare(t, s, "ctl-1") }
	failed := func(t *testing.T, _ *server, s *store.Store) {
		t.Helper()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Incarnations.ComparePosition(over, "ctl-1", storetest.Now()); err == nil {
			t.Fatal("compared without a database")
		}
	}
	begun := sql("UPDATE cluster_state SET incarnation = 'another'")
	for name, c := range map[string]struct {
		do   func(*testing.T, *server, *store.Store)
		lost string
		anew bool
	}{
		"all is there":                        {do: compared},
		"one beat less":                       {do: sql("UPDATE controllers SET beat = beat - 1"), lost: "stands at beat 1"},
		"no such controller":                  {do: sql("DELETE FROM controllers"), lost: "controller ctl-1 is not known"},
		"another incarnation":                 {do: then(sql("UPDATE controllers SET beat = 0"), begun), anew: true},
		"all, on another server":              {do: then(stored(3, 5), promoted)},
		"more, on another server":             {do: then(stored(4, 6), promoted)},
		"an older version":                    {do: then(stored(2, 5), promoted), lost: older},
		"an older grant":                      {do: then(stored(3, 4), promoted), lost: grants},
		"nothing":                             {do: then(noted, promoted), lost: older},
		"after a restart":                     {do: then(stored(2, 5), restarted), lost: older},
		"less, on the same server":            {do: stored(2, 4)},
		"less, but proven by beats":           {do: then(stored(2, 4), compared, promoted)},
		"less, of before":                     {do: then(stored(2, 4), promoted, begun), anew: true},
		"after a failed comparison":           {do: then(stored(2, 5), failed, promoted), lost: older},
		"after two failed comparisons":        {do: then(stored(2, 5), failed, failed, promoted), lost: older},
		"after the other server was compared": {do: then(promoted, compared, stored(2, 4))},
		"an earlier start":                    {do: mark(func(*position.Mark) {})},
		"less than an earlier start": {do: mark(func(m *position.Mark) { m.Beat = 9 }),
			lost: "controller ctl-0 stands at beat 8"},
		"an earlier start that is not known": {do: mark(func(m *position.Mark) { m.ControllerID = "ctl-x" }),
			lost: "controller ctl-x is not known"},
		"less than an earlier start of another incarnation": {do: mark(func(m *position.Mark) {
			m.Incarnation, m.Beat = "another", 9
		})},
		"no earlier start": {do: mark(func(m *position.Mark) { *m = position.Mark{} })},
		"an earlier start that was compared": {do: then(mark(func(*position.Mark) {}), compared,
			sql("UPDATE controllers SET beat = 7 WHERE controller_id = 'ctl-0'"))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newServer(t)
			s := v.controller("ctl-1", store.Config{})
			compare(t, s, "ctl-1")
			compare(t, s, "ctl-1")
			c.do(t, v, s)
			before, now := incarnationOf(t, v), storetest.Now()
			got, err := s.Incarnations.ComparePosition(t.Context(), "ctl-1", now)
			if err != nil {
				t.Fatal(err)
			}
			if (got.Lost == "") != (c.lost == "") || !strings.Contains(got.Lost, c.lost) ||
				got.Anew != (c.anew || c.lost != "") || got.Waiting {
				t.Errorf("%+v, want %q, anew %t", got, c.lost, c.anew)
			}
			if c.lost == "" {
				notFrozen(t, s)
				return
			}
			frozen(t, s, got.Lost, now)
			after := incarnationOf(t, v)
			if after == before {
				t.Error("the incarnation is the one of before")
			}
			// What was lost is of the history that is gone, and is not missed again.
			v.exec("INSERT INTO controllers (controller_id, version, started_at, lease_until) " +
				"VALUES ('ctl-1', '', now(), now() + interval '1 hour') ON CONFLICT DO NOTHING")
			v.restarts()
			if again := compare(t, s, "ctl-1"); again.Lost != "" || again.Anew || again.Mark.Incarnation != after {
				t.Errorf("compared again: %+v", again)
			}
			if !s.Incarnations.PositionSure() && connectedAnew(t, s) {
				t.Error("not sure after the comparison that followed")
			}
		})
	}
}

// connectedAnew connects to the server that the test has exchanged, and reports whether the store is sure of it.
func connectedAnew(t *testing.T, s *store.Store) bool {
	t.Helper()
	connects(t, s)
	return !s.Incarnations.PositionSure()
}

// commits stores an operation at a version, and its command's grant under a number.
func (v *server) commits(op string, version int64, command string, seq int64) {
	v.t.Helper()
	storetest.Register(v.t, v.admin, "m-1")
	conn, err := v.admin.DB.Pool().Acquire(v.t.Context())
	if err != nil {
		v.t.Fatal(err)
	}
	defer conn.Release()
	for _, statement := range []struct {
		sql  string
		args []any
	}{
		{"SET session_replication_role = replica", nil}, // the rest of an operation does not matter here
		{`INSERT INTO operations (operation_id, target_id, request_id, request_body, type, phase, plan_id, wake_at, version,
			created_at, updated_at) VALUES ($1, 'm-1', 'r', '{}', 'REBOOT', 'RUNNING', 'reboot', now(), $2, now(), now())`,
			[]any{op, version}},
		{`INSERT INTO commands (command_id, operation_id, step_idx, attempt, step_name, kind, target_id, executor_id, spec,
			digest, state, grant_seq, created_at, deadline) VALUES ($1, $2, 0, 1, 'reboot', 'reboot', 'm-1', 'ag-1', '', '',
			'GRANTED', $3, now(), now())`, []any{command, op, seq}},
		{"RESET session_replication_role", nil},
	} {
		if _, err := conn.Exec(v.t.Context(), statement.sql, statement.args...); err != nil {
			v.t.Fatalf("%s: %v", statement.sql, err)
		}
	}
}

func notFrozen(t *testing.T, s *store.Store) {
	t.Helper()
	if f, err := s.Incarnations.WhyFrozen(t.Context()); err != nil || f.Active() {
		t.Errorf("the fleet is frozen: %+v, %v", f, err)
	}
}

// frozen holds that the fleet is frozen since a time over a loss.
func frozen(t *testing.T, s *store.Store, lost string, since time.Time) {
	t.Helper()
	f, err := s.Incarnations.WhyFrozen(t.Context())
	if err != nil || !f.Since.Equal(since) || !f.WentBack || f.Restored || f.Actor != "system" || f.Comment != lost {
		t.Errorf("frozen: %+v, %v", f, err)
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM audit_log WHERE verb = 'DATABASE_WENT_BACK'"); n != 1 {
		t.Errorf("%d rows of the audit log", n)
	}
}

// Grants wait until every controller that is alive has compared another server with what it has seen.
func TestControllersWaitForOneAnother(t *testing.T) {
	t.Parallel()
	const second = "controller_id = 'ctl-2'"
	for name, c := range map[string]struct {
		change, other string
		waits         bool
	}{
		"a standby was promoted":           {waits: true},
		"the other one's lease is over":    {other: "UPDATE controllers SET lease_until = now() WHERE " + second},
		"the other one is an older one":    {other: "UPDATE controllers SET wal_history = '' WHERE " + second},
		"it is the same history":           {change: "UPDATE test_server.identity SET wal = '000000010000000000000009'"},
		"another system has the timeline":  {change: "UPDATE test_server.identity SET system = 2", waits: true},
		"a new timeline, and another file": {change: "UPDATE test_server.identity SET wal = '0000000300000000'", waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newServer(t)
			one, two := v.controller("ctl-1", store.Config{}), v.controller("ctl-2", store.Config{})
			for _, s := range []*store.Store{one, two} {
				if got := compare(t, s, map[*store.Store]string{one: "ctl-1", two: "ctl-2"}[s]); got.Waiting {
					t.Fatalf("at first: %+v", got)
				}
			}
			v.restarts()
			if c.change != "" {
				v.exec(c.change)
			} else {
				v.promotes()
			}
			if c.other != "" {
				v.exec(c.other)
			}
			connects(t, one)
			if one.Incarnations.PositionSure() {
				t.Error("sure of a server that nothing was compared with")
			}
			if got := compare(t, one, "ctl-1"); got.Waiting != c.waits || got.Lost != "" || got.Anew {
				t.Errorf("alone: %+v", got)
			}
			if one.Incarnations.PositionSure() == c.waits {
				t.Errorf("alone: sure is %t", !c.waits)
			}
			connects(t, two)
			if got := compare(t, two, "ctl-2"); got.Waiting {
				t.Errorf("the last one: %+v", got)
			}
			if got := compare(
				t,
				one,
				"ctl-1",
			); got.Waiting || !one.Incarnations.PositionSure() ||
				!two.Incarnations.PositionSure() {
				t.Errorf("both: %+v", got)
			}
		})
	}
}

// A connection to a different server raises a doubt, and closes the connections to the old one.
func TestAnotherServerRaisesADoubt(t *testing.T) {
	t.Parallel()
	v := newServer(t)
	s := v.controller("ctl-1", store.Config{})
	compare(t, s, "ctl-1")
	var doubts atomic.Int32
	connects(t, s) // nothing is set to be called
	s.Incarnations.OnDoubt(func() { doubts.Add(1) })
	connects(t, s)
	if doubts.Load() != 0 || !s.Incarnations.PositionSure() {
		t.Errorf("%d doubts of the same server", doubts.Load())
	}
	open := func() *pgxpool.Conn {
		t.Helper()
		c, err := s.DB.Pool().Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	pid := func(c *pgxpool.Conn) uint32 { return c.Conn().PgConn().PID() }
	busy := open()
	old := []uint32{pid(busy)}
	v.restarts()
	fresh := open()
	if doubts.Load() != 1 || s.Incarnations.PositionSure() {
		t.Errorf("%d doubts after a restart, sure %t", doubts.Load(), s.Incarnations.PositionSure())
	}
	busy.Release()
	fresh.Release()
	testkit.Eventually(t, 10*time.Second, func() bool {
		c := open()
		defer c.Release()
		return !slices.Contains(old, pid(c))
	}, "the connection to the old server is given up")
	connects(t, s)
	if doubts.Load() != 1 {
		t.Errorf("%d doubts of the server that is known by now", doubts.Load())
	}
}

// TestTwoControllersNoticeOneLoss: the second one is about to begin an incarnation when the first has.
func TestTwoControllersNoticeOneLoss(t *testing.T) {
	t.Parallel()
	for name, remembered := range map[string]bool{"seen in this start": false, "seen in an earlier start": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newServer(t)
			first := v.controller("ctl-1", store.Config{})
			before := &beforeLock{}
			second := v.controller("ctl-2", store.Config{Tracer: before})
			if remembered {
				second.Incarnations.RememberMark(position.Mark{Incarnation: incarnationOf(t, v), ControllerID: "ctl-2", Beat: 4,
					At: storetest.Now()})
			} else {
				compare(t, second, "ctl-2")
			}
			compare(t, first, "ctl-1")
			v.exec("UPDATE controllers SET beat = 0")
			var lost string
			at := storetest.Now().Add(-time.Minute)
			before.do(func() {
				got, err := first.Incarnations.ComparePosition(t.Context(), "ctl-1", at)
				if lost = got.Lost; err != nil || lost == "" {
					t.Errorf("the first: %+v, %v", got, err)
				}
			})
			if got := compare(t, second, "ctl-2"); got.Lost == "" {
				t.Errorf("the second: %+v", got)
			}
			frozen(t, first, lost, at)
		})
	}
}

// beforeLock calls a function once before the cluster's state is locked.
type beforeLock struct {
	mu   sync.Mutex
	call func()
}

func (b *beforeLock) do(call func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.call = call
}

func (b *beforeLock) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if !strings.Contains(d.SQL, "name: LockClusterState") {
		return ctx
	}
	b.mu.Lock()
	call := b.call
	b.call = nil
	b.mu.Unlock()
	if call != nil {
		call()
	}
	return ctx
}

func (b *beforeLock) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A comparison that cannot be stored is an error, and no loss.
func TestAComparisonWithoutADatabaseFreezesNothing(t *testing.T) {
	t.Parallel()
	v := newServer(t)
	s := v.controller("ctl-1", store.Config{})
	compare(t, s, "ctl-1")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := s.Incarnations.ComparePosition(over, "ctl-1", storetest.Now()); !errors.Is(err, context.Canceled) ||
		got != (incarnation.Comparison{}) {
		t.Errorf("%+v, %v", got, err)
	}
	notFrozen(t, s)
	if got := compare(t, s, "ctl-1"); got.Lost != "" || got.Mark.Beat != 2 {
		t.Errorf("afterwards: %+v", got)
	}
}

// An operation that was created and of which nothing was decided yet is missed as well.
func TestAnOperationThatHasOnlyBegunIsMissed(t *testing.T) {
	v := newServer(t)
	s := v.controller("ctl-1", store.Config{})
	compare(t, s, "ctl-1")
	storetest.Register(t, s, "m-1")
	storetest.Exec(t, s, "UPDATE machines SET phase = 'MAINTENANCE' WHERE machine_id = 'm-1'")
	storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reboot})
	conn, err := v.admin.DB.Pool().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, sql := range []string{"SET session_replication_role = replica", "DELETE FROM operations",
		"RESET session_replication_role"} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	v.promotes()
	connects(t, s)
	if c := compare(t, s, "ctl-1"); c.Lost == "" {
		t.Error("the lost operation is not missed")
	}
}

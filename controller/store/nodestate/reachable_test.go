package nodestate_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// replica writes rows that no history leads to: triggers and references are off.
func replica(t *testing.T, s *store.Store, sql string, args ...any) {
	t.Helper()
	conn, err := s.DB.Pool().Acquire(t.Context())
	must(t, err)
	defer conn.Release()
	for _, statement := range []struct {
		sql  string
		args []any
	}{{"SET session_replication_role = replica", nil}, {sql, args}, {"RESET session_replication_role", nil}} {
		if _, err := conn.Exec(t.Context(), statement.sql, statement.args...); err != nil {
			t.Fatalf("%s: %v", statement.sql, err)
		}
	}
}

// host is a machine whose own agent has a session.
func host(t *testing.T, s *store.Store, id string) (storetest.Enrolled, sessionstore.Hello) {
	t.Helper()
	storetest.Register(t, s, id)
	storetest.Lease(t, s)
	a := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-" + id, MachineID: id})
	h := a.Hello("st-1", "boot-1")
	h.SessionID = "s-" + id
	storetest.Open(t, s, h)
	return a, h
}

// inTx calls a function with a machine that is locked.
func inTx(t *testing.T, s *store.Store, id string, fn func(q *dbsqlc.Queries, m dbsqlc.Machine) error) {
	t.Helper()
	must(t, s.DB.InTx(t.Context(), func(_ pgx.Tx, q *dbsqlc.Queries) error {
		m, err := q.LockMachine(t.Context(), id)
		if err != nil {
			return err
		}
		return fn(q, m)
	}))
}

// A fleet of several slices is walked one slice at a time, and then from the beginning. Recent changes are found in
// every slice.
func TestALargeFleetIsWalkedInSlices(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	const fleetSize, slice = 4500, 2000
	// The ids of machines with an agent are behind those of all others.
	replica(t, s, `INSERT INTO machines (machine_id, phase, node_state, node_state_changed_at, created_at)
		SELECT 'm-' || lpad(n::text, 5, '0'), 'READY', 'discovered', now(), now() FROM generate_series(1, $1) n`, fleetSize)
	_, h := host(t, s, "z-1")
	at := storetest.Now()
	// Machines without an agent count as reachable, and are silent.
	all := []string{"m-00001", "m-02000", "m-02001", "m-04000", "m-04001", "m-04500"}
	mark := func() {
		t.Helper()
		must(t, storetest.ExecSQL(t, s, `INSERT INTO machine_conditions (machine_id, type, status, reason, last_transition)
			SELECT unnest($1::text[]), 'Reachable', true, 'Heartbeat', now()
			ON CONFLICT (machine_id, type) DO UPDATE SET status = true`, all))
	}
	mark()
	silent := func(when string, silentSince, now time.Time, want ...string) {
		t.Helper()
		must(t, s.NodeStates.UpdateReachable(t.Context(), silentSince, now))
		rows, err := s.DB.Pool().Query(t.Context(), `SELECT machine_id FROM machine_conditions
			WHERE type = 'Reachable' AND NOT status ORDER BY machine_id`)
		must(t, err)
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: silent are %v, %v, want %v", when, got, err, want)
		}
	}
	silent("the first slice", at.Add(-time.Minute), at, all[:2]...)
	silent("the second slice", at.Add(-time.Minute), at, all[:4]...)
	silent("the last slice", at.Add(-time.Minute), at, all...)
	mark()
	silent("from the beginning", at.Add(-time.Minute), at, all[:2]...)
	// The agent of the last machine was heard less than a minute before.
	silent("silent lately", at.Add(30*time.Second), at, append(all[:4:4], "z-1")...)
	must(t, s.Sessions.FlushHeartbeats(t.Context(), map[string]time.Time{h.SessionID: at.Add(time.Hour)}))
	must(t, storetest.ExecSQL(t, s, "UPDATE agent_sessions SET started_at = $1", at))
	silent("the last slice again", at.Add(10*time.Minute), at.Add(2*time.Hour), all...)
	replica(t, s, "UPDATE machine_conditions SET status = false WHERE machine_id = 'z-1'")
	silent(
		"speaks, and not lately",
		at.Add(10*time.Minute),
		at.Add(time.Minute+time.Second),
		append(slices.Clip(all), "z-1")...)
	silent("speaks lately", at.Add(10*time.Minute), at.Add(time.Minute), all...)
}

// The silence of a machine's own agent takes the machine out of reach and its node out of service, and makes the faults
// that the agent has reported unknown; a heartbeat brings all of that back. What a site observes stays.
func TestSilenceAndSpeech(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	own, _ := host(t, s, "m-own")
	host(t, s, "m-site")
	key := sessionstore.EventKey{AgentID: own.ID, StateID: "st-1", Seq: 1}
	for _, id := range []string{"m-own", "m-site"} {
		must(t, s.Sessions.RAIDEvent(t.Context(), key, id, "md0 lacks a disk", storetest.Now()))
		key.Seq++
	}
	replica(t, s, "UPDATE machines SET agentless = true, node_state = 'active' WHERE machine_id = 'm-site'")
	reach := func(id string, status bool, reason string) {
		t.Helper()
		inTx(t, s, id, func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
			return nodestate.Reach(t.Context(), q, m, status, reason, storetest.Now())
		})
	}
	is := func(when, id, state string, reachable, known bool, reason string) {
		t.Helper()
		type condition struct {
			Status, Known bool
			Reason        string
		}
		of := func(kind fleet.ConditionType) (c condition) {
			must(t, s.DB.Pool().QueryRow(t.Context(), `SELECT status, known, reason FROM machine_conditions
				WHERE machine_id = $1 AND type = $2`, id, string(kind)).Scan(&c.Status, &c.Known, &c.Reason))
			return c
		}
		if got := of(fleet.Reachable); got.Status != reachable || got.Reason != reason {
			t.Errorf("%s: reachable is %+v", when, got)
		}
		if got := of(fleet.RAIDDegraded); !got.Status || got.Known != known || got.Reason != "RAID_DEGRADED" {
			t.Errorf("%s: its RAID is %+v", when, got)
		}
		if got := storetest.State(t, s, id); got != state {
			t.Errorf("%s: its node is %s", when, got)
		}
	}
	for range 2 { // the second time nothing changes
		reach("m-own", false, "MissedHeartbeats")
		is("silent", "m-own", "offline", false, false, "MissedHeartbeats")
	}
	moves := storetest.NodeMoves(t, s, "m-own")
	if n := len(moves); moves[n-1] != "active>offline system" {
		t.Errorf("the node has moved %v", moves)
	}
	for range 2 {
		reach("m-own", true, "Heartbeat")
		is("heard", "m-own", "active", true, true, "Heartbeat")
	}
	if got := storetest.NodeMoves(t, s, "m-own"); len(got) != len(moves)+1 {
		t.Errorf("the node has moved %v", got)
	}
	var reason string
	must(t, s.DB.Pool().QueryRow(t.Context(), `SELECT metadata ->> 'reason' FROM node_state_log WHERE machine_id = 'm-own'
		ORDER BY id DESC LIMIT 1`).Scan(&reason))
	if reason != "Heartbeat" {
		t.Errorf("the log has the reason %q", reason)
	}
	reach("m-site", false, "MissedHeartbeats")
	is("observed by its site", "m-site", "offline", false, true, "MissedHeartbeats")
	replica(
		t,
		s,
		"UPDATE machines SET agent_id = NULL, agentless = false, node_state = 'retired' WHERE machine_id = 'm-site'",
	)
	reach("m-site", true, "SiteAgent")
	is("without an agent", "m-site", "retired", true, true, "SiteAgent")
}

// An agent is live while its session is open and the lease of its controller holds.
func TestWhoseAgentIsLive(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	at := storetest.Now()
	a, h := host(t, s, "m-1")
	host(t, s, "m-2")
	storetest.Register(t, s, "m-none")
	second := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-second", MachineID: "m-1"})
	live := func(when, id string, now time.Time, want bool) {
		t.Helper()
		inTx(t, s, id, func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
			got, err := nodestate.AgentLive(t.Context(), q, m, now)
			if got != want {
				t.Errorf("%s: %s is live: %t", when, id, got)
			}
			return err
		})
	}
	replica(t, s, "UPDATE machines SET agent_id = $1 WHERE machine_id = 'm-1'", a.ID)
	live("open", "m-1", at, true)
	live("without an agent", "m-none", at, false)
	live("after the lease", "m-1", at.Add(2*time.Hour), false)
	replica(t, s, "UPDATE machines SET agent_id = $1 WHERE machine_id = 'm-1'", second.ID)
	live("another agent is its own", "m-1", at, false)
	replica(t, s, "UPDATE machines SET agent_id = $1 WHERE machine_id = 'm-1'", a.ID)
	must(t, s.Sessions.EndSession(t.Context(), a.ID, h.SessionID, at))
	live("ended", "m-1", at, false)
	live("another machine's", "m-2", at, true)
}

// Nodes that wait for their health checks are admitted once they pass, however many wait; one without a session, or in
// an onboarding, is not.
func TestHealthyNodesAreAdmitted(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	at := storetest.Now()
	storetest.Lease(t, s)
	must(t, s.Sessions.RenewLease(t.Context(), "gone", "", at.Add(-time.Hour), at))
	// More than are read at a time.
	const many = 503
	replica(t, s, `INSERT INTO machines (machine_id, agent_id, phase, node_state, node_state_changed_at, created_at)
		SELECT 'm-' || lpad(n::text, 4, '0'), 'ag-' || n, 'READY',
			CASE n % 2 WHEN 0 THEN 'enrolling' ELSE 'bootstrap_issued' END, now(), now() FROM generate_series(1, $1) n`, many)
	replica(t, s, `INSERT INTO agents (agent_id, role, machine_id, site, epoch, created_at)
		SELECT 'ag-' || n, 'host', 'm-' || lpad(n::text, 4, '0'), '', 1, now() FROM generate_series(1, $1) n`, many)
	replica(t, s, `INSERT INTO agent_sessions (agent_id, session_id, epoch, controller_id, fingerprint, state_id, boot_id,
		started_at, last_heartbeat_at) SELECT 'ag-' || n, 's-' || n, 1, CASE n WHEN 7 THEN 'gone' ELSE 'ctl' END, '', '', '',
		now(), now() FROM generate_series(1, $1) n`, many)
	for _, sql := range []string{
		`UPDATE machines SET spec = '{"serial": "SN-1"}' WHERE machine_id = 'm-0002'`,
		`UPDATE machines SET deleted_at = now() WHERE machine_id = 'm-0003'`,
		`UPDATE machines SET node_state = 'pending' WHERE machine_id = 'm-0004'`,
		`UPDATE agent_sessions SET ended_at = now() WHERE agent_id = 'ag-5'`,
		`INSERT INTO workflows (workflow_id, machine_id, kind, mode, state, plan, stage, request_id, created_at, updated_at)
			VALUES ('w', 'm-0006', 'ONBOARDING', '', 'RUNNING', '{}', '', '', now(), now())`,
	} {
		replica(t, s, sql)
	}
	stays := []string{"m-0002", "m-0003", "m-0004", "m-0005", "m-0006", "m-0007"}
	if n, err := s.NodeStates.AdmitHealthy(t.Context(), at); err != nil || n != many-len(stays) {
		t.Errorf("%d were admitted, %v, want %d", n, err, many-len(stays))
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM machines WHERE node_state = 'active'"); n != many-len(stays) {
		t.Errorf("%d are active", n)
	}
	for n, want := range map[int][]string{
		8: {"enrolling>active system"}, 9: {"bootstrap_issued>enrolling system", "enrolling>active system"},
	} {
		if got := storetest.NodeMoves(t, s, fmt.Sprintf("m-%04d", n)); !slices.Equal(got, want) {
			t.Errorf("node %d has moved %v, want %v", n, got, want)
		}
	}
	if n := storetest.Count(
		t,
		s,
		`SELECT count(*) FROM node_state_log WHERE user_id = 'ag-' || right(machine_id, 4)::int`,
	); n !=
		storetest.Count(
			t,
			s,
			"SELECT count(*) FROM node_state_log",
		) {
		t.Errorf("%d moves name the agent", n)
	}
	replica(t, s, "UPDATE machines SET spec = '{}'")
	if n, err := s.NodeStates.AdmitHealthy(t.Context(), at); err != nil || n != 1 {
		t.Errorf("%d were admitted later, %v", n, err)
	}
}

// An onboarding holds a node on its way in until it has ended.
func TestNodesThatAnOnboardingHolds(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	for id, ended := range map[string]bool{"m-open": false, "m-ended": true} {
		storetest.Register(t, s, id)
		replica(t, s, `INSERT INTO workflows (workflow_id, machine_id, kind, mode, state, plan, stage, request_id, created_at,
			updated_at, ended_at) SELECT $1, $1, 'ONBOARDING', '', CASE WHEN $2 THEN 'COMPLETED' ELSE 'RUNNING' END, '{}', '',
			'', now(), now(), CASE WHEN $2 THEN now() END`, id, ended)
	}
	storetest.Register(t, s, "m-none")
	for _, state := range node.States() {
		for _, id := range []string{"m-open", "m-ended", "m-none"} {
			want := id == "m-open" && (state == node.BootstrapIssued || state == node.Enrolling)
			if got, err := nodestate.HeldByWorkflow(t.Context(), s.DB.Q, id, state); err != nil || got != want {
				t.Errorf("%s, %s: held %t, %v", node.Name(state), id, got, err)
			}
		}
	}
}

// What has changed between the look at a node that waits and its lock counts.
func TestANodeThatChangesBeforeItIsAdmitted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sql      string
		admitted bool
	}{
		"nothing": {"SELECT", true},
		"an onboarding": {`INSERT INTO workflows (workflow_id, machine_id, kind, mode, state, plan, stage, request_id,
			created_at, updated_at) VALUES ('w', 'm-1', 'ONBOARDING', '', 'RUNNING', '{}', '', '', now(), now())`, false},
		"its session":   {"UPDATE agent_sessions SET ended_at = now()", false},
		"its state":     {"UPDATE machines SET node_state = 'quarantined'", false},
		"its inventory": {`UPDATE machines SET spec = '{"serial": "SN-1"}'`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := &beforeLock{}
			s := storetest.With(t, store.Config{Tracer: before})
			host(t, s, "m-1")
			replica(t, s, "UPDATE machines SET node_state = 'enrolling'")
			before.arm(func() { replica(t, s, c.sql) })
			n, err := s.NodeStates.AdmitHealthy(t.Context(), storetest.Now())
			if err != nil || (n == 1) != c.admitted || (storetest.State(t, s, "m-1") == "active") != c.admitted {
				t.Errorf("%d were admitted, %v, and it is %s", n, err, storetest.State(t, s, "m-1"))
			}
			if before.armed() {
				t.Error("the machine was not locked")
			}
			// One that fails its checks as it is looked at is not locked.
			replica(t, s, `UPDATE machines SET spec = '{"serial": "SN-1"}', node_state = 'enrolling'`)
			replica(t, s, "UPDATE agent_sessions SET ended_at = NULL")
			before.arm(func() {})
			if n, err := s.NodeStates.AdmitHealthy(t.Context(), storetest.Now()); n != 0 || err != nil || !before.armed() {
				t.Errorf("of a node that fails: %d, %v, locked %t", n, err, !before.armed())
			}
		})
	}
}

// beforeLock calls a function once before a machine is locked.
type beforeLock struct{ call atomic.Pointer[func()] }

func (b *beforeLock) arm(call func()) { b.call.Store(&call) }

func (b *beforeLock) armed() bool { return b.call.Load() != nil }

func (b *beforeLock) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.Contains(d.SQL, "name: LockMachine ") {
		if call := b.call.Swap(nil); call != nil {
			(*call)()
		}
	}
	return ctx
}

func (b *beforeLock) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

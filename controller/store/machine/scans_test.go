package machine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// large is a fleet of which a scan shows in the counts of the database, though it takes no time yet.
const large = 20_000

// manyByIndex are questions for which the database may look through an index of a fleet as small as this one, and sort
// what it finds: it takes very few machines for those that are not deleted, until it has statistics.
var manyByIndex = map[string]bool{"a walk": true, "a list by rack": true, "a page of many changes": true}

// TestNothingReadsAWholeFleet: right after a large fleet has come into the database, before anybody has told the
// planner of it, the work on one machine, and the questions of clients, read a small part of it. What is prepared is
// used often enough for the database to choose its plan for all parameters.
func TestNothingReadsAWholeFleet(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, s.DB.Pool().Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	loadFleet(t, conn)
	a := storetest.Live(t, s, "m-of-many")
	for what, run := range map[string]func(i int) error{
		"an operation": func(i int) error { return storetest.RebootOnce(ctx, s, a, i) },
		"rounds": func(int) error {
			if _, _, err := s.Budgets.AdmitDestructive(ctx, storetest.Now()); err != nil {
				return err
			}
			if _, err := s.OperationQueries.DueOperations(ctx, storetest.Now(), 1000); err != nil {
				return err
			}
			return s.Sessions.EndSessionsOf(ctx, "", storetest.Now())
		},
		"a machine": func(i int) error {
			_, err := s.Machines.GetMachine(ctx, fmt.Sprintf("fill-%06d", i), "")
			return err
		},
		"a walk": func(i int) error {
			_, err := s.Machines.WalkMachines(ctx, machinestore.MachineFilter{AfterID: fmt.Sprintf("fill-%06d", i), Limit: 100,
				Sealed: true})
			return err
		},
		"a list by rack": func(int) error {
			return rare(ctx, s, machinestore.MachineFilter{Labels: map[string]string{"rack": "r7"}})
		},
		"a list by phase":     func(int) error { return rare(ctx, s, machinestore.MachineFilter{Phase: "MAINTENANCE"}) },
		"a list by condition": func(int) error { return rare(ctx, s, machinestore.MachineFilter{With: []string{"RMA"}}) },
		"changes since": func(int) error {
			_, err := s.MachineFeed.ReconcileSealed(ctx, "", time.Now().Add(time.Minute), 1000)
			return err
		},
		"a page of many changes": func(int) error {
			// More have changed than are found by that time.
			page, err := s.MachineFeed.ReconcileSealed(ctx, "", time.Now().Add(-time.Hour), 1000)
			if err == nil && (len(page.Machines) != 1000 || !page.More || page.Machines[999].GetMachineId() != "fill-001000") {
				err = fmt.Errorf("%d machines, more %t, the last is %v", len(page.Machines), page.More,
					page.Machines[len(page.Machines)-1])
			}
			return err
		},
		"changes of a cursor": func(int) error {
			head, _, err := s.MachineFeed.HeadCursor(ctx)
			if err == nil {
				_, err = s.MachineFeed.ReconcileSealed(ctx, head, time.Time{}, 1000)
			}
			return err
		},
	} {
		counted := "seq_tup_read + idx_tup_fetch"
		if manyByIndex[what] {
			counted = "seq_tup_read"
		}
		readsLittle(t, s, conn, counted, what, run)
	}
	// Where the planner knows that all machines are of one site, an index of sites is worth nothing to it.
	if _, err := conn.Exec(ctx, "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	readsLittle(t, s, conn, "seq_tup_read + idx_tup_fetch", "a registration, and a change of it", func(i int) error {
		m := &baremetalv1.Machine{MachineId: fmt.Sprintf("new-%d", i), Spec: &baremetalv1.MachineSpec{Site: "s"}}
		if _, err := s.Machines.Register(ctx, m, "tester", storetest.Now()); err != nil {
			return err
		}
		m.Spec.Rack = "r1"
		_, err := s.Machines.Register(ctx, m, "tester", storetest.Now())
		return err
	})
}

// readsLittle runs something a few times, and holds that it reads no table of a fleet as a whole.
func readsLittle(t *testing.T, s *store.Store, conn *pgx.Conn, counted, what string, run func(i int) error) {
	t.Helper()
	before := scanned(t, s, conn, counted)
	const times = 8
	for i := range times {
		if err := run(i + 1); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for table, n := range scanned(t, s, conn, counted) {
		if n -= before[table]; n >= large {
			t.Errorf("%s, %d times: %s of %s is %d", what, times, counted, table, n)
		}
	}
}

func rare(ctx context.Context, s *store.Store, f machinestore.MachineFilter) error {
	f.Limit = 100
	_, err := s.Machines.WalkMachines(ctx, f)
	return err
}

// scanned is how many rows of the tables that grow with a fleet have been read, by table, in scans of whole tables or
// in those of indexes too (pg_stat_user_tables). Each connection tells what it has counted when it is told to.
func scanned(t *testing.T, s *store.Store, conn *pgx.Conn, counted string) map[string]int64 {
	t.Helper()
	ctx := t.Context()
	for _, c := range s.DB.Pool().AcquireAllIdle(ctx) {
		_, err := c.Exec(ctx, "SELECT pg_stat_force_next_flush()")
		c.Release()
		if err != nil {
			t.Fatal(err)
		}
	}
	rows, err := conn.Query(ctx, `SELECT relname, coalesce(`+counted+`, 0) FROM pg_stat_user_tables
		WHERE relname IN ('machines', 'machine_conditions', 'agents', 'agent_sessions', 'operations', 'commands', 'operation_steps')`)
	if err != nil {
		t.Fatal(fmt.Errorf("read counts: %w", err))
	}
	out, table, n := map[string]int64{}, "", int64(0)
	if _, err := pgx.ForEachRow(rows, []any{&table, &n}, func() error {
		out[table] = n
		return nil
	}); err != nil {
		t.Fatal(fmt.Errorf("read counts: %w", err))
	}
	return out
}

// loadFleet makes machines with a condition, an agent, a session and an operation that has ended, as a load from
// elsewhere would.
func loadFleet(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		for _, q := range []string{
			"SET LOCAL session_replication_role = replica",
			// Nobody tells the planner of them while the test goes on.
			"ALTER TABLE machines SET (autovacuum_enabled = false)",
			"ALTER TABLE machine_conditions SET (autovacuum_enabled = false)",
			"ALTER TABLE agents SET (autovacuum_enabled = false)", "ALTER TABLE agent_sessions SET (autovacuum_enabled = false)",
			"ALTER TABLE operations SET (autovacuum_enabled = false)",
			"CREATE TEMP TABLE n ON COMMIT DROP AS SELECT lpad(i::text, 6, '0') AS n, i FROM generate_series(1, 20000) i",
			`INSERT INTO machines (machine_id, labels, spec, phase, node_state, node_state_changed_at, agent_id, boot_id, created_at, updated_at)
			 SELECT 'fill-' || n, jsonb_build_object('rack', 'r' || i % 2000, 'env', 'prod'), '{"site": "s", "provider": "redfish"}',
			        CASE WHEN i % 1000 = 0 THEN 'MAINTENANCE' ELSE 'READY' END, 'active', now(), 'a-' || n, 'b-' || n, now(), now() FROM n`,
			`INSERT INTO machine_conditions (machine_id, type, status, reason, last_transition)
			 SELECT 'fill-' || n, 'Reachable', true, 'Heartbeat', now() FROM n`,
			`INSERT INTO agents (agent_id, role, machine_id, version, state_id, boot_id, created_at)
			 SELECT 'a-' || n, 'host', 'fill-' || n, 'fill', 'state', 'b-' || n, now() FROM n`,
			`INSERT INTO agent_sessions (agent_id, session_id, epoch, controller_id, fingerprint, state_id, boot_id, started_at, last_heartbeat_at)
			 SELECT 'a-' || n, 's-' || n, 1, 'fill', 'fill', 'state', 'b-' || n, now() - interval '1 day', now() + interval '10 years' FROM n`,
			`INSERT INTO operations (operation_id, target_id, request_id, request_body, type, phase, plan_id, created_at, started_at, finished_at, updated_at)
			 SELECT 'op-' || n, 'fill-' || n, 'fill', '{}', 'REBOOT', 'SUCCEEDED', 'reboot', now(), now(), now(), now() FROM n`,
		} {
			if _, err := tx.Exec(t.Context(), q); err != nil {
				return fmt.Errorf("%s: %w", q, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

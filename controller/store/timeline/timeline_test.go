package timeline_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/timeline"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	timelinestore "github.com/ingot-metal/ingot/controller/store/timeline"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
	"github.com/ingot-metal/ingot/migrations"
)

// rewrite does what nobody may: it changes rows behind the back of the triggers.
func rewrite(t testing.TB, s *store.Store, table, query string, args ...any) {
	t.Helper()
	conn, err := s.DB.Pool().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, q := range []string{"SET session_replication_role = replica", query, "SET session_replication_role = DEFAULT"} {
		a := args
		if q != query {
			a = nil
		}
		if _, err := conn.Exec(t.Context(), q, a...); err != nil {
			t.Fatalf("%s (%s): %v", q, table, err)
		}
	}
}

func TestHistorySaysWhoAndWhat(t *testing.T) {
	s := storetest.New(t)
	a := storetest.Live(t, s, "m-1")
	before := storetest.Now()
	if err := storetest.RebootOnce(t.Context(), s, a, 1); err != nil {
		t.Fatal(err)
	}
	entries, err := s.Timelines.Timeline(t.Context(), timelinestore.TimelineQuery{MachineID: "m-1", Since: before,
		OldestFirst: true, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got,
			strings.Join([]string{e.GetKind(), strings.ReplaceAll(e.GetActor(), a.ID, "agent"), e.GetFields()["phase"] +
				e.GetFields()["state"]}, " "))
	}
	want := []string{
		"operation tester PENDING", "machine tester ", "audit tester ",
		"command system SENT", "step system RUNNING", "operation system RUNNING",
		"command agent ACKED", "command agent GRANTED",
		"machine system ", "command agent DONE", "step system SUCCEEDED", "operation system SUCCEEDED",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	storetest.Intact(t, s, "m-1")
	storetest.Intact(t, s, "")
}

// The state at any moment between two transactions is the one that was read then.
func TestStateAtATime(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reboot})
	busy := storetest.Now()
	if _, err := s.Operations.SetFlag(t.Context(), "m-1", "RMA", true, "tester", "", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	then, err := s.Timelines.StateAt(t.Context(), "m-1", busy)
	if err != nil || then == nil {
		t.Fatalf("%v, %v", then, err)
	}
	at, err := s.Timelines.StateAt(t.Context(), "m-1", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if then.Machine["phase"] != "MAINTENANCE" || then.Machine["current_operation_id"] == "" ||
		then.Conditions["RMA"].Status != "" {
		t.Errorf("then: %+v", then)
	}
	if at.Conditions["RMA"].Status != "true" {
		t.Errorf("now: %+v", at.Conditions)
	}
	if none, err := s.Timelines.StateAt(t.Context(), "m-1", busy.Add(-time.Hour)); none != nil || err != nil {
		t.Errorf("an hour ago: %+v, %v", none, err)
	}
}

func TestHistoryIsAppendOnly(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1")
	for _, q := range []string{"UPDATE machine_timeline SET actor = 'x'", "DELETE FROM machine_timeline",
		"TRUNCATE machine_timeline"} {
		if err := storetest.ExecSQL(t, s, q); err == nil || !strings.Contains(err.Error(), "never change") {
			t.Errorf("%s: %v", q, err)
		}
	}
}

// Whatever byte of whatever column of whatever row is changed, verifying names that row.
func TestEveryChangedByteIsFound(t *testing.T) {
	s := storetest.New(t)
	a := storetest.Live(t, s, "m-1")
	if err := storetest.RebootOnce(t.Context(), s, a, 1); err != nil {
		t.Fatal(err)
	}
	storetest.Intact(t, s, "m-1")
	changes := map[string]string{
		"machine_id": "machine_id || 'x'", "seq": "seq + 1000", "ts": "ts + interval '1 microsecond'", "tx": "tx + 1",
		"kind": "overlay(kind placing chr(ascii(kind) + 1) from 1)", "actor": "actor || 'x'",
		"operation_id": "operation_id || ' '",
		"command_id":   "command_id || '0'", "fields": "(overlay(fields::text placing '  ' from 2 for 0))::json",
		"prev_hash": "CASE WHEN length(prev_hash) = 0 THEN '\\x00' ELSE set_byte(prev_hash, 31, get_byte(prev_hash, 31) # " +
			"1) END",
		"hash": "set_byte(hash, 0, get_byte(hash, 0) # 128)",
	}
	columns := storetest.Count(t, s,
		"SELECT count(*) FROM information_schema.columns WHERE table_name = 'machine_timeline'")
	if columns != len(changes) {
		t.Fatalf("the table has %d columns, the test changes %d", columns, len(changes))
	}
	entries := storetest.Count(t, s, "SELECT max(seq) FROM machine_timeline WHERE machine_id = 'm-1'")
	for column, change := range changes {
		for _, seq := range []int{1, entries / 2, entries} {
			rewrite(t, s, "machine_timeline", fmt.Sprintf(
				"CREATE TABLE kept AS SELECT * FROM machine_timeline WHERE machine_id = 'm-1' AND seq = %d", seq))
			rewrite(t, s, "machine_timeline",
				fmt.Sprintf("UPDATE machine_timeline SET %s = %s WHERE machine_id = 'm-1' AND seq = %d", column, change, seq))
			v := storetest.Verdict(t, s, "m-1")
			// Without its last row a chain is whole; but then the tables say more than it does.
			cut := seq == entries && column == "machine_id"
			if v.GetOk() || !cut && v.GetBrokenSeq() != int64(seq) {
				t.Errorf("%s of entry %d: %v", column, seq, v)
			}
			rewrite(t, s, "machine_timeline", "DELETE FROM machine_timeline WHERE hash IN (SELECT hash FROM kept) OR "+
				"(machine_id, seq) IN (SELECT machine_id, seq FROM kept)")
			rewrite(t, s, "machine_timeline", "INSERT INTO machine_timeline SELECT * FROM kept")
			rewrite(t, s, "machine_timeline", "DROP TABLE kept")
		}
	}
	storetest.Intact(t, s, "m-1")
}

// What the tables say is held against the history: a change that no trigger saw is found.
func TestChangedTablesAreFound(t *testing.T) {
	s := storetest.New(t)
	a := storetest.Live(t, s, "m-1")
	if err := storetest.RebootOnce(t.Context(), s, a, 1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Workflows.StartWorkflow(t.Context(), workflowstore.WorkflowStart{
		MachineID: "m-1", RequestID: "w", Kind: workflow.Decommission, Mode: workflow.SoftReset, Actor: "tester",
	}, storetest.Now()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ table, set, key string }{
		{"machines", "phase = 'READY'", "machine_id"}, {"machine_conditions", "reason = 'x'", "type"},
		{"operations", "evidence = '{\"a\": \"b\"}'", "operation_id"},
		{"operation_steps", "retry_count = 2", "operation_id || idx"},
		{"operation_steps", "message = 'x'", "operation_id || idx"}, {"commands", "outcome = 'FAILED'", "command_id"},
		{"workflows", "stage = 'x'", "workflow_id"}, {"workflows", "message = 'x'", "workflow_id"},
		{"workflows", "plan = '{}'", "workflow_id"},
		{"workflows", "evidence = '{\"erase_method\": \"x\"}'", "workflow_id"},
		{"node_state_log", "to_state = 'deleted'", "id"}, {"node_state_log", "triggered_by = 'node_report'", "id"},
		{"audit_log", "event_data = '{\"comment\": \"nothing\"}'", "audit_id"},
	} {
		column, _, _ := strings.Cut(c.set, " ")
		rewrite(t, s, c.table, fmt.Sprintf("CREATE TABLE kept AS SELECT %s AS key, %s AS value FROM %s", c.key, column,
			c.table))
		rewrite(t, s, c.table, fmt.Sprintf("UPDATE %s SET %s", c.table, c.set))
		if v := storetest.Verdict(t, s, "m-1"); v.GetOk() || v.GetBrokenSeq() != 0 || len(v.GetDifferences()) == 0 {
			t.Errorf("%s: %v", c.set, v)
		}
		rewrite(t, s, c.table, fmt.Sprintf("UPDATE %s SET %s = value FROM kept WHERE %s = key", c.table, column, c.key))
		rewrite(t, s, c.table, "DROP TABLE kept")
		storetest.Intact(t, s, "m-1")
	}
}

func TestScrubbingKeepsTheChain(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1")
	if _, err := s.Operations.SetFlag(t.Context(), "m-1", "RMA", true, "tester", "call Jane Roe",
		storetest.Now()); err != nil {
		t.Fatal(err)
	}
	storetest.Intact(t, s, "m-1")
	if n := storetest.Count(t, s,
		"SELECT count(*) FROM machine_timeline WHERE fields::text LIKE '%Jane%' OR fields::text LIKE '%Roe%'"); n != 0 {
		t.Errorf("%d entries hold what a person typed", n)
	}
	if n, err := s.History.ScrubAudit(t.Context(), "m-1", "tester", storetest.Now()); n != 1 || err != nil {
		t.Fatalf("scrubbed %d, %v", n, err)
	}
	storetest.Intact(t, s, "m-1")
	if n := storetest.Count(t, s,
		"SELECT count(*) FROM audit_log WHERE event_data = '{}' AND salt IS NULL AND verb = 'SET_FLAG'"); n != 1 {
		t.Errorf("%d rows are empty and have no salt", n)
	}
	// The same by hand, with no row that says so.
	rewrite(t, s, "audit_log", "UPDATE audit_log SET event_data = '{}', salt = NULL WHERE verb = 'SCRUB_AUDIT'")
	if v := storetest.Verdict(t, s, "m-1"); v.GetOk() || !strings.Contains(v.GetDifferences()[0], "no audit row says so") {
		t.Errorf("%v", v)
	}
}

// Transactions that do not take the machine's row first wait for each other all the same: no gap, no fork, none fails,
// in whatever order they write to several histories.
func TestConcurrentTransactionsNeverFork(t *testing.T) {
	s := storetest.New(t)
	histories := []string{"m-1", "m-2", "m-3", ""}
	for _, id := range histories[:3] {
		storetest.Register(t, s, id)
	}
	const writers, rounds = 8, 20
	for _, err := range storetest.Together(t, writers, func(ctx context.Context, i int) error {
		for n := range rounds {
			// Audit rows of machines and of the fleet, by writers that hold no lock.
			_, err := s.DB.Pool().Exec(ctx,
				"INSERT INTO audit_log (ts, actor, verb, target_id) SELECT now(), $1, $2, t FROM unnest($3::text[]) t",
				fmt.Sprint("w-", i), fmt.Sprint("V", n), [][]string{{"m-1", "site", "m-2"}, {"m-2", "m-3", "m-1"}, {"site", "m-1"},
					{"m-3", "m-2", "site"}}[(i+n)%4])
			if err != nil {
				return err
			}
		}
		return nil
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	for _, id := range histories {
		storetest.Intact(t, s, id)
		if v := storetest.Verdict(t, s, id); v.GetEntries() < writers*rounds/2 {
			t.Errorf("%q has %d entries", id, v.GetEntries())
		}
	}
}

// One transaction is one entry of each machine, and what a savepoint took back is in none.
func TestATransactionIsOneEntry(t *testing.T) {
	s := storetest.New(t)
	for _, id := range []string{"m-1", "m-2"} {
		storetest.Register(t, s, id)
	}
	before := storetest.Count(t, s, "SELECT max(seq) FROM machine_timeline WHERE machine_id = 'm-1'")
	err := pgx.BeginFunc(t.Context(), s.DB.Pool(), func(tx pgx.Tx) error {
		for _, q := range []string{
			"UPDATE machines SET power_state = 'off' WHERE machine_id = 'm-1'", "SAVEPOINT one",
			"UPDATE machines SET power_state = 'lost' WHERE machine_id = 'm-1'",
			"INSERT INTO audit_log (ts, actor, verb, target_id) VALUES (now(), 'x', 'LOST', 'm-2')", "ROLLBACK TO one",
			"UPDATE machines SET power_state = 'on' WHERE machine_id = 'm-1'",
		} {
			if _, err := tx.Exec(t.Context(), q); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	storetest.Intact(t, s, "m-1")
	storetest.Intact(t, s, "m-2")
	entries, err := s.Timelines.Timeline(t.Context(), timelinestore.TimelineQuery{MachineID: "m-1",
		From: timelinestore.TimelinePosition{Seq: int64(before), Change: 1000}, OldestFirst: true, Limit: 10})
	if err != nil || len(entries) != 2 || entries[0].GetSeq() != int64(before+1) ||
		entries[1].GetSeq() != int64(before+1) ||
		entries[0].GetFields()["power_state"] != "off" || entries[1].GetFields()["power_state"] != "on" ||
		entries[1].GetChange() != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	if n := storetest.Count(t, s,
		"SELECT count(*) FROM machine_timeline WHERE fields::text LIKE '%LOST%' OR fields::text LIKE '%lost%'"); n != 0 {
		t.Errorf("%d entries say what was rolled back", n)
	}
}

// A transaction with very many changes writes its entries in parts, with one time.
func TestAHugeTransaction(t *testing.T) {
	s := storetest.New(t)
	for _, id := range []string{"m-1", "m-2", "m-3"} {
		storetest.Register(t, s, id)
	}
	if err := storetest.ExecSQL(t, s, `DO $$ BEGIN
		FOR i IN 1..6 LOOP
			INSERT INTO audit_log (ts, actor, verb, target_id) SELECT now(), 'x', 'HUGE', 'm-' || n % 4 FROM generate_series(1, 8000) n;
		END LOOP;
	END $$`); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"m-1", "m-2", "m-3", ""} {
		storetest.Intact(t, s, id)
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM machine_timeline WHERE fields::text LIKE '%HUGE%'"); n < 8 {
		t.Errorf("%d entries", n)
	}
	if n := storetest.Count(t, s,
		"SELECT count(DISTINCT ts) FROM machine_timeline WHERE machine_id = 'm-1' AND fields::text LIKE '%HUGE%'"); n != 1 {
		t.Errorf("%d times", n)
	}
}

// A machine that is older than its history begins with what it is; what comes after is as of any other.
func TestMachinesOfBeforeBeginWithASnapshot(t *testing.T) {
	s := storetest.New(t)
	a := storetest.Live(t, s, "m-1")
	if err := storetest.RebootOnce(t.Context(), s, a, 1); err != nil {
		t.Fatal(err)
	}
	id := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r",
		Type: fleet.Reboot}).GetOperationId()
	c := storetest.Decide(t, s, id, operation.Evaluate{}).Command
	migrateBy(
		t,
		s,
		"0044_final_rows.down.sql",
		"0038_moments.down.sql",
		"0016_throughput.down.sql",
		"0011_history.down.sql",
		"0004_timeline.down.sql",
		"0004_timeline.up.sql",
		"0011_history.up.sql",
		"0016_throughput.up.sql",
		"0038_moments.up.sql",
		"0044_final_rows.up.sql",
	)
	storetest.Intact(t, s, "m-1")
	if n := storetest.Count(t, s, "SELECT count(*) FROM machine_timeline WHERE seq = 1 AND kind = 'snapshot'"); n != 1 {
		t.Errorf("%d snapshots", n)
	}
	storetest.Decide(t, s, id, storetest.Ask(a, c, 2, 1))
	storetest.Decide(t, s, id, operation.CancelAsked{Actor: "tester"})
	storetest.Intact(t, s, "m-1")
	then, err := s.Timelines.StateAt(t.Context(), "m-1", time.Time{})
	if err != nil || then.Commands[c.ID].State != "GRANTED" || then.OperationsBefore != "2" {
		t.Errorf("%+v, %v", then, err)
	}
}

// migrateBy runs files of the migrations by hand.
func migrateBy(t *testing.T, s *store.Store, names ...string) {
	t.Helper()
	for _, name := range names {
		raw, err := migrations.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := pgx.BeginFunc(t.Context(), s.DB.Pool(), func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), string(raw))
			return err
		}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	s.DB.Pool().Reset()
}

// Chains of before the migration, with an entry for each row, go on with entries for each transaction, and stay whole.
func TestOldChainsGoOn(t *testing.T) {
	s := storetest.New(t)
	a := storetest.Live(t, s, "m-1")
	migrateBy(
		t,
		s,
		"0044_final_rows.down.sql",
		"0038_moments.down.sql",
		"0016_throughput.down.sql",
		"0011_history.down.sql",
	)
	if err := storetest.RebootOnce(t.Context(), s, a, 1); err != nil {
		t.Fatal(err)
	}
	// One that fails leaves a message, which the old entries do not have; another has begun.
	late := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "late",
		Type: fleet.Reboot}).GetOperationId()
	storetest.Decide(t, s, late, operation.Evaluate{})
	if _, err := s.Operations.Decide(t.Context(), late, operation.Evaluate{},
		storetest.Now().Add(24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	workflows, _, err := s.Workflows.StartWorkflow(t.Context(), workflowstore.WorkflowStart{
		MachineID: "m-1", RequestID: "w", Kind: workflow.Decommission, Mode: workflow.SoftReset, Actor: "tester",
	}, storetest.Now())
	if err != nil {
		t.Fatal(err)
	}
	old := storetest.Count(t, s, "SELECT count(*) FROM machine_timeline WHERE machine_id = 'm-1' AND kind <> 'changes'")
	if old < 20 {
		t.Fatalf("%d old entries", old)
	}
	migrateBy(t, s, "0011_history.up.sql", "0016_throughput.up.sql", "0038_moments.up.sql", "0044_final_rows.up.sql")
	storetest.Intact(t, s, "m-1")
	storetest.Decide(t, s, workflows.GetOperationId(), operation.Evaluate{})
	storetest.Decide(t, s, workflows.GetOperationId(), operation.CancelAsked{Actor: "tester"})
	storetest.Intact(t, s, "m-1")
	storetest.Intact(t, s, "")
	if n := storetest.Count(t, s,
		"SELECT count(*) FROM machine_timeline WHERE machine_id = 'm-1' AND kind <> 'changes'"); n != old {
		t.Errorf("%d old entries", n)
	}
	then, err := s.Timelines.StateAt(t.Context(), "m-1", time.Time{})
	if err != nil || len(then.Workflows) != 1 {
		t.Errorf("%+v, %v", then, err)
	}
	page, err := s.Timelines.Timeline(t.Context(), timelinestore.TimelineQuery{MachineID: "m-1", OldestFirst: true,
		Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range page {
		if i > 0 && e.GetSeq() != page[i-1].GetSeq() && string(e.GetPrevHash()) != string(page[i-1].GetHash()) ||
			e.GetActor() == "" || e.GetSummary() == "" {
			t.Errorf("entry %d: %v", i, e)
		}
	}
}

// A workflow's stages are in the history, with what their checks have said, and the state at a time has them.
func TestHistoryOfAWorkflow(t *testing.T) {
	r := storetest.NewLifeRig(t)
	r.Start(workflow.Decommission, workflow.SoftReset)
	if w := r.Run(); w.GetEndedAt() == nil {
		t.Fatalf("%v", w)
	}
	storetest.Intact(t, r.Store, "m-1")
	entries, err := r.Store.Timelines.Timeline(t.Context(), timelinestore.TimelineQuery{MachineID: "m-1",
		OldestFirst: true, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	middle := time.Time{}
	for _, e := range entries {
		got = append(got, e.GetSummary())
		if e.GetKind() == timeline.Workflow && e.GetFields()["stage"] == workflow.ResetHost {
			middle = e.GetTs().AsTime()
		}
	}
	all := strings.Join(got, "\n")
	for _, want := range []string{
		"DECOMMISSION (SOFT_RESET) PENDING at stage disable_node", "step disable-node SUCCEEDED: the phase is MAINTENANCE",
		"DECOMMISSION (SOFT_RESET) RUNNING at stage reset_host",
		"step validate-clean-node SUCCEEDED: the evidence of the mode is there",
		"DECOMMISSION (SOFT_RESET) COMPLETED",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	then, err := r.Store.Timelines.StateAt(t.Context(), "m-1", middle)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range then.Workflows {
		if w.Ended || w.Stage != workflow.ResetHost || w.State != "RUNNING" {
			t.Errorf("then it was %+v", w)
		}
	}
}

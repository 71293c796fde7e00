package timeline_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/domain/timeline"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
)

// aLife is a machine with a row in every table that the history covers.
func aLife(t *testing.T) *store.Store {
	t.Helper()
	s := storetest.New(t)
	a := storetest.Live(t, s, "m-1")
	if err := storetest.RebootOnce(t.Context(), s, a, 1); err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{true, false} {
		if _, err := s.Operations.SetFlag(t.Context(), "m-1", "RMA", on, "tester", "call Jane Roe",
			storetest.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.Workflows.StartWorkflow(t.Context(), workflowstore.WorkflowStart{
		MachineID: "m-1", RequestID: "w", Kind: workflow.Decommission, Mode: workflow.SoftReset, Actor: "tester",
	}, storetest.Now()); err != nil {
		t.Fatal(err)
	}
	return s
}

// chainedTables returns the tables that have a trigger which writes the history, out of the catalogue.
func chainedTables(t *testing.T, s *store.Store) []string {
	t.Helper()
	rows, err := s.DB.Pool().Query(t.Context(), `SELECT DISTINCT c.relname::text FROM pg_trigger g
		JOIN pg_class c ON c.oid = g.tgrelid JOIN pg_proc p ON p.oid = g.tgfoid WHERE p.proname LIKE 'timeline\_of\_%' ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(tables) < 8 {
		t.Fatalf("the catalogue has %d chained tables: %v", len(tables), tables)
	}
	return tables
}

// anotherValue is an expression for a value that a column of a type does not have.
func anotherValue(column, kind string) string {
	switch kind {
	case "text":
		return fmt.Sprintf("coalesce(%s, '') || 'x'", column)
	case "bigint", "integer":
		return fmt.Sprintf("coalesce(%s, 0) + 1000000", column)
	case "boolean":
		return fmt.Sprintf("NOT coalesce(%s, false)", column)
	case "jsonb":
		return fmt.Sprintf(`CASE WHEN %[1]s = '{"x": "y"}' THEN '{"x": "z"}' ELSE '{"x": "y"}' END::jsonb`, column)
	case "bytea":
		return fmt.Sprintf(`coalesce(%s, '') || '\x00'::bytea`, column)
	case "timestamp with time zone":
		return fmt.Sprintf("coalesce(%s, now()) + interval '1 day'", column)
	case "xid8":
		return "'1'::xid8"
	case "ARRAY":
		return fmt.Sprintf("%s || '{x}'", column)
	default:
		return ""
	}
}

// No statement changes a row that is chained unless the history records the change, for every column of every chained
// table of the catalogue: the database refuses the statement, or verifying finds nothing.
func TestNoStatementChangesAChainedRowUnseen(t *testing.T) {
	s := aLife(t)
	refused, chained := 0, 0
	for _, table := range chainedTables(t, s) {
		rows, err := s.DB.Pool().Query(t.Context(), `SELECT column_name::text, data_type::text FROM information_schema.columns
			WHERE table_schema = 'public' AND table_name = $1 AND is_generated = 'NEVER' ORDER BY ordinal_position`, table)
		if err != nil {
			t.Fatal(err)
		}
		columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct{ Name, Type string }])
		if err != nil {
			t.Fatal(err)
		}
		if n := storetest.Count(t, s, "SELECT count(*) FROM "+table); n == 0 {
			t.Errorf("%s has no row to try", table)
		}
		for _, c := range columns {
			values := []string{anotherValue(c.Name, c.Type), "NULL"}
			if c.Type == "text" {
				values = append(values, "''")
			}
			if values[0] == "" {
				t.Errorf("%s.%s: no other value of type %s", table, c.Name, c.Type)
			}
			for _, v := range values {
				if storetest.ExecSQL(t, s, fmt.Sprintf("UPDATE %s SET %s = %s", table, c.Name, v)) != nil {
					refused++
					continue
				}
				chained++
				unseen(t, s, fmt.Sprintf("%s.%s = %s", table, c.Name, v))
			}
		}
		for _, q := range []string{"DELETE FROM ", "TRUNCATE "} {
			if storetest.ExecSQL(t, s, q+table) != nil {
				refused++
				continue
			}
			unseen(t, s, q+table)
		}
	}
	if refused < 50 || chained < 50 {
		t.Errorf("%d changes refused, %d in the history", refused, chained)
	}
}

// unseen fails where verifying finds a change that the database has let through.
func unseen(t *testing.T, s *store.Store, what string) {
	t.Helper()
	for _, id := range []string{"", "m-1"} {
		if v := storetest.Verdict(t, s, id); !v.GetOk() {
			t.Fatalf("%s is let through, and then found in %q: %d %s %v", what, id, v.GetBrokenSeq(), v.GetBrokenWhy(),
				v.GetDifferences())
		}
	}
}

// Data of an audit row is emptied after a row that announces it, and in no other way.
func TestOnlyAnAnnouncedScrubEmptiesData(t *testing.T) {
	s := aLife(t)
	for _, q := range []string{
		"UPDATE audit_log SET event_data = '{}', salt = NULL WHERE verb = 'SET_FLAG'",
		"UPDATE audit_log SET event_data = '{}' WHERE verb = 'SET_FLAG'",
		"UPDATE audit_log SET event_data = event_data || '{\"comment\": \"other\"}'",
		"UPDATE audit_log SET scrub_verb = '', scrub_through = 1000", "DELETE FROM audit_log", "TRUNCATE audit_log CASCADE",
	} {
		if storetest.ExecSQL(t, s, q) == nil {
			t.Errorf("%s is let through", q)
		}
	}
	if n, err := s.History.ScrubAudit(t.Context(), "m-1", "tester", storetest.Now()); err != nil || n == 0 {
		t.Fatalf("scrubbed %d, %v", n, err)
	}
	if _, err := s.Operations.SetFlag(t.Context(), "m-1", "RMA", true, "tester", "call John Roe",
		storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if storetest.ExecSQL(
		t,
		s,
		"UPDATE audit_log SET event_data = '{}', salt = NULL WHERE event_data::text LIKE '%John%'",
	) == nil {
		t.Error("an older announcement covers a newer row")
	}
	unseen(t, s, "a scrub")
}

// The controller bounds the differences of a drift that it keeps, and verifying is silent after that.
func TestBoundedDriftIsNoTampering(t *testing.T) {
	s := storetest.New(t)
	a := storetest.Live(t, s, "m-1")
	at := storetest.Now()
	const drifts = 45
	for i := range drifts {
		at = at.Add(11 * time.Minute)
		k := sessionstore.EventKey{AgentID: a.ID, StateID: "st-1", Seq: uint64(i) + 1}
		if err := s.Sessions.DriftEvent(t.Context(), k, "m-1", fmt.Sprintf("+ mtu %d\n", i), "sha256:77", at); err != nil {
			t.Fatal(err)
		}
	}
	const of = "SELECT count(*) FROM audit_log WHERE verb = 'CONFIG_DRIFT'"
	if all, kept := storetest.Count(t, s, of), storetest.Count(t, s, of+" AND event_data <> '{}'"); all != drifts ||
		kept < 20 || kept > 30 {
		t.Errorf("%d rows of drifts, %d with their difference", all, kept)
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM audit_log WHERE verb = 'SCRUB_DRIFT'"); n == 0 || n > 3 {
		t.Errorf("%d rows announce a scrub", n)
	}
	unseen(t, s, "bounding drifts")
	rewrite(t, s, "audit_log", `UPDATE audit_log SET event_data = '{}', salt = NULL
		WHERE audit_id = (SELECT max(audit_id) FROM audit_log WHERE verb = 'CONFIG_DRIFT')`)
	if v := storetest.Verdict(t, s, "m-1"); v.GetOk() {
		t.Error("an emptied row that no scrub covers is not found")
	}
}

// What was written about a name before it was a machine's is in the fleet's history, and no fault of the machine.
func TestANameThatBecomesAMachine(t *testing.T) {
	s := storetest.New(t)
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "dallas", Domain: "fleet", AtOnce: 1})
	storetest.Register(t, s, "dallas")
	unseenOf := func(what string) {
		t.Helper()
		storetest.Intact(t, s, "")
		storetest.Intact(t, s, "dallas")
		if t.Failed() {
			t.Fatal(what)
		}
	}
	unseenOf("registered")
	if _, err := s.History.ScrubAudit(t.Context(), "dallas", "tester", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	unseenOf("scrubbed")
	rewrite(t, s, "audit_log", `INSERT INTO audit_log (audit_id, ts, actor, verb, target_id)
		VALUES (1000000, now(), 'x', 'SET_BUDGET', 'dallas')`)
	if storetest.Verdict(t, s, "dallas").GetOk() {
		t.Error("a row that was slipped in is not found")
	}
}

// headsOf returns the heads of all histories as a client keeps them.
func headsOf(t *testing.T, s *store.Store) []timeline.Head {
	t.Helper()
	owners, _, err := s.Timelines.HistoryOwners(t.Context(), "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	var out []timeline.Head
	for _, id := range owners {
		v := storetest.Verdict(t, s, id)
		if !v.GetOk() {
			t.Fatalf("%q: %v", id, v)
		}
		out = append(out, timeline.Head{MachineID: id, Entries: v.GetEntries(), Hash: v.GetHeadHash(),
			Time: v.GetHeadAt().AsTime()})
	}
	return out
}

// findings returns what became of heads, by machine; those that are kept are left out.
func findings(t *testing.T, s *store.Store, heads []timeline.Head) map[string]timeline.Finding {
	t.Helper()
	present, err := s.Timelines.Present(t.Context(), heads)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]timeline.Finding{}
	for i, h := range heads {
		if f, _ := h.Compare(present[i]); f != timeline.Kept {
			out[h.MachineID] = f
		}
	}
	return out
}

// TestTamperingIsFound makes each kind of change by SQL that switches the triggers off.
func TestTamperingIsFound(t *testing.T) {
	const lastOf = "SELECT max(seq) FROM machine_timeline WHERE machine_id = 'm-1'"
	for _, c := range []struct {
		name    string
		queries []string
		// byHeads: only heads that were kept elsewhere show it.
		byHeads bool
	}{
		{"an entry is changed", []string{
			"UPDATE machine_timeline SET actor = 'other' WHERE machine_id = 'm-1' AND seq = 3"}, false},
		{"an entry is deleted in the middle", []string{
			"DELETE FROM machine_timeline WHERE machine_id = 'm-1' AND seq = 3"}, false},
		{"entries change places", []string{
			"UPDATE machine_timeline SET seq = -3 WHERE machine_id = 'm-1' AND seq = 3",
			"UPDATE machine_timeline SET seq = 3 WHERE machine_id = 'm-1' AND seq = 4",
			"UPDATE machine_timeline SET seq = 4 WHERE machine_id = 'm-1' AND seq = -3"}, false},
		{"an audit row is changed", []string{
			`UPDATE audit_log SET event_data = '{"comment": "nothing"}' WHERE verb = 'SET_FLAG'`}, false},
		{"an audit row is emptied", []string{
			"UPDATE audit_log SET event_data = '{}', salt = NULL WHERE verb = 'SET_FLAG'"}, false},
		{"an audit row is deleted", []string{"DELETE FROM audit_log WHERE verb = 'SET_FLAG'"}, false},
		{"an announcement is slipped in", []string{
			"UPDATE audit_log SET event_data = '{}', salt = NULL WHERE verb = 'SET_FLAG'",
			`INSERT INTO audit_log (ts, actor, verb, target_id, scrub_verb, scrub_through)
			 VALUES (now(), 'system', 'SCRUB_AUDIT', 'm-1', '', 1000000)`}, false},
		{"the machine is gone, its history is here", []string{"DELETE FROM machines WHERE machine_id = 'm-1'"}, false},
		// The entry of a flag has nothing that the tables would contradict once its audit row is gone as well.
		{"the tail is cut off", []string{
			"DELETE FROM machine_timeline WHERE machine_id = 'm-1' AND seq = (" + lastOf + ")",
			"DELETE FROM audit_log WHERE audit_id = (SELECT max(audit_id) FROM audit_log WHERE target_id = 'm-1')"}, true},
		{"the machine has vanished", []string{
			"DELETE FROM machine_timeline WHERE machine_id = 'm-1'", "DELETE FROM audit_log WHERE target_id = 'm-1'",
			"DELETE FROM machines WHERE machine_id = 'm-1'"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := aLife(t)
			storetest.Register(t, s, "m-2")
			if _, err := s.History.ScrubAudit(t.Context(), "m-2", "tester", storetest.Now()); err != nil {
				t.Fatal(err)
			}
			appendRow(t, s)
			heads := headsOf(t, s)
			for _, q := range c.queries {
				rewrite(t, s, "", q)
			}
			found := false
			owners, _, err := s.Timelines.HistoryOwners(t.Context(), "", 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range owners {
				found = found || !storetest.Verdict(t, s, id).GetOk()
			}
			if c.byHeads {
				if found {
					t.Error("it is found without heads: the case is none of a cut end")
				}
				found = findings(t, s, heads)["m-1"] == timeline.Lost
			}
			if !found {
				t.Error("it is not found")
			}
			if id, ok := findings(t, s, heads)["m-2"]; ok {
				t.Errorf("a history that nobody touched: %v", id)
			}
		})
	}
}

// appendRow ends the history of m-1 with an entry of an audit row alone.
func appendRow(t *testing.T, s *store.Store) {
	t.Helper()
	if _, err := s.History.ScrubAudit(t.Context(), "m-1-unknown", "tester", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	err := storetest.ExecSQL(
		t,
		s,
		"INSERT INTO audit_log (ts, actor, verb, target_id) VALUES (now(), 'x', 'LOOKED', 'm-1')",
	)
	if err != nil {
		t.Fatal(err)
	}
}

// The list of histories has a machine that is gone as long as its history is there, page by page.
func TestHistoriesAreListedByPage(t *testing.T) {
	s := storetest.New(t)
	for i := range 7 {
		storetest.Register(t, s, fmt.Sprintf("m-%d", i))
	}
	rewrite(t, s, "", "DELETE FROM machines WHERE machine_id = 'm-3'")
	rewrite(t, s, "", "DELETE FROM machine_timeline WHERE machine_id = 'm-4'")
	var all []string
	for after := ""; ; {
		page, _, err := s.Timelines.HistoryOwners(context.WithoutCancel(t.Context()), after, 2)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page...)
		if len(page) < 2 {
			break
		}
		after = page[len(page)-1]
	}
	if want := []string{"", "m-0", "m-1", "m-2", "m-3", "m-4", "m-5", "m-6"}; !slices.Equal(all, want) {
		t.Errorf("%s", strings.Join(all, " "))
	}
}

// An upgrade states anew what older versions changed after it was chained, and going back and forth keeps the chain.
func TestRowsOfAnOlderVersionAreStatedAnew(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	if err := s.History.CountRefusals(t.Context(), access.RefusalBatch{Writer: "rw-1", Number: 1,
		Refusals: []access.Refusal{{Actor: "reader", Method: "/y", Count: 3}}}); err != nil {
		t.Fatal(err)
	}
	migrateBy(t, s, "0044_final_rows.down.sql")
	for _, q := range []string{
		`INSERT INTO audit_log (ts, actor, verb, target_id, event_data)
		 VALUES (now(), 'reader', 'REFUSED', 'refusals', '{"count": "1", "method": "/x"}')`,
		`UPDATE audit_log SET event_data = jsonb_set(event_data, '{count}', '"2"') WHERE event_data->>'method' = '/x'`,
		`INSERT INTO audit_log (ts, actor, verb, target_id, event_data) VALUES (now(), 'a', 'CONFIG_DRIFT', 'm-1', '{"diff": "x"}')`,
		`UPDATE audit_log SET event_data = '{}', salt = NULL WHERE verb = 'CONFIG_DRIFT'`,
	} {
		storetest.Exec(t, s, q)
	}
	if n := storetest.Count(t, s, `SELECT count(*) FROM audit_log WHERE event_data->>'method' = '/y'
		AND event_data->>'count' = '3'`); n != 1 {
		t.Errorf("%d rows of what was counted", n)
	}
	migrateBy(t, s, "0044_final_rows.up.sql")
	unseen(t, s, "what an older version wrote")
	rewrite(t, s, "", `UPDATE audit_log SET event_data = jsonb_set(event_data, '{count}', '"9"') WHERE verb = 'REFUSED'`)
	if storetest.Verdict(t, s, "").GetOk() {
		t.Error("a count that is changed after the upgrade is not found")
	}
}

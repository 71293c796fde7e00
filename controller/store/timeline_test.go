package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/migrations"
)

func verdict(t testing.TB, s *store.Store, machineID string) *baremetalv1.TimelineVerdict {
	t.Helper()
	v, err := s.VerifyTimeline(t.Context(), machineID)
	if err != nil {
		t.Fatalf("verify %q: %v", machineID, err)
	}
	return v
}

func intact(t testing.TB, s *store.Store, machineID string) {
	t.Helper()
	if v := verdict(t, s, machineID); !v.GetOk() {
		t.Errorf("%q: broken at %d %s; %s", machineID, v.GetBrokenSeq(), v.GetBrokenWhy(), strings.Join(v.GetDifferences(), "\n"))
	}
}

// rewrite does what nobody may: it changes rows behind the back of the triggers.
func rewrite(t testing.TB, s *store.Store, table, query string, args ...any) {
	t.Helper()
	conn, err := s.Pool().Acquire(t.Context())
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
	a := live(t, s, "m-1")
	before := now()
	if err := rebootOnce(t.Context(), s, a, 1); err != nil {
		t.Fatal(err)
	}
	entries, err := s.Timeline(t.Context(), store.TimelineQuery{MachineID: "m-1", Since: before, OldestFirst: true, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, strings.Join([]string{e.GetKind(), strings.ReplaceAll(e.GetActor(), a.id, "agent"), e.GetFields()["phase"] + e.GetFields()["state"]}, " "))
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
	intact(t, s, "m-1")
	intact(t, s, "")
}

// The state at any moment between two transactions is the one that was read then.
func TestStateAtATime(t *testing.T) {
	s := storetest.New(t)
	live(t, s, "m-1")
	start(t, s, store.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reboot})
	busy := now()
	if _, err := s.SetFlag(t.Context(), "m-1", "RMA", true, "tester", "", now()); err != nil {
		t.Fatal(err)
	}
	then, err := s.StateAt(t.Context(), "m-1", busy)
	if err != nil || then == nil {
		t.Fatalf("%v, %v", then, err)
	}
	at, err := s.StateAt(t.Context(), "m-1", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if then.Machine["phase"] != "MAINTENANCE" || then.Machine["current_operation_id"] == "" || then.Conditions["RMA"].Status != "" {
		t.Errorf("then: %+v", then)
	}
	if at.Conditions["RMA"].Status != "true" {
		t.Errorf("now: %+v", at.Conditions)
	}
	if none, err := s.StateAt(t.Context(), "m-1", busy.Add(-time.Hour)); none != nil || err != nil {
		t.Errorf("an hour ago: %+v, %v", none, err)
	}
}

func TestHistoryIsAppendOnly(t *testing.T) {
	s := storetest.New(t)
	register(t, s, "m-1")
	for _, q := range []string{"UPDATE machine_timeline SET actor = 'x'", "DELETE FROM machine_timeline", "TRUNCATE machine_timeline"} {
		if err := execSQL(t, s, q); err == nil || !strings.Contains(err.Error(), "never change") {
			t.Errorf("%s: %v", q, err)
		}
	}
}

// Whatever byte of whatever column of whatever row is changed, verifying names that row.
func TestEveryChangedByteIsFound(t *testing.T) {
	s := storetest.New(t)
	a := live(t, s, "m-1")
	if err := rebootOnce(t.Context(), s, a, 1); err != nil {
		t.Fatal(err)
	}
	intact(t, s, "m-1")
	changes := map[string]string{
		"machine_id": "machine_id || 'x'", "seq": "seq + 1000", "ts": "ts + interval '1 microsecond'", "tx": "tx + 1",
		"kind": "overlay(kind placing chr(ascii(kind) + 1) from 1)", "actor": "actor || 'x'", "operation_id": "operation_id || ' '",
		"command_id": "command_id || '0'", "fields": "(overlay(fields::text placing '  ' from 2 for 0))::json",
		"prev_hash": "CASE WHEN length(prev_hash) = 0 THEN '\\x00' ELSE set_byte(prev_hash, 31, get_byte(prev_hash, 31) # 1) END",
		"hash":      "set_byte(hash, 0, get_byte(hash, 0) # 128)",
	}
	columns := count(t, s, "SELECT count(*) FROM information_schema.columns WHERE table_name = 'machine_timeline'")
	if columns != len(changes) {
		t.Fatalf("the table has %d columns, the test changes %d", columns, len(changes))
	}
	entries := count(t, s, "SELECT max(seq) FROM machine_timeline WHERE machine_id = 'm-1'")
	for column, change := range changes {
		for _, seq := range []int{1, entries / 2, entries} {
			rewrite(t, s, "machine_timeline", fmt.Sprintf(
				"CREATE TABLE kept AS SELECT * FROM machine_timeline WHERE machine_id = 'm-1' AND seq = %d", seq))
			rewrite(t, s, "machine_timeline", fmt.Sprintf("UPDATE machine_timeline SET %s = %s WHERE machine_id = 'm-1' AND seq = %d", column, change, seq))
			v := verdict(t, s, "m-1")
			// Without its last row a chain is whole; but then the tables say more than it does.
			cut := seq == entries && column == "machine_id"
			if v.GetOk() || !cut && v.GetBrokenSeq() != int64(seq) {
				t.Errorf("%s of entry %d: %v", column, seq, v)
			}
			rewrite(t, s, "machine_timeline", "DELETE FROM machine_timeline WHERE hash IN (SELECT hash FROM kept) OR (machine_id, seq) IN (SELECT machine_id, seq FROM kept)")
			rewrite(t, s, "machine_timeline", "INSERT INTO machine_timeline SELECT * FROM kept")
			rewrite(t, s, "machine_timeline", "DROP TABLE kept")
		}
	}
	intact(t, s, "m-1")
}

// What the tables say is held against the history: a change that no trigger saw is found.
func TestChangedTablesAreFound(t *testing.T) {
	s := storetest.New(t)
	a := live(t, s, "m-1")
	if err := rebootOnce(t.Context(), s, a, 1); err != nil {
		t.Fatal(err)
	}
	for table, set := range map[string]string{
		"machines": "phase = 'READY'", "machine_conditions": "reason = 'x'", "operations": "evidence = '{\"a\": \"b\"}'",
		"operation_steps": "retry_count = 2", "commands": "outcome = 'FAILED'", "audit_log": "event_data = '{\"comment\": \"nothing\"}'",
	} {
		rewrite(t, s, table, fmt.Sprintf("CREATE TABLE kept AS SELECT ctid AS at, t.* FROM %s t", table))
		rewrite(t, s, table, fmt.Sprintf("UPDATE %s SET %s", table, set))
		if v := verdict(t, s, "m-1"); v.GetOk() || v.GetBrokenSeq() != 0 || len(v.GetDifferences()) == 0 {
			t.Errorf("%s: %v", table, v)
		}
		column, _, _ := strings.Cut(set, " ")
		key := map[string]string{
			"machines": "t.machine_id = k.machine_id", "machine_conditions": "t.machine_id = k.machine_id AND t.type = k.type",
			"operations": "t.operation_id = k.operation_id", "operation_steps": "t.operation_id = k.operation_id AND t.idx = k.idx",
			"commands": "t.command_id = k.command_id", "audit_log": "t.audit_id = k.audit_id",
		}[table]
		rewrite(t, s, table, fmt.Sprintf("UPDATE %s t SET %s = k.%s FROM kept k WHERE %s", table, column, column, key))
		rewrite(t, s, table, "DROP TABLE kept")
		intact(t, s, "m-1")
	}
}

func TestScrubbingKeepsTheChain(t *testing.T) {
	s := storetest.New(t)
	register(t, s, "m-1")
	if _, err := s.SetFlag(t.Context(), "m-1", "RMA", true, "tester", "call Jane Roe", now()); err != nil {
		t.Fatal(err)
	}
	intact(t, s, "m-1")
	if n := count(t, s, "SELECT count(*) FROM machine_timeline WHERE fields::text LIKE '%Jane%' OR fields::text LIKE '%Roe%'"); n != 0 {
		t.Errorf("%d entries hold what a person typed", n)
	}
	if n, err := s.ScrubAudit(t.Context(), "m-1", "tester", now()); n != 1 || err != nil {
		t.Fatalf("scrubbed %d, %v", n, err)
	}
	intact(t, s, "m-1")
	if n := count(t, s, "SELECT count(*) FROM audit_log WHERE event_data = '{}' AND salt IS NULL AND verb = 'SET_FLAG'"); n != 1 {
		t.Errorf("%d rows are empty and have no salt", n)
	}
	// The same by hand, with no row that says so.
	rewrite(t, s, "audit_log", "UPDATE audit_log SET event_data = '{}', salt = NULL WHERE verb = 'SCRUB_AUDIT'")
	if v := verdict(t, s, "m-1"); v.GetOk() || !strings.Contains(v.GetDifferences()[0], "no audit row says so") {
		t.Errorf("%v", v)
	}
}

// Transactions that do not take the machine's row first wait for each other all the same: no gap, no fork, none fails.
func TestConcurrentTransactionsNeverFork(t *testing.T) {
	s := storetest.New(t)
	register(t, s, "m-1")
	const writers, rounds = 8, 20
	for _, err := range together(t, writers, func(ctx context.Context, i int) error {
		for n := range rounds {
			// Audit rows of the machine and of the fleet, by writers that hold no lock.
			for _, target := range []string{"m-1", fmt.Sprint("site-", i)} {
				_, err := s.Pool().Exec(ctx, "INSERT INTO audit_log (ts, actor, verb, target_id) VALUES (now(), $1, $2, $3)", fmt.Sprint("w-", i), fmt.Sprint("V", n), target)
				if err != nil {
					return err
				}
			}
		}
		return nil
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	intact(t, s, "m-1")
	intact(t, s, "")
	for _, id := range []string{"m-1", ""} {
		if v := verdict(t, s, id); v.GetEntries() < writers*rounds {
			t.Errorf("%q has %d entries", id, v.GetEntries())
		}
	}
}

// A machine that is older than its history begins with what it is; what comes after is as of any other.
func TestMachinesOfBeforeBeginWithASnapshot(t *testing.T) {
	s := storetest.New(t)
	a := live(t, s, "m-1")
	if err := rebootOnce(t.Context(), s, a, 1); err != nil {
		t.Fatal(err)
	}
	id := start(t, s, store.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reboot}).GetOperationId()
	c := decide(t, s, id, operation.Look{}).Command
	for _, name := range []string{"0004_timeline.down.sql", "0004_timeline.up.sql"} {
		raw, err := migrations.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := pgx.BeginFunc(t.Context(), s.Pool(), func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), string(raw))
			return err
		}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	s.Pool().Reset()
	intact(t, s, "m-1")
	if n := count(t, s, "SELECT count(*) FROM machine_timeline WHERE seq = 1 AND kind = 'snapshot'"); n != 1 {
		t.Errorf("%d snapshots", n)
	}
	decide(t, s, id, ask(a, c, 2, 1))
	decide(t, s, id, operation.CancelAsked{Actor: "tester"})
	intact(t, s, "m-1")
	then, err := s.StateAt(t.Context(), "m-1", time.Time{})
	if err != nil || then.Commands[c.ID].State != "GRANTED" || then.OperationsBefore != "2" {
		t.Errorf("%+v, %v", then, err)
	}
}

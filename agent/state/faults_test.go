package state_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/site/lease"
	"github.com/ingot-metal/ingot/agent/state"
)

// content is every row of a database, by table and key.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	db := second(t, dir)
	out := map[string]string{}
	for table, keys := range map[string]int{"meta": 1, "commands": 1, "events": 1, "dropped": 1, "site_document": 1,
		"leases": 2} {
		rows, err := db.QueryContext(t.Context(), "SELECT * FROM "+table)
		must(t, err)
		columns, err := rows.Columns()
		must(t, err)
		for rows.Next() {
			values, into := make([]sql.NullString, len(columns)), []any(nil)
			for i := range values {
				into = append(into, &values[i])
			}
			must(t, rows.Scan(into...))
			key := table
			for _, v := range values[:keys] {
				key += "/" + v.String
			}
			out[key] = fmt.Sprint(values[keys:])
		}
		must(t, errors.Join(rows.Err(), rows.Close()))
	}
	return out
}

// second is a connection of another process to the database.
func second(t *testing.T, dir string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, state.FileName)+"?_pragma=busy_timeout(5000)")
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

func differing(a, b map[string]string) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if now, there := b[key]; !there || now != a[key] {
			out = append(out, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(b)) {
		if _, there := a[key]; !there {
			out = append(out, key)
		}
	}
	return out
}

// drawn are the values that are new with every use.
var drawn = []string{"meta/state_id", "meta/grant_seq", "meta/asks.received", "meta/probe"}

// faultsOf are triggers that make a write of one of the rows fail.
func faultsOf(keys []string) []string {
	var out []string
	for _, key := range keys {
		table, row, _ := strings.Cut(key, "/")
		for _, op := range []string{"INSERT", "UPDATE", "DELETE"} {
			when := ""
			if table == "meta" {
				old := map[bool]string{true: "OLD", false: "NEW"}[op == "DELETE"]
				when = fmt.Sprintf("WHEN %s.key = '%s' ", old, row)
			}
			fault := fmt.Sprintf("CREATE TRIGGER f BEFORE %s ON %s %sBEGIN SELECT RAISE(ABORT, 'no'); END", op, table, when)
			if !slices.Contains(out, fault) {
				out = append(out, fault)
			}
		}
	}
	return out
}

// TestAUseDoesAllOrSaysSo: whichever write of a use fails, it is an error and nothing has changed; without an error all
// of it is there.
func TestAUseDoesAllOrSaysSo(t *testing.T) {
	t.Parallel()
	failures := 0
	for name, use := range uses {
		s, dir := filled(t)
		before := content(t, dir)
		must(t, use(t.Context(), s))
		after := content(t, dir)
		changes := differing(before, after)
		for _, fault := range faultsOf(changes) {
			s, dir := filled(t)
			before := content(t, dir)
			_, err := second(t, dir).ExecContext(t.Context(), fault)
			must(t, err)
			err = use(t.Context(), s)
			got := differing(before, content(t, dir))
			if err != nil {
				failures++
			}
			if err != nil && len(got) > 0 {
				t.Errorf("%s failed and changed %v, with %s", name, got, fault)
			}
			if err == nil && !slices.Equal(got, changes) {
				t.Errorf("%s changed %v, and says nothing of %v, with %s", name, got, changes, fault)
			}
		}
		for _, key := range drawn {
			delete(before, key)
			delete(after, key)
		}
		if again, dir := filled(t); use(t.Context(), again) == nil {
			now := content(t, dir)
			for _, key := range drawn {
				delete(now, key)
			}
			if d := differing(after, now); len(d) > 0 {
				t.Errorf("%s differs from itself in %v", name, d)
			}
		}
	}
	if failures < len(uses) {
		t.Errorf("only %d uses failed", failures)
	}
}

// TestADamagedValueIsAnErrorWhereItIsRead: by itself, beside others that can be read. Nothing stays held by the
// failure.
func TestADamagedValueIsAnErrorWhereItIsRead(t *testing.T) {
	t.Parallel()
	value := func(key string) string { return "UPDATE meta SET value = x'ff' WHERE key = '" + key + "'" }
	for what, names := range map[string][]string{
		value("grant_seq"):        {"grant number", "meta", "state id"},
		value("event_seq"):        {"append", "append inventory", "append finding", "meta", "state id"},
		value("controller_time"):  {"controller time", "meta", "state id"},
		value("shared_event_seq"): {"recognized", "meta", "state id"},
		value("asks.received"):    {"grant number"},
		value("doc.k"):            {"get"},
		"DELETE FROM meta WHERE key = 'shared_event_seq'; " + value("event_seq"): {"doubt", "new state id"},
		"UPDATE commands SET received_ms = 'x' WHERE command_id = 'started'":     {"unsettled", "new state id"},
		"UPDATE commands SET received_ms = 'x' WHERE command_id IN ('received', 'done')": {"receive again", "command",
			"unsettled"},
		"UPDATE events SET priority = 0.5": {"append", "append inventory",
			"append finding"},
		"UPDATE dropped SET n = 'x'": {"events"},
		"UPDATE events SET body = x'ff' WHERE seq = (SELECT min(seq) FROM events)": {"events"},
		"UPDATE leases SET body = x'ff'":                                           {"leases"},
	} {
		for _, name := range names {
			s, dir := filled(t)
			must(t, s.Site().SaveLeases(t.Context(), []lease.Lease{leaseOf("10.0.0.2")}))
			_, err := second(t, dir).ExecContext(t.Context(), what)
			must(t, err)
			err = uses[name](t.Context(), s)
			if err == nil || errors.Is(err, state.ErrStorageFull) || errors.Is(err, state.ErrConflict) {
				t.Errorf("%s after %s: %v", name, what, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), ample)
			if _, err := s.Site().SiteDocument(ctx); err != nil {
				t.Errorf("%s after %s holds the connection: %v", name, what, err)
			}
			cancel()
		}
	}
}

// TestWhatCannotBeEncodedIsNotStored: an error, and nothing of it is there.
func TestWhatCannotBeEncodedIsNotStored(t *testing.T) {
	t.Parallel()
	s, dir := filled(t)
	before := content(t, dir)
	far := leaseOf("10.0.0.2")
	far.Ends = t0.AddDate(9000, 0, 0)
	for name, err := range map[string]error{
		"event":    s.Append(t.Context(), line("\xff"), t0),
		"document": s.Site().SaveSiteDocument(t.Context(), &fleetv1.SiteDocument{Site: "\xff"}),
		"value":    s.PutJSON(t.Context(), "k", make(chan int)),
		"lease":    s.Site().SaveLeases(t.Context(), []lease.Lease{far}),
	} {
		if err == nil {
			t.Errorf("a %s that cannot be encoded is stored", name)
		}
	}
	if d := differing(before, content(t, dir)); len(d) > 0 {
		t.Errorf("changed %v", d)
	}
}

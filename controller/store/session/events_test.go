package session_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failure"
)

// lastEvent is the highest number that was taken of an agent's events.
func lastEvent(t *testing.T, s *store.Store, a storetest.Enrolled) int {
	t.Helper()
	return storetest.Count(t, s, "SELECT last_event_seq FROM agent_states WHERE agent_id = $1 AND state_id = 'st-1'", a.ID)
}

func keyOf(a storetest.Enrolled, seq uint64) sessionstore.EventKey {
	return sessionstore.EventKey{AgentID: a.ID, StateID: "st-1", Seq: seq}
}

// lines is the log of an operation: each line with its stream, step and time since a moment.
func lines(t *testing.T, s *store.Store, op string, at time.Time) (out []string) {
	t.Helper()
	logs, err := s.Logs.LogsOf(t.Context(), op, 0, 100)
	must(t, err)
	for _, l := range logs {
		out = append(out, fmt.Sprintf("%s %s %s %s", l.GetStream(), l.GetStep(), l.GetData(), l.GetTs().AsTime().Sub(at)))
	}
	return out
}

// Lines of a log are stored with their stream, step and time, and those of a command that is not the agent's are only
// counted.
func TestLinesOfALog(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	a, op, c := storetest.Rebooting(t, s, "m-1")
	other, otherOp, _ := storetest.Rebooting(t, s, "m-2")
	at := storetest.Now()
	piece := func(seq uint64, stream string) sessionstore.Piece {
		return sessionstore.Piece{Seq: seq, Stream: stream, Data: []byte(fmt.Sprint("line-", seq)),
			At: at.Add(time.Duration(seq) * time.Second)}
	}
	must(t, s.Sessions.LogEvents(t.Context(), keyOf(a, 0), c.ID, piece(1, "stdout"), piece(2, "stderr")),
		s.Sessions.LogEvents(t.Context(), keyOf(other, 0), c.ID, piece(3, "stdout")),
		s.Sessions.LogEvents(t.Context(), keyOf(a, 0), "cmd-unknown", piece(4, "stdout")),
		s.Sessions.ConsoleEvents(t.Context(), keyOf(a, 0), "default", op, piece(5, sessionstore.ConsoleStream)),
		s.Sessions.ConsoleEvents(t.Context(), keyOf(a, 0), "elsewhere", op, piece(6, sessionstore.ConsoleStream)),
		s.Sessions.ConsoleEvents(t.Context(), keyOf(a, 0), "default", "op-unknown", piece(7, sessionstore.ConsoleStream)),
		s.Sessions.SkipEvent(t.Context(), keyOf(other, 9)))
	want := []string{"stdout reboot line-1 1s", "stderr reboot line-2 2s", "console console line-5 5s"}
	if got := lines(t, s, op, at); !slices.Equal(got, want) {
		t.Errorf("the log is %q, want %q", got, want)
	}
	if got := lines(t, s, otherOp, at); len(got) != 0 {
		t.Errorf("the other log is %q", got)
	}
	if n, m := lastEvent(t, s, a), lastEvent(t, s, other); n != 7 || m != 9 {
		t.Errorf("the last numbers are %d and %d", n, m)
	}
}

// A line that no database keeps stops those behind it: a later number that was taken would hide it for ever.
func TestALineThatCannotBeStoredStopsThoseBehindIt(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]uint64{"alone": 2, "after one that was seen": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := storetest.New(t)
			a, op, c := storetest.Rebooting(t, s, "m-1")
			must(t, s.Sessions.LogEvents(t.Context(), keyOf(a, 0), c.ID, line(1, "a")))
			var pieces []sessionstore.Piece
			for seq := first; seq < 5; seq++ {
				pieces = append(pieces, line(seq, "b"))
			}
			pieces[len(pieces)-2].Stream = "a\x00b"
			if err := s.Sessions.LogEvents(t.Context(), keyOf(a, 0), c.ID, pieces...); err == nil {
				t.Error("it was stored")
			}
			// What comes together is stored together, unless a part of it was seen.
			want := map[uint64]int{2: 1, 1: 2}[first]
			if got := lines(t, s, op, storetest.Now()); len(got) != want || lastEvent(t, s, a) != want {
				t.Errorf("the log is %q, the last number %d", got, lastEvent(t, s, a))
			}
		})
	}
}

// No event of an older session is stored, of whatever kind, and each names that a newer one is open.
func TestNoEventOfAnOlderSession(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	a, op, c := storetest.Rebooting(t, s, "m-1")
	older := storetest.Open(t, s, a.Hello("st-1", "boot-1")).Epoch
	storetest.Open(t, s, a.Hello("st-1", "boot-1"))
	tables := []string{"agent_states", "operation_logs", "machine_conditions", "inventories", "audit_log"}
	before := storetest.Everything(t, s, tables...)
	v, at := s.Sessions, storetest.Now()
	for name, event := range map[string]func(sessionstore.EventKey) error{
		"none": func(k sessionstore.EventKey) error { return v.SkipEvent(t.Context(), k) },
		"a log": func(k sessionstore.EventKey) error {
			return v.LogEvents(t.Context(), k, c.ID, line(1, "a"), line(2, "b"))
		},
		"no log":  func(k sessionstore.EventKey) error { return v.LogEvents(t.Context(), k, "cmd-none", line(1, "a")) },
		"a drift": func(k sessionstore.EventKey) error { return v.DriftEvent(t.Context(), k, "m-1", "-", "", at) },
		"a RAID":  func(k sessionstore.EventKey) error { return v.RAIDEvent(t.Context(), k, "m-1", "-", at) },
		"a console": func(k sessionstore.EventKey) error {
			return v.ConsoleEvents(t.Context(), k, "default", op, line(1, "a"))
		},
		"an inventory": func(k sessionstore.EventKey) error {
			return v.InventoryEvent(t.Context(), k, "m-1", "h", []byte("{}"), false, at)
		},
		"an inventory that no database keeps": func(k sessionstore.EventKey) error {
			return v.InventoryEvent(t.Context(), k, "m-1", "h\x00", []byte("{}"), false, at)
		},
		"a report": func(k sessionstore.EventKey) error {
			return errOf(v.PhoneHomeEvent(t.Context(), k, "default", map[string]string{evidence.PhoneHomeSecret: "ab"}, at))
		},
		"a report without a secret": func(k sessionstore.EventKey) error {
			return errOf(v.PhoneHomeEvent(t.Context(), k, "default", map[string]string{evidence.PhoneHomeSecret: "-"}, at))
		},
	} {
		k := keyOf(a, 1)
		k.Epoch = older
		if err := event(k); failure.ReasonOf(err) != "SESSION_SUPERSEDED" {
			t.Errorf("%s: %v", name, err)
		}
		if after := storetest.Everything(t, s, tables...); after != before {
			t.Errorf("%s: something has changed", name)
		}
	}
}

// An installer's events count as long as its operation is under way. Later ones take their numbers and change nothing,
// but for the end of its log.
func TestAnInstallersEventsEndWithItsOperation(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	a, op, c := storetest.Rebooting(t, s, "m-1")
	must(
		t,
		storetest.ExecSQL(t, s, "UPDATE agents SET role = 'installer', operation_id = $1 WHERE agent_id = $2", op, a.ID),
	)
	tables := []string{"machine_conditions", "inventories", "audit_log", "machines"}
	seq := uint64(0)
	changes := func(when string, want bool) {
		t.Helper()
		events := map[string]func(sessionstore.EventKey) error{
			"a drift": func(k sessionstore.EventKey) error {
				return s.Sessions.DriftEvent(t.Context(), k, "m-1", "- "+when, "sha256:1", storetest.Now())
			},
			"a RAID": func(k sessionstore.EventKey) error {
				return s.Sessions.RAIDEvent(t.Context(), k, "m-1", "lacks a disk "+when, storetest.Now())
			},
			"an inventory": func(k sessionstore.EventKey) error {
				return s.Sessions.InventoryEvent(t.Context(), k, "m-1", "h-"+when, []byte(`{"disks":[]}`), true, storetest.Now())
			},
		}
		for _, name := range slices.Sorted(maps.Keys(events)) {
			seq++
			before := storetest.Everything(t, s, tables...)
			k := keyOf(a, seq)
			k.InstallerOf = "m-1"
			must(t, events[name](k))
			if after := storetest.Everything(t, s, tables...); (after != before) != want {
				t.Errorf("%s: %s changes something: %t", when, name, after != before)
			}
			if n := lastEvent(t, s, a); n != int(seq) {
				t.Errorf("%s: after %s the last number is %d, want %d", when, name, n, seq)
			}
		}
		seq++
		k := keyOf(a, 0)
		k.InstallerOf = "m-1"
		must(t, s.Sessions.LogEvents(t.Context(), k, c.ID, line(seq, when)))
	}
	changes("under way", true)
	storetest.Decide(t, s, op, operation.CancelAsked{Actor: "tester"})
	must(t, storetest.ExecSQL(t, s, "UPDATE commands SET state = 'CANCELED' WHERE command_id = $1", c.ID))
	storetest.Decide(t, s, op, operation.Evaluate{})
	if n := storetest.Count(t, s, "SELECT count(*) FROM operations WHERE finished_at IS NULL"); n != 0 {
		t.Fatal("the operation has not ended")
	}
	changes("ended", false)
	if n := len(lines(t, s, op, storetest.Now())); n != 2 {
		t.Errorf("the log has %d lines", n)
	}
	// An inventory that it sends is what it is.
	if n := storetest.Count(t, s, `SELECT count(*) FROM inventories WHERE machine_id = 'm-1' AND hash = 'h-under way'
		AND agent_id = $1 AND simulated AND document = '{"disks": []}'`, a.ID); n != 1 {
		t.Errorf("%d inventories", n)
	}
}

// Of a machine's drifts the audit log takes one in ten minutes, and keeps the differences of the newest ones.
func TestTheAuditLogKeepsSomeDrifts(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	a := inService(t, s, "m-1")
	at := storetest.Now()
	seq := uint64(0)
	drifts := func(diff string, now time.Time) {
		t.Helper()
		seq++
		must(t, s.Sessions.DriftEvent(t.Context(), keyOf(a, seq), "m-1", diff, "sha256:"+diff, now))
		c := storetest.Condition(storetest.Machine(t, s, "m-1"), fleet.Degraded)
		if (c != nil) != (diff != "") || c != nil && (c.GetReason() != "CONFIG_DRIFT" || c.GetMessage() == "") {
			t.Errorf("with the difference %q the machine has %v", diff, c)
		}
	}
	kept := func(when string, all int, want ...string) {
		t.Helper()
		rows, err := s.DB.Pool().Query(t.Context(), `SELECT actor, target_id, coalesce(event_data ->> 'diff', ''),
			coalesce(event_data ->> 'digest', '') FROM audit_log WHERE verb = 'CONFIG_DRIFT' ORDER BY audit_id`)
		must(t, err)
		type row struct{ Actor, Target, Diff, Digest string }
		got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
		must(t, err)
		var diffs []string
		for _, r := range got {
			if r.Actor != a.ID || r.Target != "m-1" || r.Diff != "" && r.Digest != "sha256:"+r.Diff {
				t.Errorf("%s: a row is %+v", when, r)
			}
			if r.Diff != "" {
				diffs = append(diffs, r.Diff)
			}
		}
		if len(got) != all || !slices.Equal(diffs, want) {
			t.Errorf("%s: of %d rows %v have their differences, want %v of %d", when, len(got), diffs, want, all)
		}
	}
	drifts("", at)
	kept("none", 0)
	drifts("1", at)
	drifts("again", at.Add(10*time.Minute-time.Microsecond))
	kept("before ten minutes", 1, "1")
	drifts("", at.Add(10*time.Minute))
	want := []string{"1"}
	for i := 2; i <= 30; i++ {
		drifts(fmt.Sprint(i), at.Add(time.Duration(i-1)*10*time.Minute))
		want = append(want, fmt.Sprint(i))
	}
	kept("thirty", 30, want...)
	drifts("31", at.Add(300*time.Minute))
	kept("one more", 31, append(want[10:], "31")...)
	if n := storetest.Count(t, s, `SELECT count(*) FROM audit_log WHERE actor = 'system' AND target_id = 'm-1'
		AND scrub_verb = 'CONFIG_DRIFT'`); n != 1 {
		t.Errorf("%d rows announce what was scrubbed", n)
	}
}

// Inventories that come together are each stored as what they are, for their own machines.
func TestInventoriesKeepTheirFields(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	storetest.Lease(t, s)
	at := storetest.Now()
	agents := make([]storetest.Enrolled, 20)
	for i := range agents {
		agents[i] = inService(t, s, fmt.Sprintf("m-%02d", i))
	}
	document := func(i int) string { return fmt.Sprintf(`{"n": %d}`, i) }
	for i, err := range storetest.Together(t, len(agents), func(ctx context.Context, i int) error {
		return s.Sessions.InventoryEvent(ctx, keyOf(agents[i], uint64(i+1)), agents[i].Machine, fmt.Sprint("h-", i),
			[]byte(document(i)), i%2 == 1, at.Add(time.Duration(i)*time.Second))
	}) {
		if err != nil {
			t.Fatalf("inventory %d: %v", i, err)
		}
	}
	for i, a := range agents {
		if n := storetest.Count(t, s, `SELECT count(*) FROM inventories WHERE machine_id = $1 AND agent_id = $2 AND hash = $3
			AND document = $4 AND simulated = $5 AND reported_at = $6`, a.Machine, a.ID, fmt.Sprint("h-", i), document(i),
			i%2 == 1,
			at.Add(time.Duration(i)*time.Second)); n != 1 {
			t.Errorf("%d inventories of machine %d", n, i)
		}
		if n := lastEvent(t, s, a); n != i+1 {
			t.Errorf("the last number of agent %d is %d", i, n)
		}
	}
	// An agent without a machine has no inventory that could be kept.
	must(t, s.Sessions.InventoryEvent(t.Context(), keyOf(agents[0], 50), "", "h", []byte("{}"), false, at))
	if n := storetest.Count(
		t,
		s,
		"SELECT count(*) FROM inventories",
	); n != len(agents) ||
		lastEvent(t, s, agents[0]) != 50 {
		t.Errorf("%d inventories, the last number is %d", n, lastEvent(t, s, agents[0]))
	}
}

// Of two inventories of an agent in one lot, the second is stored behind the first.
func TestASecondInventoryInALot(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	storetest.Lease(t, s)
	a, b := inService(t, s, "m-1"), inService(t, s, "m-2")
	at := storetest.Now()
	lot := func(of storetest.Enrolled, seq uint64, hash string) sessionstore.Inventory {
		return sessionstore.Inventory{Key: keyOf(of, seq), MachineID: of.Machine, Hash: hash, Document: []byte("{}"), At: at}
	}
	must(t, s.Sessions.SkipEvent(t.Context(), keyOf(b, 3)))
	got, err := s.Sessions.StoreInventories(t.Context(), lot(a, 1, "h-1"), lot(a, 2, "h-2"), lot(b, 3, "h-3"))
	if want := []bool{true, false, false}; err != nil || !slices.Equal(got, want) {
		t.Errorf("stored: %v, %v, want %v", got, err, want)
	}
	if n := storetest.Count(
		t,
		s,
		"SELECT count(*) FROM inventories WHERE hash = 'h-1'",
	); n != 1 ||
		lastEvent(t, s, a) != 1 {
		t.Errorf("%d inventories, the last number is %d", n, lastEvent(t, s, a))
	}
}

// A machine keeps its newest inventories, whichever way they are stored.
func TestInventoriesAreBounded(t *testing.T) {
	t.Parallel()
	for name, installer := range map[string]string{"together": "", "alone": "m-1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := storetest.New(t)
			a, op, _ := storetest.Rebooting(t, s, "m-1")
			must(t, storetest.ExecSQL(t, s, "UPDATE agents SET role = 'installer', operation_id = $1 WHERE agent_id = $2", op,
				a.ID))
			other := inService(t, s, "m-2")
			at := storetest.Now()
			must(t, s.Sessions.InventoryEvent(t.Context(), keyOf(other, 1), "m-2", "h", []byte("{}"), false, at.Add(-time.Hour)))
			for i := range 55 {
				k := keyOf(a, uint64(i+1))
				k.InstallerOf = installer
				must(t, s.Sessions.InventoryEvent(t.Context(), k, "m-1", fmt.Sprint(i), []byte("{}"), false,
					at.Add(time.Duration(i)*time.Second)))
			}
			if n, m := storetest.Count(t, s, "SELECT count(*) FROM inventories WHERE machine_id = 'm-1'"),
				storetest.Count(t, s, "SELECT count(*) FROM inventories WHERE machine_id = 'm-2'"); n < 50 || n > 52 || m != 1 {
				t.Errorf("%d and %d inventories are kept", n, m)
			}
			if n := storetest.Count(
				t,
				s,
				"SELECT count(*) FROM inventories WHERE machine_id = 'm-1' AND hash::int >= 5",
			); n != 50 {
				t.Errorf("%d of the 50 newest are kept", n)
			}
		})
	}
}

// What a system reports of itself is kept as evidence of its operation: the fields that it may report, and no more of
// them than fits.
func TestWhatASystemReports(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	a, op, c := storetest.Rebooting(t, s, "m-1")
	secret := strings.Repeat("ab", 32)
	raw, err := hex.DecodeString(secret)
	must(
		t,
		err,
		storetest.ExecSQL(t, s, `INSERT INTO phone_homes (operation_id, machine_id, command_id, secret_sha256, issued_at)
		VALUES ($1, 'm-1', $2, $3, now())`, op, c.ID, raw),
	)
	seq := uint64(0)
	says := func(site string, fields map[string]string) string {
		t.Helper()
		seq++
		id, err := s.Sessions.PhoneHomeEvent(t.Context(), keyOf(a, seq), site, fields, storetest.Now())
		must(t, err)
		if n := lastEvent(t, s, a); n != int(seq) {
			t.Errorf("the last number is %d, want %d", n, seq)
		}
		return id
	}
	kept := func() (said map[string]string, audited int) {
		t.Helper()
		var raw []byte
		must(t, s.DB.Pool().QueryRow(t.Context(), "SELECT said FROM phone_homes").Scan(&raw), json.Unmarshal(raw, &said))
		return said, storetest.Count(t, s, `SELECT count(*) FROM audit_log WHERE verb = 'PHONE_HOME' AND actor = $1
			AND target_id = 'm-1' AND operation_id = $2`, a.ID, op)
	}
	full := map[string]string{
		evidence.PhonedHomeAt: "2030-01-01T00:00:00Z", evidence.PhonedHomeFrom: "10.0.0.1", evidence.InstanceID: "i-other",
		evidence.SystemHostname: strings.Repeat("h", 1024), evidence.SystemSSHKey: "ssh-ed25519 AAAA",
	}
	with := func(changes ...string) map[string]string {
		out := maps.Clone(full)
		out[evidence.PhoneHomeSecret], out["unasked"] = secret, "x"
		for i := 0; i < len(changes); i += 2 {
			out[changes[i]] = changes[i+1]
		}
		return out
	}
	for name, fields := range map[string]map[string]string{
		"a secret that is none": with(evidence.PhoneHomeSecret, "not hex"),
		"another secret":        with(evidence.PhoneHomeSecret, "abcd"),
	} {
		if id := says("default", fields); id != "" {
			t.Errorf("%s is that of %q", name, id)
		}
	}
	if id := says("elsewhere", with()); id != "" {
		t.Errorf("at another site it is that of %q", id)
	}
	if said, n := kept(); len(said) != 0 || n != 0 {
		t.Errorf("kept is %v, %d rows of the audit log", said, n)
	}
	for _, w := range []struct {
		fields, want map[string]string
		rows         int
	}{
		{with(), full, 1},
		{with(evidence.SystemHostname, strings.Repeat("h", 1025), evidence.SystemSSHKey, ""), map[string]string{
			evidence.PhonedHomeAt: full[evidence.PhonedHomeAt], evidence.PhonedHomeFrom: "10.0.0.1",
			evidence.InstanceID: "i-other"}, 2},
		{with(evidence.InstanceID, evidence.InstanceOf(op), evidence.SystemHostname, "web"), map[string]string{
			evidence.PhonedHomeAt: full[evidence.PhonedHomeAt], evidence.PhonedHomeFrom: "10.0.0.1",
			evidence.InstanceID: evidence.InstanceOf(op), evidence.SystemHostname: "web",
			evidence.SystemSSHKey: full[evidence.SystemSSHKey]}, 3},
	} {
		if id := says("default", w.fields); id != op {
			t.Errorf("the report is that of %q", id)
		}
		if said, n := kept(); !maps.Equal(said, w.want) || n != w.rows {
			t.Errorf("kept is %v, %d rows of the audit log, want %v", said, n, w.want)
		}
	}
	// The first report of the right instance stands.
	said, _ := kept()
	if id := says("default", with()); id != op {
		t.Errorf("a later report is that of %q", id)
	}
	if again, n := kept(); !maps.Equal(again, said) || n != 3 {
		t.Errorf("after a later report kept is %v, %d rows of the audit log", again, n)
	}
}

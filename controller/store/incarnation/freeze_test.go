package incarnation_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// A freeze names who or what began it, and since when; the first one stands until it is lifted.
func TestWhoFrozeTheFleet(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	at := storetest.Now()
	why := func(when string, want fleet.Freeze) {
		t.Helper()
		got, err := s.Incarnations.WhyFrozen(t.Context())
		same := got.Since.Equal(want.Since)
		got.Since = want.Since
		if err != nil || !same || got != want {
			t.Errorf("%s: %+v, %v, want %+v", when, got, err, want)
		}
	}
	freeze := func(actor, comment string, at time.Time) {
		t.Helper()
		if err := s.Incarnations.Freeze(t.Context(), actor, comment, at); err != nil {
			t.Fatal(err)
		}
	}
	why("at first", fleet.Freeze{})
	freeze("eve", "smoke", at)
	why("frozen", fleet.Freeze{Since: at, Actor: "eve", Comment: "smoke"})
	freeze("bob", "more smoke", at.Add(time.Second))
	why("frozen twice", fleet.Freeze{Since: at, Actor: "eve", Comment: "smoke"})
	if err := s.Incarnations.Thaw(t.Context(), "bob", "it was steam", at.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	why("lifted", fleet.Freeze{})
	if err := s.Incarnations.Restored(t.Context(), at.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	why("restored", fleet.Freeze{Since: at.Add(time.Hour), Restored: true, Actor: "system"})
	// The restore of an older version is not in the audit log.
	storetest.Exec(t, s, "UPDATE cluster_state SET frozen_since = '2030-01-01T00:00:00Z'")
	why("restored without a word", fleet.Freeze{Since: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), Restored: true})

	rows, err := s.DB.Pool().Query(t.Context(),
		"SELECT actor, verb, coalesce(event_data ->> 'comment', ''), ts FROM audit_log ORDER BY audit_id")
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[audited])
	if err != nil {
		t.Fatal(err)
	}
	want := []audited{
		{"eve", "FREEZE_FLEET", "smoke", at}, {"bob", "FREEZE_FLEET", "more smoke", at.Add(time.Second)},
		{"bob", "THAW_FLEET", "it was steam", at.Add(time.Minute)}, {"system", "DATABASE_RESTORED", "", at.Add(time.Hour)},
	}
	if !slices.EqualFunc(got, want, func(a, b audited) bool {
		return a.Actor == b.Actor && a.Verb == b.Verb && a.Comment == b.Comment && a.At.Equal(b.At)
	}) {
		t.Errorf("the audit log is %v, want %v", got, want)
	}
}

// audited is a row of the audit log.
type audited struct {
	Actor, Verb, Comment string
	At                   time.Time
}

// Before a thaw an admin learns how many agents were not heard since the freeze. An open session counts as heard,
// unless the database was restored since it began.
func TestAgentsThatWereNotHeard(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	storetest.Lease(t, s)
	enrol := func(id string) storetest.Enrolled {
		storetest.Register(t, s, id)
		return storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-" + id, MachineID: id})
	}
	missing := func(when string, want int32, frozen bool) {
		t.Helper()
		since, n, err := s.Incarnations.Frozen(t.Context())
		if err != nil || n != want || since.IsZero() == frozen {
			t.Errorf("%s: %d agents since %v, %v, want %d", when, n, since, err, want)
		}
	}
	open := func(a storetest.Enrolled) string {
		t.Helper()
		h := a.Hello("st-1", "boot-1")
		storetest.Open(t, s, h)
		return h.SessionID
	}
	end := func(a storetest.Enrolled, session string) {
		t.Helper()
		if err := s.Sessions.EndSession(t.Context(), a.ID, session, storetest.Now()); err != nil {
			t.Fatal(err)
		}
	}
	enrol("m-never")
	left, stays := enrol("m-left"), enrol("m-stays")
	session := open(left)
	end(left, session)
	open(stays)
	missing("not frozen", 0, false)
	if err := s.Incarnations.Freeze(t.Context(), "eve", "", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	missing("frozen", 2, true)
	session = open(left)
	missing("one is back", 1, true)
	end(left, session)
	missing("and has left again", 1, true)
	if err := s.Incarnations.Restored(t.Context(), storetest.Now()); err != nil {
		t.Fatal(err)
	}
	missing("restored", 3, true)
	open(stays)
	missing("one has come anew", 2, true)
}

// The name of a database's history changes with a restore, and with nothing else.
func TestARestoreBeginsAnIncarnation(t *testing.T) {
	t.Parallel()
	v := newServer(t)
	s := v.controller("ctl-1", store.Config{})
	named := func(want string) {
		t.Helper()
		if got, err := s.Incarnations.Incarnation(t.Context()); err != nil || got != want {
			t.Errorf("it is %q, %v, want %q", got, err, want)
		}
	}
	before := incarnationOf(t, v)
	named("1/1/" + before)
	compare(t, s, "ctl-1")
	if err := s.Incarnations.Freeze(t.Context(), "eve", "", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	named("1/1/" + before)
	if err := s.Incarnations.Restored(t.Context(), storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if incarnationOf(t, v) == before {
		t.Error("the incarnation is the one of before the restore")
	}
	named("1/1/" + incarnationOf(t, v))
}

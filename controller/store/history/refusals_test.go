package history_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

func counted(t *testing.T, s *store.Store, batch int64, all ...access.Refusal) {
	t.Helper()
	b := access.RefusalBatch{Writer: "rw-" + t.Name(), Number: batch, Refusals: all}
	if err := s.History.CountRefusals(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// endMinutes lets the minutes that are open be over: their rows move an hour back.
func endMinutes(t *testing.T, s *store.Store) {
	t.Helper()
	storetest.Exec(t, s, "UPDATE refusal_counts SET minute = minute - interval '1 hour'")
}

const ofRows = "SELECT count(*) FROM audit_log WHERE verb = 'REFUSED'"

// A minute of refusals is chained once, when it is over: nothing that is chained changes after that.
func TestRefusalsAreChainedOnceTheirMinuteIsOver(t *testing.T) {
	s := storetest.New(t)
	reboot := access.Refusal{Actor: "reader", Address: "192.0.2.1", Method: "/reboot", Machine: "m-1", Count: 2}
	counted(t, s, 1, reboot)
	counted(t, s, 2, reboot, access.Refusal{Actor: "reader", Address: "192.0.2.1", Method: "/erase", Count: 1})
	counted(t, s, 2, reboot) // sent again, since the answer to its COMMIT was lost
	if err := s.History.ChainRefusals(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := storetest.Count(t, s, ofRows); n != 0 {
		t.Errorf("%d rows of a minute that is not over", n)
	}
	endMinutes(t, s)
	for range 2 {
		if err := s.History.ChainRefusals(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := storetest.Count(t, s, ofRows+` AND actor = 'reader' AND (event_data = '{"count": "4", "method": "/reboot",
		"machine_id": "m-1", "source_address": "192.0.2.1"}' OR event_data->>'count' = '1')`); n != 2 {
		t.Errorf("%d rows are right", n)
	}
	if n := storetest.Count(t, s, ofRows); n != 2 {
		t.Errorf("%d rows", n)
	}
	storetest.Intact(t, s, "")
}

// Several controllers count and chain at once: each call is in one row, and none is lost.
func TestControllersChainEachMinuteOnce(t *testing.T) {
	s := storetest.New(t)
	const controllers, batches = 4, 60
	for _, err := range storetest.Together(t, 2*controllers+1, func(ctx context.Context, i int) error {
		for n := range int64(batches) {
			var err error
			switch {
			case i < controllers:
				err = s.History.CountRefusals(ctx, access.RefusalBatch{Writer: fmt.Sprint("rw-", i), Number: n + 1,
					Refusals: []access.Refusal{{Actor: "a", Method: "/x", Count: 1}, {Actor: "b", Method: "/x", Count: 1}}})
			case i < 2*controllers:
				err = s.History.ChainRefusals(ctx)
			default:
				// The lock that ending a minute takes keeps this from waiting in a circle with those who count.
				_, err = s.DB.Pool().Exec(ctx, fmt.Sprintf(`SELECT pg_advisory_xact_lock(716422831);
					UPDATE refusal_counts SET minute = minute - interval '1 hour' * %d
					WHERE minute > now() - interval '30 minutes'`, n+1))
			}
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
	storetest.Exec(
		t,
		s,
		"UPDATE refusal_counts SET minute = minute - interval '100 days' WHERE minute > now() - interval '30 minutes'",
	)
	if err := s.History.ChainRefusals(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := storetest.Count(t, s, "SELECT sum((event_data->>'count')::bigint) FROM audit_log WHERE verb = 'REFUSED'"); n !=
		2*controllers*batches {
		t.Errorf("%d of %d refusals are in the audit log", n, 2*controllers*batches)
	}
	if n := storetest.Count(
		t,
		s,
		"SELECT count(*) - count(DISTINCT (ts, actor)) FROM audit_log WHERE verb = 'REFUSED'",
	); n != 0 {
		t.Errorf("%d rows more than actors and minutes", n)
	}
	storetest.Intact(t, s, "")
}

// A clock that goes back does not reopen a minute that is chained.
func TestAMinuteThatIsChainedStaysOver(t *testing.T) {
	s := storetest.New(t)
	counted(t, s, 1, access.Refusal{Actor: "a", Method: "/x", Count: 1})
	storetest.Exec(t, s, "UPDATE refusal_chain SET chained_before = chained_before + interval '1 hour'")
	counted(t, s, 2, access.Refusal{Actor: "a", Method: "/x", Count: 1})
	if n := storetest.Count(
		t,
		s,
		"SELECT count(*) FROM refusal_counts, refusal_chain WHERE minute = chained_before",
	); n != 1 {
		t.Errorf("%d rows in the minute after the last that is chained", n)
	}
}

// Strangers cannot fill a minute with rows: beyond a bound they count together.
func TestRefusalsOfAMinuteAreBounded(t *testing.T) {
	s := storetest.New(t)
	var all []access.Refusal
	for i := range 900 {
		all = append(all, access.Refusal{Actor: "a", Address: fmt.Sprint("192.0.2.", i), Method: "/x", Count: 1})
	}
	counted(t, s, 1, all...)
	for i := range all {
		all[i].Address += strings.Repeat("0", i%2)
	}
	counted(t, s, 2, all...)
	rows := storetest.Count(t, s, "SELECT max(n) FROM (SELECT count(*) AS n FROM refusal_counts GROUP BY minute) g")
	if calls := storetest.Count(t, s, "SELECT sum(count) FROM refusal_counts"); rows > 1000 || calls != 1800 {
		t.Errorf("%d rows, %d calls", rows, calls)
	}
}

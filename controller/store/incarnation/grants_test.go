package incarnation_test

import (
	"context"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// A grant that an agent holds, and the database does not know, freezes the fleet, unless it is of before a restore.
func TestAGrantThatIsNotKnown(t *testing.T) {
	t.Parallel()
	issued := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		command  string
		seq      uint64
		restored time.Duration // after the grant; 0 for no restore
		lost     bool
	}{
		"as it is stored":          {"cmd-1", 5, 0, false},
		"an older one":             {"cmd-1", 4, 0, false},
		"a newer one":              {"cmd-1", 6, 0, true},
		"of no command":            {"cmd-2", 1, 0, true},
		"of before a restore":      {"cmd-2", 1, time.Second, false},
		"of the restore's time":    {"cmd-2", 1, -1, false},
		"of after a restore":       {"cmd-2", 1, -time.Second, true},
		"known, after the restore": {"cmd-1", 5, -time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newServer(t)
			v.commits("op-1", 1, "cmd-1", 5)
			if c.restored != 0 {
				v.exec("UPDATE cluster_state SET restored_at = $1", issued.Add(c.restored.Truncate(time.Second)))
			}
			s := v.controller("ctl-1", store.Config{})
			before, now := incarnationOf(t, v), storetest.Now()
			lost, err := s.Incarnations.GrantWasLost(t.Context(), c.command, c.seq, "ag-1", issued, now)
			if err != nil || lost != c.lost {
				t.Errorf("lost: %t, %v", lost, err)
			}
			if !c.lost {
				notFrozen(t, s)
			} else {
				frozen(t, s, "agent ag-1 has begun command "+c.command+" under a grant of 2030-01-02T03:04:05Z, "+
					"which the database does not know", now)
			}
			if (incarnationOf(t, v) != before) != c.lost {
				t.Errorf("the incarnation was %s and is %s", before, incarnationOf(t, v))
			}
		})
	}
}

// Many agents report their grants at once: each has the answer on its own.
func TestManyGrantsAtOnce(t *testing.T) {
	t.Parallel()
	v := newServer(t)
	v.commits("op-1", 1, "cmd-1", 5)
	s := v.controller("ctl-1", store.Config{})
	lost := make([]bool, 40)
	for i, err := range storetest.Together(t, len(lost), func(ctx context.Context, i int) (err error) {
		command := "cmd-1"
		if i%2 == 1 {
			command = "cmd-2"
		}
		lost[i], err = s.Incarnations.GrantWasLost(ctx, command, 5, "ag-1", storetest.Now().Add(time.Hour), storetest.Now())
		return err
	}) {
		if err != nil || lost[i] != (i%2 == 1) {
			t.Errorf("grant %d is lost: %t, %v", i, lost[i], err)
		}
	}
}

// A new incarnation makes change ids anew where those of before may lie above its own: after a restore, and on another
// system. Cursors, and the feed of webhooks, begin behind all rows.
func TestChangeIDsOfANewIncarnation(t *testing.T) {
	t.Parallel()
	wentBack := func(t *testing.T, v *server, s *store.Store) {
		t.Helper()
		v.exec("UPDATE controllers SET beat = 0")
		if got := compare(t, s, "ctl-1"); got.Lost == "" {
			t.Fatalf("%+v", got)
		}
	}
	for name, c := range map[string]struct {
		begin func(*testing.T, *server, *store.Store)
		anew  bool
	}{
		"restored": {func(t *testing.T, _ *server, s *store.Store) {
			t.Helper()
			if err := s.Incarnations.Restored(t.Context(), storetest.Now()); err != nil {
				t.Fatal(err)
			}
		}, true},
		"gone back": {wentBack, false},
		"a promoted copy": {func(t *testing.T, v *server, s *store.Store) {
			t.Helper()
			v.promotes()
			wentBack(t, v, s)
		}, false},
		"another system": {func(t *testing.T, v *server, s *store.Store) {
			t.Helper()
			v.exec("UPDATE test_server.identity SET system = 2")
			wentBack(t, v, s)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newServer(t)
			s := v.controller("ctl-1", store.Config{})
			compare(t, s, "ctl-1")
			storetest.Live(t, v.admin, "m-1") // its operations have events
			v.exec(`INSERT INTO machine_departures VALUES ('7', 'm-1', now(), '{}', '{}', '')`)
			v.exec(`UPDATE webhook_feed SET after_xid = '7', after_operation = 'op', after_seq = 3`)
			before := changeIDs(t, s)
			c.begin(t, v, s)
			after := changeIDs(t, s)
			for table, id := range before {
				if (after[table] != id) != c.anew {
					t.Errorf("%s: the oldest change id was %s and is %s", table, id, after[table])
				}
			}
			want := 1
			if c.anew {
				want = 0
			}
			if n := storetest.Count(t, s, "SELECT count(*) FROM machine_departures"); n != want {
				t.Errorf("%d departures", n)
			}
			if n := storetest.Count(t, s, `SELECT count(*) FROM machine_timeline WHERE machine_id = 'm-1' AND seq = (
				SELECT max(seq) FROM machine_timeline WHERE machine_id = 'm-1')`); n != 1 {
				t.Errorf("%d newest entries", n)
			}
			if got, err := s.Timelines.VerifyTimeline(t.Context(), "m-1"); err != nil || !got.GetOk() {
				t.Errorf("the history: %v, %v", got, err)
			}
		})
	}
}

// changeIDs returns the oldest change id of each table that has some.
func changeIDs(t *testing.T, s *store.Store) map[string]string {
	t.Helper()
	ids := map[string]string{}
	for table, column := range map[string]string{"machines": "change_xid", "operation_events": "change_xid",
		"webhook_feed": "after_xid"} {
		var id string
		if err := s.DB.Pool().QueryRow(t.Context(),
			"SELECT "+column+"::text FROM "+table+" ORDER BY "+column+" LIMIT 1").Scan(&id); err != nil {
			t.Fatalf("%s: %v", table, err)
		}
		ids[table] = id
	}
	return ids
}

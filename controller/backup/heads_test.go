package backup_test

import (
	"bytes"
	"maps"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/backup"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/controller/domain/timeline"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func opened(t *testing.T, c config.Config) *store.Store {
	t.Helper()
	s, err := store.New(t.Context(), store.Config{URL: c.Database.URL, Logger: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func flagged(t *testing.T, s *store.Store, machine string, on bool) {
	t.Helper()
	if _, err := s.Operations.SetFlag(t.Context(), machine, "RMA", on, "tester", "because", storetest.Now()); err != nil {
		t.Fatal(err)
	}
}

// kept verifies all histories and returns their heads.
func kept(t *testing.T, s *store.Store) []timeline.Head {
	t.Helper()
	owners, _, err := s.Timelines.HistoryOwners(t.Context(), "", 100)
	if err != nil {
		t.Fatal(err)
	}
	var out []timeline.Head
	for _, id := range owners {
		storetest.Intact(t, s, id)
		v := storetest.Verdict(t, s, id)
		out = append(out, timeline.Head{MachineID: id, Entries: v.GetEntries(), Hash: v.GetHeadHash(),
			Time: v.GetHeadAt().AsTime()})
	}
	return out
}

func wantFindings(t *testing.T, s *store.Store, what string, heads []timeline.Head, want map[string]timeline.Finding) {
	t.Helper()
	present, err := s.Timelines.Present(t.Context(), heads)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]timeline.Finding{}
	for i, h := range heads {
		if f, why := h.Compare(present[i]); f != timeline.Kept {
			t.Logf("%s: %s: %s", what, h.MachineID, why)
			got[h.MachineID] = f
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s: %v, not %v", what, got, want)
	}
}

// After a restore the histories are intact, and heads that were kept say of what is lost that the restore lost it, also
// when the histories have gone on. What is cut off by hand stays a fault.
func TestHeadsAreExplainedAfterARestore(t *testing.T) {
	from := ready(t)
	s := opened(t, from)
	for _, m := range []string{"m-1", "m-2"} {
		storetest.Register(t, s, m)
	}
	before := kept(t, s)
	raw := saved(t, from, false)
	flagged(t, s, "m-1", true)
	storetest.Register(t, s, "m-3")
	after := kept(t, s)

	dir := t.TempDir()
	c := host(dir, testkit.EmptyDatabase(t))
	a, err := backup.Open(t.Context(), bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Restore(t.Context(), target(c, dir)); err != nil {
		t.Fatal(err)
	}
	r := opened(t, c)
	lost := map[string]timeline.Finding{"m-1": timeline.LostByRestore, "m-3": timeline.LostByRestore}
	kept(t, r)
	wantFindings(t, r, "heads of before the backup", before, map[string]timeline.Finding{})
	wantFindings(t, r, "heads of after the backup", after, lost)

	flagged(t, r, "m-1", true)
	flagged(t, r, "m-1", false)
	storetest.Register(t, r, "m-3")
	now := kept(t, r)
	wantFindings(t, r, "heads of after the backup, later", after, lost)

	cut := func(machine string) {
		t.Helper()
		conn, err := r.DB.Pool().Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		for _, q := range []string{"SET session_replication_role = replica", `DELETE FROM machine_timeline t WHERE machine_id = '` +
			machine + `' AND seq = (SELECT max(seq) FROM machine_timeline u WHERE u.machine_id = t.machine_id)`,
			"SET session_replication_role = DEFAULT"} {
			if _, err := conn.Exec(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
	}
	cut("m-1")
	cut("m-2") // what the restore has written
	cut("m-2") // what the backup had
	wantFindings(t, r, "the heads of today", now, map[string]timeline.Finding{"m-1": timeline.Lost, "m-2": timeline.Lost})

	// A copy of the fleet that is older than the machine explains nothing of a machine that was in it.
	old := before[1]
	old.Time = old.Time.Add(-time.Hour)
	if f, _ := old.Compare(timeline.Present{FleetRestores: []timeline.Restore{{Seq: 9, Time: storetest.Now(),
		Through: before[1].Time}}}); f != timeline.Lost {
		t.Errorf("a machine that the copy had, and that is gone: %v", f)
	}
}

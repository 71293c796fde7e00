package lease_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/site/lease"
)

func aLease(n int, ends time.Time) lease.Lease {
	return lease.Lease{
		Segment: "rack1", Address: addr("10.1.0.20"), MAC: mac(n), State: lease.Bound, Hostname: "n1", Since: start,
		Ends: ends,
	}
}

func load(t *testing.T, path string) []lease.Lease {
	t.Helper()
	f, err := lease.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out, err := f.LoadLeases(t.Context(), "rack1")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestFileKeepsTheLastOfEachAddress(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases")
	f, err := lease.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := aLease(3, start)
	elsewhere.Segment = "rack2"
	for _, l := range []lease.Lease{aLease(1, start), aLease(2, start.Add(time.Hour)), elsewhere} {
		if err := f.SaveLeases(t.Context(), []lease.Lease{l}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.SaveLeases(t.Context(), []lease.Lease{elsewhere}); err == nil {
		t.Error("saving to a closed file succeeds")
	}
	for range 2 { // the second time from the compacted file
		got := load(t, path)
		if len(got) != 1 || got[0] != aLease(2, start.Add(time.Hour)) {
			t.Fatalf("%+v", got)
		}
	}
}

func TestFileDropsALineThatWasCutOff(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases")
	line := `{"segment":"rack1","address":"10.1.0.20","mac":"02:00:00:00:00:01","state":"bound","since":"2026-03-01T12:00:00Z","ends":"2026-03-01T13:00:00Z"}` + "\n"
	if err := os.WriteFile(path, []byte(line+line[:40]), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := load(t, path); len(got) != 1 || got[0].MAC != mac(1) {
		t.Fatalf("%+v", got)
	}
	if err := os.WriteFile(path, []byte(line+"{}x\n"+line), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := lease.OpenFile(path); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a line of nonsense in the middle: %v", err)
	}
}

func TestMemoryStore(t *testing.T) {
	t.Parallel()
	var m lease.Memory
	for _, l := range []lease.Lease{aLease(1, start), aLease(2, start)} {
		if err := m.SaveLeases(t.Context(), []lease.Lease{l}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := m.LoadLeases(t.Context(), "rack1")
	if err != nil || len(got) != 1 || got[0].MAC != mac(2) {
		t.Errorf("%+v, %v", got, err)
	}
}

package position_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/position"
)

var at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestAMarkIsLostOnlyWhereItWasSeen(t *testing.T) {
	t.Parallel()
	m := position.Mark{Incarnation: "i", ControllerID: "c", Beat: 7, At: at}
	for _, c := range []struct {
		name        string
		mark        position.Mark
		incarnation string
		stored      int64
		later       time.Duration
		lost        bool
	}{
		{"as it was", m, "i", 7, 0, false},
		{"further", m, "i", 9, 0, false},
		{"one beat behind", m, "i", 6, 0, true},
		{"behind, of another incarnation", m, "j", 6, 0, false},
		{"not known", m, "i", position.Unknown, time.Hour, true},
		{"not known, and forgotten for its age", m, "i", position.Unknown, position.MarkLife + time.Hour, false},
		{"no mark", position.Mark{}, "", 0, 0, false},
	} {
		got := c.mark.Lost(c.incarnation, c.stored, at.Add(c.later))
		if (got != "") != c.lost {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func TestSeenKeepsTheHighest(t *testing.T) {
	t.Parallel()
	var a, b position.Seen
	a.Note("op-1", 3, "cmd-1", 2)
	a.Note("op-1", 2, "cmd-1", 1)
	b.Note("op-1", 1, "", 0)
	b.Note("op-2", 5, "cmd-2", 0)
	a.Add(b)
	ids, versions := position.Pairs(a.Operations)
	if strings.Join(ids, " ") != "op-1 op-2" || versions[0] != 3 || versions[1] != 5 {
		t.Errorf("operations %v %v", ids, versions)
	}
	if ids, seqs := position.Pairs(a.Grants); strings.Join(ids, " ") != "cmd-1" || seqs[0] != 2 {
		t.Errorf("grants %v %v", ids, seqs)
	}
}

func TestMissingNamesAFew(t *testing.T) {
	t.Parallel()
	if got := position.Missing(nil, nil); got != "" {
		t.Errorf("nothing: %q", got)
	}
	got := position.Missing([]string{"op-1", "op-2", "op-3", "op-4"}, []string{"cmd-1"})
	if want := "1 grants that were given are missing (cmd-1); 4 operations are missing or older than they were (op-1, " +
		"op-2, op-3, …)"; got != want {
		t.Errorf("%q", got)
	}
}

func TestTheFileOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	f := position.File(filepath.Join(t.TempDir(), "position"))
	if m, err := f.Load(); err != nil || m != (position.Mark{}) {
		t.Fatalf("no file: %v, %v", m, err)
	}
	m := position.Mark{Incarnation: "i", ControllerID: "c", Beat: 7, At: at}
	if err := f.Save(m); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Load(); err != nil || got != m {
		t.Errorf("%v, %v", got, err)
	}
	if err := os.WriteFile(string(f), []byte("half a fi"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Load(); err == nil {
		t.Error("a damaged file was read")
	}
}

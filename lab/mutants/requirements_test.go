package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A program with a door, the tests of the door, and lines about it.
var claimed = map[string]string{
	"go.mod":          small["go.mod"],
	"door/door.go":    small["door/door.go"],
	"cmd/app/main.go": "package main\n\nimport \"small/door\"\n\nfunc main() { (&door.Door{}).Knock(1, \"\") }\n",
	"door/door_test.go": small["door/door_test.go"] + `
func TestCounting(t *testing.T) { Count(4) }

func TestNotHere(t *testing.T) { t.Skip("no door"); Count(1) }
`,
	"docs/lines.md": "# Lines\n\n## Doors\n\nBuilt in `door`.\n\n|#|requirement|held by|\n|---|---|---|\n" +
		"|A1.1|A door opens from one to three knocks|`door.TestKnock`|\n" +
		"|A1.2|Counts are summed up|`door.TestCounting`|\n" +
		"|A1.3|Doors are counted|`door.TestNotHere`|\n" +
		"|A1.4|Doors are made of wood|held by the carpenter|\n" +
		"|A1.5|Doors are on another tag|`door.TestOfATag`|\n" +
		"|A1.6|Doors swing|not built: yet|\n",
}

// A line whose test checks its code is noticed, one whose test checks other code is not. One whose test does not run
// has no verdict.
func TestBrokenLines(t *testing.T) {
	root := write(t, claimed)
	lines, err := readRequirements(filepath.Join(root, "docs"))
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 5 || !slices.Equal(lines[0].places, []string{"door"}) ||
		lines[0].tests[0].String() != "door.TestKnock" {
		t.Fatalf("read %+v", lines)
	}
	o := lineOptions{
		options: options{seed: 1, root: root, jobs: 2, patience: 2 * time.Second}, breaks: 3, programs: []string{"./cmd/app"},
	}
	w, err := newWholeTree(t.Context(), o, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	all, err := w.measureAll(t.Context(), lines, o)
	if err != nil {
		t.Fatal(err)
	}
	if !all[0].held() || all[0].noticed() != 3 {
		t.Errorf("the line with a test that checks: %+v", all[0])
	}
	if all[1].held() || all[1].noticed() != 1 || len(all[1].breaks) != 3 { // a loop without an end is noticed
		t.Errorf("the line with a test that checks nothing: %d of %d", all[1].noticed(), len(all[1].breaks))
	}
	for i, want := range map[int]string{2: notRunHere, 3: noGoTest, 4: notBuilt} {
		if all[i].unmeasured != want {
			t.Errorf("%s: %q, want %q", all[i].number, all[i].unmeasured, want)
		}
	}
	if err := summary(all, 50); err != nil {
		t.Errorf("one of two lines is half: %v", err)
	}
	if summary(all, 51) == nil || summary(all[2:], 0) == nil {
		t.Error("too few lines are enough")
	}
	for within, want := range map[string]int{"^door": 5, "TestKnock": 2} { // one line names no test
		if got, err := selected(slices.Clone(lines), "^A", within); err != nil || len(got) != want {
			t.Errorf("%s selects %d lines, %v", within, len(got), err)
		}
	}
	if _, err := os.Stat(filepath.Join(w.programDir, "app")); err != nil {
		t.Error(err)
	}
}

// What the fewest other tests execute is broken first, in the places of the section, and each test has its turn.
func TestDrawBreaks(t *testing.T) {
	mutants := map[int]*mutant{}
	var ids []int
	for i := 1; i <= 20; i++ {
		m := &mutant{id: i, dir: "a/b", file: "x.go", line: i, key: strings.Repeat("k", i)}
		if i > 15 {
			m.dir = "elsewhere"
		}
		mutants[i], ids = m, append(ids, i)
	}
	r := requirement{number: "A1.1", places: []string{"a"}}
	others := map[int]int{}
	for id := 4; id <= 20; id++ {
		others[id] = 7
	}
	others[15] = 8
	drawn := func(n int, reached ...reach) (out []int) {
		for _, m := range drawBreaks(r, reached, newVocabulary(mutants), 7, n) {
			out = append(out, m.id)
		}
		slices.Sort(out)
		return out
	}
	if got := drawn(3, reach{ids: ids, compared: 8, others: others}); !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("drawn %v: what fewer tests execute comes first", got)
	}
	if got := drawn(20, reach{ids: ids, compared: 8, others: others}); len(got) != 14 {
		t.Errorf("drawn %v: what lies elsewhere counts, or what all tests execute", got)
	}
	if got := drawn(2, reach{ids: ids[:10]}, reach{ids: ids[17:18]}); !slices.Contains(got, 18) {
		t.Errorf("drawn %v: the second test has no turn", got)
	}
	mutants[9].key, others[9] = "a/b Fleet.InCluster: x => y", 3
	r.text = "Condition `InClusters`"
	if got := drawn(1, reach{ids: ids, compared: 8, others: others}); !slices.Equal(got, []int{9}) {
		t.Errorf("drawn %v: what shares words with the line comes first", got)
	}
	mutants[2].line = 1
	if got := drawn(3, reach{ids: ids[:2]}); len(got) != 1 {
		t.Errorf("drawn %v: one line is broken twice", got)
	}
	if len(slices.Collect(maps.Keys(mutants))) != 20 || len(drawn(5)) != 0 {
		t.Error("something is drawn for no test")
	}
}

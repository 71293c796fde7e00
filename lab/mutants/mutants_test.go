package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// write puts a small module into a directory: one package, its tests, and a package whose tests use it.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

var small = map[string]string{
	"go.mod": "module small\n\ngo 1.26\n",
	"door/door.go": `package door

import "errors"

// Door opens from one to three knocks.
type Door struct{ open bool }

func (d *Door) String() string { if d.open { return "open" }; return "shut" }

func (d *Door) Knock(times int, key string) error {
	switch {
	case key == "" || times < 1:
		return errors.New("nobody there")
	case times > 3:
		return errors.New("too loud")
	}
	d.open = true
	return nil
}

func Count(n int) (sum int) {
	for i := 0; i < n; {
		sum += i
		i++
	}
	return sum
}

func Unused(a, b bool) bool { return a && b }

type Kind string

const Big Kind = "big"

func Size(k Kind) int {
	switch k {
	case Big:
		return 10
	default:
		return 1
	}
}
`,
	"door/door_test.go": `package door

import "testing"

func TestKnock(t *testing.T) {
	for times, opens := range map[int]bool{0: false, 2: true, 4: false} {
		d := &Door{}
		if err := d.Knock(times, "key"); (err == nil) != opens || d.open != opens {
			t.Errorf("%d: %v", times, err)
		}
	}
}

func TestCount(t *testing.T) {
	if Count(4) != 6 {
		t.Error("wrong")
	}
}
`,
	"far/far_test.go": `package far

import ("testing"; "small/door")

func TestSize(t *testing.T) {
	if door.Size(door.Big) != 10 || door.Size("other") != 1 {
		t.Error("wrong")
	}
}
`,
}

// One of each kind of end: killed, killed because it hangs, killed by the tests of another package, alive, never
// executed.
func TestVerdicts(t *testing.T) {
	root := write(t, small)
	units, err := load(t.Context(), root, []target{{dir: "door", also: []tests{{"far", "."}}}})
	if err != nil {
		t.Fatal(err)
	}
	w := &work{u: &units[0]}
	w.all, w.needs = find(w.u)
	w.drawn = w.all
	verdicts, err := tryAll(t.Context(), options{root: root, jobs: 8, patience: 2 * time.Second}, []*work{w})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]verdict{}
	for _, m := range w.all {
		got[m.key] = verdicts[m.id]
	}
	for key, want := range map[string]verdict{
		"door Door.Knock: d.open = true => (left out)":                      killed,
		"door Door.Knock: times > 3 => times <= 3":                          killed,
		"door Door.Knock: times > 3 => times >= 3":                          unreached,
		"door Count: i := 0 => i := (0+1)":                                  survived,
		"door Door.Knock: times < 1 => times >= 1":                          killed,
		`door Door.Knock: key == "" || times < 1 => false || times < 1`:     unreached,
		`door Door.Knock: key == "" || times < 1 => key == "" && times < 1`: killed,
		`door Door.Knock: return errors.New("too loud") => return nil`:      killed,
		"door Count: i++ => (left out)":                                     timedOut,
		"door Count: sum += i => (left out)":                                killed,
		"door Unused: a && b => a || b":                                     unreached,
		"door Size: Big => (no such case)":                                  killed,
		"door Size: return 10 => return (10+1)":                             killed,
		"door Size: default: return 1 => default:":                          killed,
		`door Door.String: return "open" => return ""`:                      "",
		`door Door.Knock: return errors.New("nobody there") => (left out)`:  killed,
	} {
		if got[key] != want {
			t.Errorf("%s: %q, want %q", key, got[key], want)
		}
	}
	if t.Failed() {
		for key, v := range got {
			t.Logf("%-12s %s", v, key)
		}
	}
}

func TestDrawHangsOnTheMutantAlone(t *testing.T) {
	var all []*mutant
	for i := range 100 {
		all = append(all, &mutant{id: i + 1, dir: "d", key: strings.Repeat("x", i+1)})
	}
	first, again, fewer := draw(all, 7, 20), draw(all, 7, 20), draw(slices.Concat(all[:30], all[31:]), 7, 20)
	if !slices.Equal(first, again) || len(first) != 20 {
		t.Fatal("the same seed draws others")
	}
	changed := 0
	for _, m := range fewer {
		if !slices.Contains(first, m) {
			changed++
		}
	}
	if changed > 1 {
		t.Errorf("one mutant less, and %d others are drawn", changed)
	}
	if slices.Equal(draw(all, 8, 20), first) {
		t.Error("another seed draws the same")
	}
	if len(draw(all, 7, 0)) != 100 {
		t.Error("0 does not draw all")
	}
}

// A sample has its share of the store, of which a draw by place alone may take few or none.
func TestDrawHasItsShareOfTheStore(t *testing.T) {
	var all []*mutant
	for i := range 1000 {
		m := &mutant{id: i + 1, dir: "agent/dispatch", key: strings.Repeat("x", i+1)}
		if i < 120 {
			m.dir = "controller/store/operation"
		}
		all = append(all, m)
	}
	for _, seed := range []uint64{1, 7, 77} {
		drawn := draw(all, seed, 400)
		stored, seen := 0, map[*mutant]bool{}
		for _, m := range drawn {
			seen[m] = true
			if strings.HasPrefix(m.dir, storeDir) {
				stored++
			}
		}
		if len(drawn) != 400 || len(seen) != 400 || stored < 100 {
			t.Errorf("seed %d: %d drawn, %d different, %d of the store", seed, len(drawn), len(seen), stored)
		}
	}
	if drawn := draw(all[100:], 1, 400); len(drawn) != 400 {
		t.Errorf("%d drawn where the store has too few", len(drawn))
	}
}

func TestExplanations(t *testing.T) {
	read := func(text string) (map[string]explained, error) {
		path := filepath.Join(write(t, map[string]string{"known.txt": text}), "known.txt")
		return readExplained(path)
	}
	known, err := read("// why\n\na: x => y\nb: x => z\n\tequivalent: nobody sees it\n\nc: 1 => 2\n\taccepted: too slow\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(known) != 3 || !known["b: x => z"].equivalent || known["c: 1 => 2"].equivalent ||
		known["c: 1 => 2"].why != "too slow" {
		t.Errorf("read %+v", known)
	}
	for _, bad := range []string{"a\n\tequivalent:\n", "a\n", "\taccepted: x\n", "a\n\tmaybe: x\n",
		"a\na\n\taccepted: x\n"} {
		if _, err := read(bad); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

// Explained mutants that are gone or killed, and too few killed ones, fail a run.
func TestReport(t *testing.T) {
	a, b, c := &mutant{id: 1, key: "a"}, &mutant{id: 2, key: "b"}, &mutant{id: 3, key: "c"}
	w := &work{u: &unit{}, drawn: []*mutant{a, b, c}}
	verdicts := map[int]verdict{1: killed, 2: timedOut, 3: survived}
	r := report{known: map[string]explained{"c": {equivalent: true}}}
	r.add(w, verdicts)
	if err := r.stale(w.drawn); err != nil || r.sum().percent() != 100 {
		t.Errorf("%v, %v %%", err, r.sum().percent())
	}
	r = report{known: map[string]explained{"a": {equivalent: true}, "gone": {}, "c": {}}}
	r.add(w, verdicts)
	if err := r.stale(w.drawn); err == nil || !strings.Contains(err.Error(), "killed: a") ||
		!strings.Contains(err.Error(), "not exist: gone") {
		t.Errorf("stale: %v", err)
	}
}

// Each seed has its own figure, and one that is too low fails the run, whatever the others are.
func TestEachSeedCounts(t *testing.T) {
	var all []*mutant
	for i := range 60 {
		all = append(all, &mutant{id: i + 1, key: strings.Repeat("x", i+1), dir: "agent/dispatch"})
	}
	samples, union := drawEach(all, []uint64{1, 7}, 20)
	if len(samples) != 2 || len(union) <= 20 || len(union) > 40 || !slices.IsSortedFunc(union, byPlace) {
		t.Fatalf("%d samples, %d mutants", len(samples), len(union))
	}
	verdicts := map[int]verdict{}
	for _, m := range union {
		if verdicts[m.id] = killed; !samples[0].holds[m] {
			verdicts[m.id] = survived
		}
	}
	r := report{samples: samples}
	r.add(&work{u: &unit{}, drawn: union}, verdicts)
	if p := r.samples[0].row.percent(); p != 100 || r.samples[0].row.mutants != 20 {
		t.Errorf("seed 1: %+v", r.samples[0].row)
	}
	err := r.enough(90)
	if err == nil || strings.Contains(err.Error(), "seed 1:") || !strings.Contains(err.Error(), "seed 7:") {
		t.Errorf("enough: %v", err)
	}
	if err := r.enough(1); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"", "1,", "1,1", "a", "-1"} {
		if _, err := seedsOf(text); err == nil {
			t.Errorf("seeds %q were taken", text)
		}
	}
}

// Every explanation in the tree is of a mutant that exists. A run of all mutants shows whether it still lives.
func TestSurvivorsExist(t *testing.T) {
	known, err := readExplained("survivors.txt")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	units, err := load(t.Context(), root, targets)
	if err != nil {
		t.Fatal(err)
	}
	var all []*mutant
	for i := range units {
		found, _ := find(&units[i])
		all = append(all, found...)
	}
	r := report{known: known}
	if err := r.stale(all); err != nil {
		t.Error(err)
	}
	if len(all) < 5000 {
		t.Errorf("%d mutants in all: the tool no longer finds what there is", len(all))
	}
}

package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/lab/harness"
)

// TestMain lets this binary be the recorder too: a cell starts itself again as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "record" {
		exit(record(os.Args[2], os.Args[3]))
	}
	code := m.Run()
	harness.RemoveBinaries()
	os.Exit(code)
}

// TestAFewRuns is the harness in small: a system is broken a few times and keeps its promises.
func TestAFewRuns(t *testing.T) {
	o, err := parse([]string{
		"--runs", "15", "--cells", "1", "--controllers", "1", "--agents", "3", "--seed", "1000", "--limit", "20s", "--rest",
		"3m", "--out", t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	o.bin = harness.Build(t).Dir()
	r, err := breakThings(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range r.Violations {
		t.Errorf("seed %d: %v", k.Seed, k.Found)
	}
	if len(r.Failures) > 0 || r.Runs == 0 {
		t.Errorf("%d runs; the harness failed: %v", r.Runs, r.Failures)
	}
	if r.Operations["SUCCEEDED"] == 0 || r.Effects["reboot"] == 0 || len(r.Faults) == 0 {
		t.Errorf("nothing happened: operations %v, effects %v, faults %v", r.Operations, r.Effects, r.Faults)
	}
	t.Logf("%d runs in %v; faults %v, operations %v", r.Runs, r.Elapsed.Round(time.Second), r.Faults, r.Operations)
}

func TestDrawingIsStable(t *testing.T) {
	t.Parallel()
	drawn := map[string]int{}
	for seed := range uint64(2000) {
		a, b := draw(seed, 3, weightsOf("", true)), draw(seed, 3, weightsOf("", true))
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Fatalf("seed %d is %v and %v", seed, a, b)
		}
		if len(a.strikes) == 0 {
			t.Fatalf("seed %d has no fault", seed)
		}
		for _, s := range a.strikes {
			drawn[s.kind]++
		}
	}
	for _, w := range weightsOf("", true) {
		if drawn[w.kind] == 0 {
			t.Errorf("%s is never drawn; drawn are %v", w.kind, slices.Sorted(maps.Keys(drawn)))
		}
	}
}

// TestBugsCanBePlanted holds that every edit fits its source, and that what it makes has the right types.
func TestBugsCanBePlanted(t *testing.T) {
	t.Parallel()
	tree, err := goOutput("list", "-m", "-f", "{{.Dir}}", "github.com/ingot-metal/ingot")
	if err != nil {
		t.Fatal(err)
	}
	o := overlaid{dir: t.TempDir(), replace: map[string]string{}}
	if err := o.plant(tree); err != nil {
		t.Fatal(err)
	}
	// Exports stand as "path=file", in one line for each package; those of the edited ones are not looked up.
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}",
		"github.com/ingot-metal/ingot/internal/planted"}
	for _, e := range edits {
		args = append(args, "github.com/ingot-metal/ingot/"+filepath.Dir(e.file))
	}
	listed, err := goOutput(args...)
	if err != nil {
		t.Fatal(err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(listed) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		exports[path] = file
	}
	for _, e := range edits {
		typesOf(t, filepath.Join(tree, filepath.Dir(e.file)), o.replace, exports)
	}
}

// typesOf checks the types of a package, with the files that stand in for others.
func typesOf(t *testing.T, dir string, replace, exports map[string]string) {
	t.Helper()
	p, err := build.ImportDir(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		path := filepath.Join(dir, name)
		f, err := parser.ParseFile(fset, cmp.Or(replace[path], path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	look := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	cfg := types.Config{Importer: importer.ForCompiler(fset, "gc", look)}
	if _, err := cfg.Check(dir, fset, files, nil); err != nil {
		t.Errorf("%s: %v", dir, err)
	}
}

package program

import (
	"cmp"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
	// Compiled as the tests are, and so mostly compiled already.
	args := []string{"list", "-export", "-deps", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace",
		"-f", "{{.ImportPath}}={{.Export}}", "github.com/ingot-metal/ingot/internal/planted"}
	for _, e := range Edits {
		args = append(args, "github.com/ingot-metal/ingot/"+filepath.Dir(e.File))
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
	for _, e := range Edits {
		typesOf(t, filepath.Join(tree, filepath.Dir(e.File)), o.replace, exports)
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

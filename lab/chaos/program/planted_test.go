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
	"slices"
	"strings"
	"testing"
)

// TestTheOverlayFitsTheTree holds that every edit of clocks and protections fits its source, and that the packages that
// it makes have the right types.
func TestTheOverlayFitsTheTree(t *testing.T) {
	t.Parallel()
	tree, err := goOutput("list", "-m", "-f", "{{.Dir}}", "github.com/ingot-metal/ingot")
	if err != nil {
		t.Fatal(err)
	}
	o := overlaid{dir: t.TempDir(), replace: map[string]string{}}
	if err := o.changeAll(tree); err != nil {
		t.Fatal(err)
	}
	dirs := []string{"internal/clock"}
	for _, e := range Edits {
		dirs = append(dirs, filepath.Dir(e.File))
	}
	// Exports stand as "path=file", in one line for each package; those of the edited ones are not looked up.
	// Compiled as the tests are, and so mostly compiled already.
	args := []string{"list", "-export", "-deps", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace",
		"-f", "{{.ImportPath}}={{.Export}}", "github.com/ingot-metal/ingot/internal/planted"}
	for _, dir := range dirs {
		args = append(args, "github.com/ingot-metal/ingot/"+dir)
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
	for _, dir := range dirs {
		typesOf(t, filepath.Join(tree, dir), o.replace, exports)
	}
}

// typesOf checks the types of a package, with the files that stand in for others or are added to it.
func typesOf(t *testing.T, dir string, replace, exports map[string]string) {
	t.Helper()
	p, err := build.ImportDir(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	names := p.GoFiles
	for path := range replace {
		if name := filepath.Base(path); filepath.Dir(path) == dir && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
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

package invariants

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/ingot-metal/ingot"

// root is the top of the tree, seen from this package's directory.
const root = ".."

// sourceFile is one parsed Go file of this module.
type sourceFile struct {
	// path is relative to the top of the tree, with slashes.
	path string
	// dir is the package's directory, relative to the top of the tree.
	dir       string
	syntax    *ast.File
	test      bool
	generated bool
}

var parsed = sync.OnceValues(parseTree)

var fset = token.NewFileSet()

// goFiles returns every Go file of the module, generated ones and tests included.
func goFiles(t *testing.T) []sourceFile {
	t.Helper()
	files, err := parsed()
	if err != nil {
		t.Fatalf("parse the tree: %v", err)
	}
	if len(files) < 50 {
		t.Fatalf("found %d Go files: this is not the whole tree", len(files))
	}
	return files
}

// handWritten returns the files that people maintain and that are no tests.
func handWritten(t *testing.T) []sourceFile {
	t.Helper()
	var files []sourceFile
	for _, f := range goFiles(t) {
		if !f.test && !f.generated {
			files = append(files, f)
		}
	}
	return files
}

func parseTree() ([]sourceFile, error) {
	var files []sourceFile
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return skipDir(path, d.Name())
		case filepath.Ext(path) != ".go":
			return nil
		}
		syntax, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel := relative(path)
		files = append(files, sourceFile{
			path: rel, dir: strings.TrimSuffix(filepath.ToSlash(filepath.Dir(rel)), "/"), syntax: syntax,
			test: strings.HasSuffix(rel, "_test.go"), generated: ast.IsGenerated(syntax),
		})
		return nil
	})
	return files, err
}

// skipDir leaves out hidden directories, test data, build output and modules of their own.
func skipDir(path, name string) error {
	if path == root {
		return nil
	}
	if strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" {
		return fs.SkipDir
	}
	switch relative(path) {
	case "bin", "dist", "tools":
		return fs.SkipDir
	}
	return nil
}

func relative(path string) string {
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return path
	}
	return filepath.ToSlash(rel)
}

// position prints where a node stands, relative to the top of the tree.
func position(n ast.Node) string {
	p := fset.Position(n.Pos())
	p.Filename = relative(p.Filename)
	return p.String()
}

// readLines returns a list's lines without comments and blank ones.
func readLines(t *testing.T, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatalf("read list: %v", err)
	}
	defer f.Close()
	var lines []string
	for s := bufio.NewScanner(f); s.Scan(); {
		line, _, _ := strings.Cut(s.Text(), "#")
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	return string(data)
}

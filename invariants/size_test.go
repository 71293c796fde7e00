package invariants

import (
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

const (
	// mostLines is how many lines the hand-written Go files of a package may have in all, tests not counted.
	mostLines = 3000
	// mostFiles is how many files may lie directly in a folder, tests counted.
	mostFiles = 30
)

// TestPackagesAndFoldersAreSmall holds that a package can be read and that a list of files can be seen at once.
func TestPackagesAndFoldersAreSmall(t *testing.T) {
	for dir, n := range packageLines(t) {
		if n > mostLines {
			t.Errorf("%s has %d lines, and a package has at most %d: cut it along what it is about", dir, n, mostLines)
		}
	}
	for dir, n := range folderFiles(t) {
		if n > mostFiles {
			t.Errorf("%s has %d files, and a folder has at most %d: cut it along what it is about", dir, n, mostFiles)
		}
	}
}

// packageLines counts the lines, as wc -l does, of each folder's hand-written Go files, without those of tests.
func packageLines(t *testing.T) map[string]int {
	t.Helper()
	lines := map[string]int{}
	for _, f := range handWritten(t) {
		lines[f.dir] += fset.File(f.syntax.Pos()).LineCount()
	}
	return lines
}

// folderFiles counts the files of each folder. Migrations, published protocols and fuzz inputs only ever grow.
func folderFiles(t *testing.T) map[string]int {
	t.Helper()
	files := map[string]int{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := relative(p)
		if d.IsDir() {
			if p != root && strings.HasPrefix(d.Name(), ".") || rel == "bin" || rel == "dist" || rel == "migrations" ||
				rel == "api" || d.Name() == "node_modules" || strings.HasSuffix(rel, "/testdata/fuzz") {
				return fs.SkipDir
			}
			return nil
		}
		files[path.Dir(rel)]++
		return nil
	})
	if err != nil {
		t.Fatalf("walk the tree: %v", err)
	}
	return files
}

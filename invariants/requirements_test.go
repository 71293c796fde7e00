package invariants

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// standings are the beginnings of a requirement's last cell. A cell that begins with a test is held.
var standings = []string{"held", "partly", "not built", "out of scope"}

// requirement is one row of a table in docs/requirements.
type requirement struct {
	place, number, text, cell, standing string
	// intro stands above the section's table: the places where its rows are built, and tests that hold each of them.
	intro string
}

var (
	// testName is a test as the tables name it: the package's directory, the function, perhaps a subtest.
	testName = regexp.MustCompile("`([a-z0-9][a-z0-9/]*)\\.((?:Test|Fuzz|Benchmark)[A-Za-z0-9_]+)(?:/[^`]*)?`")
	// scriptName is a test that is no Go: a program in the tree.
	scriptName = regexp.MustCompile("`(scripts/[a-z0-9/._-]+)`")
	rowNumber  = regexp.MustCompile(`^[A-Z]\d+\.\d+$`)
)

func requirementPaths(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "docs/requirements/*.md"))
	if err != nil || len(paths) < 5 {
		t.Fatalf("found %d tables of requirements (%v)", len(paths), err)
	}
	for i := range paths {
		paths[i] = relative(paths[i])
	}
	return paths
}

func requirementsOf(t *testing.T, path string) []requirement {
	t.Helper()
	var rows []requirement
	intro := ""
	for i, line := range strings.Split(readFile(t, path), "\n") {
		switch {
		case strings.HasPrefix(line, "## "):
			intro = ""
			continue
		case !strings.HasPrefix(line, "|"):
			intro += line + "\n"
			continue
		case line == "|#|requirement|held by|" || strings.HasPrefix(line, "|---"):
			continue
		}
		r := requirement{place: fmt.Sprintf("%s:%d", path, i+1), intro: intro}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 3 {
			t.Errorf("%s: %d cells, want 3", r.place, len(cells))
			continue
		}
		r.number, r.text, r.cell = cells[0], cells[1], cells[2]
		r.standing = standingOf(r.cell)
		rows = append(rows, r)
	}
	return rows
}

func standingOf(cell string) string {
	for _, s := range standings[1:] {
		if strings.HasPrefix(cell, s+": ") {
			return s
		}
	}
	return standings[0]
}

// testsOfTree returns every test function as "directory.Name".
func testsOfTree(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, f := range goFiles(t) {
		if !f.test {
			continue
		}
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				out[f.dir+"."+fn.Name.Name] = true
			}
		}
	}
	return out
}

// TestRequirementsAreHeldByTests: every line of the requirements names its test, or the reason for none, and the test
// exists.
func TestRequirementsAreHeldByTests(t *testing.T) {
	tests := testsOfTree(t)
	total := 0
	for _, path := range requirementPaths(t) {
		seen := map[string]bool{}
		for _, r := range requirementsOf(t, path) {
			total++
			if !rowNumber.MatchString(r.number) || seen[r.number] {
				t.Errorf("%s: number %q is malformed, or stands twice", r.place, r.number)
			}
			seen[r.number] = true
			if r.text == "" || r.cell == "" {
				t.Errorf("%s: an empty cell", r.place)
			}
			holdsNamedTests(t, r, tests)
			holdsNamedPlaces(t, r)
		}
	}
	if total < 300 {
		t.Errorf("read %d rows: the tables have another form", total)
	}
}

func holdsNamedTests(t *testing.T, r requirement, tests map[string]bool) {
	t.Helper()
	named := 0
	for _, m := range testName.FindAllStringSubmatch(r.intro+r.cell, -1) {
		named++
		if !tests[m[1]+"."+m[2]] {
			t.Errorf("%s names %s.%s, which is not in the tree", r.place, m[1], m[2])
		}
	}
	for _, m := range scriptName.FindAllStringSubmatch(r.cell, -1) {
		named++
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("%s names %s, which is not in the tree", r.place, m[1])
		}
	}
	reason := strings.TrimSpace(strings.TrimPrefix(r.cell, r.standing+":"))
	switch {
	case r.standing == "held" && (named == 0 || !strings.HasPrefix(r.cell, "`")):
		t.Errorf("%s: %s begins with no test and gives no reason", r.place, r.number)
	case r.standing == "partly" && (named == 0 || !strings.Contains(r.cell, "; ")):
		t.Errorf("%s: %s says neither which test holds a part, nor what is missing", r.place, r.number)
	case len(reason) < 5:
		t.Errorf("%s: %s gives no reason", r.place, r.number)
	}
}

var placeName = regexp.MustCompile("`([^`]+)`")

// holdsNamedPlaces: a section names the places where its requirements are built, files or directories of the tree.
func holdsNamedPlaces(t *testing.T, r requirement) {
	t.Helper()
	places := placeName.FindAllStringSubmatch(testName.ReplaceAllString(r.intro, ""), -1)
	if len(places) == 0 && r.standing != "not built" && r.standing != "out of scope" {
		t.Errorf("%s: %s is %s, and its section does not say where it is built", r.place, r.number, r.standing)
	}
	for _, m := range places {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("%s: the section names %s, which is not in the tree", r.place, m[1])
		}
	}
}

// TestSpecsCountTheRequirements: the numbers in SPECS.md are those of the tables.
func TestSpecsCountTheRequirements(t *testing.T) {
	index := readFile(t, "SPECS.md")
	for _, path := range requirementPaths(t) {
		counts := map[string]int{}
		rows := requirementsOf(t, path)
		for _, r := range rows {
			counts[r.standing]++
		}
		want := fmt.Sprintf("](%s) | %d |", path, len(rows))
		for _, s := range standings {
			want += fmt.Sprintf(" %d |", counts[s])
		}
		if !strings.Contains(index, want) {
			t.Errorf("SPECS.md does not say %s", want)
		}
	}
}

// namedTest is a test that a document names; behind -run it is the beginning of several names.
var namedTest = regexp.MustCompile(`(-run '?)?\b(Test[A-Z][A-Za-z0-9_]*)`)

// TestDocumentsNameTestsOfTheTree: every test that is named by specs, the list of bugs or the page on known facts is in
// the tree.
func TestDocumentsNameTestsOfTheTree(t *testing.T) {
	functions := map[string]bool{}
	for name := range testsOfTree(t) {
		functions[name[strings.LastIndexByte(name, '.')+1:]] = true
	}
	specs, err := filepath.Glob(filepath.Join(root, "docs/specs/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, path := range append(specs, filepath.Join(root, "docs/bugs-found.md"), filepath.Join(root, "docs/explanation/known.md")) {
		for _, m := range namedTest.FindAllStringSubmatch(readFile(t, relative(path)), -1) {
			named++
			if !functions[m[2]] && (m[1] == "" || !anyBegins(functions, m[2])) {
				t.Errorf("%s names %s, which is not in the tree", relative(path), m[2])
			}
		}
	}
	if named < 200 {
		t.Errorf("found %d tests: the documents have another form", named)
	}
}

func anyBegins(names map[string]bool, with string) bool {
	for name := range names {
		if strings.HasPrefix(name, with) {
			return true
		}
	}
	return false
}

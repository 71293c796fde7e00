package invariants

import (
	"fmt"
	"go/ast"
	"go/build/constraint"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/internal/testkit/document"
)

// targetRule is a rule of the Makefile: its help text, its recipe, and the targets that its recipe makes.
type targetRule struct{ help, recipe string }

var (
	ruleLine = regexp.MustCompile(`^([a-z][a-z0-9-]*):[^=]*?(?:## (.*))?$`)
	// testCommand is how a recipe runs tests: by Go, by a script for tests, or by a judge of whole systems.
	testCommand = regexp.MustCompile(
		`go (-C \S+ )?test|\$\(GOTEST(SUM)?\)|\$\(UNRACED_TEST\)|scripts/test-|scripts/first-rack|scripts/smoke/|` +
			`dist/(chaos|kill)/harness --bin|dist/mutants (requirements|\$)`,
	)
	tagFlag  = regexp.MustCompile(`-tags ([a-z,]+)`)
	runFlag  = regexp.MustCompile(`-run '?([^' ]+)'?`)
	skipFlag = regexp.MustCompile(`-skip '([^']+)'`)
)

func targetRules(t *testing.T) map[string]targetRule {
	t.Helper()
	out, name := map[string]targetRule{}, ""
	for line := range strings.SplitSeq(readFile(t, "Makefile"), "\n") {
		if m := ruleLine.FindStringSubmatch(line); m != nil {
			name = m[1]
			out[name] = targetRule{help: m[2]}
		} else if strings.HasPrefix(line, "\t") && name != "" {
			x := out[name]
			x.recipe += line + "\n"
			out[name] = x
		} else if line == "" {
			name = ""
		}
	}
	if len(out) < 50 {
		t.Fatalf("read %d targets: the Makefile has another form", len(out))
	}
	return out
}

// releaseChecks returns the targets that `make release-check` runs, in their order.
func releaseChecks(t *testing.T) []string {
	t.Helper()
	_, rest, ok := strings.Cut(readFile(t, "Makefile"), "\nRELEASE_CHECKS ?= ")
	list, _, end := strings.Cut(rest, "\n\n")
	if !ok || !end {
		t.Fatal("the Makefile has no RELEASE_CHECKS")
	}
	return strings.Fields(strings.ReplaceAll(list, "\\", " "))
}

// byHand are targets that test and are part of neither, each with the reason.
var byHand = map[string]string{
	"test-fast":     "a part of make test",
	"test-raced":    "a part of make test",
	"test-unraced":  "a part of make test",
	"cases":         "a part of make test",
	"cover":         "measures make test",
	"walks":         "measures, and tests nothing",
	"docs":          "writes pages",
	"docs-check":    "a part of make test",
	"opentofu-docs": "writes pages; make test-opentofu compares them",
	"fuzz":          "looks for new inputs; those found are in make test",
}

// packaged are the lines with the version of what registries take from the tree as it is, by file.
var packaged = map[string]string{
	"deploy/helm/ingot/Chart.yaml":           "\nversion: %s\n",
	"integrations/ansible/galaxy.yml":        "\nversion: %s\n",
	"integrations/ansible/CHANGELOG.md":      "\n## %s\n",
	"integrations/python/pyproject.toml":     "\nversion = \"%s\"\n",
	"integrations/typescript/package.json":   "\n  \"version\": \"%s\",\n",
	"integrations/cluster-api/metadata.yaml": "",
}

// TestPackagesHaveTheVersionOfTheChangeLog holds that a release's packages are bumped with its heading.
func TestPackagesHaveTheVersionOfTheChangeLog(t *testing.T) {
	m := regexp.MustCompile(`(?m)^## (\d+)\.(\d+)\.\d+`).FindStringSubmatch(readFile(t, "CHANGELOG.md"))
	if m == nil {
		t.Fatal("the change log has no version")
	}
	version := strings.TrimPrefix(m[0], "## ")
	for path, line := range packaged {
		want := fmt.Sprintf("{major: %s, minor: %s,", m[1], m[2])
		if line != "" {
			want = fmt.Sprintf(line, version)
		}
		if !strings.Contains(readFile(t, path), want) {
			t.Errorf("%s is not of version %s", path, version)
		}
	}
}

// TestEveryTestingTargetRuns holds that each target of the Makefile that tests runs in CI or in `make release-check`.
func TestEveryTestingTargetRuns(t *testing.T) {
	ci, checks := readFile(t, ".ci/run"), releaseChecks(t)
	targets := targetRules(t)
	for name, target := range targets {
		if !testCommand.MatchString(target.recipe) || strings.HasPrefix(name, "bench") || strings.HasSuffix(name, "-bench") {
			continue
		}
		inCI := regexp.MustCompile(`make ` + name + `\b`).MatchString(ci)
		if !inCI && !slices.Contains(checks, name) && byHand[name] == "" {
			t.Errorf("make %s runs neither in .ci/run nor in RELEASE_CHECKS", name)
		}
	}
	for _, name := range checks {
		if !testCommand.MatchString(targets[name].recipe) {
			t.Errorf("RELEASE_CHECKS has %s, which is no target that tests", name)
		}
	}
}

// TestRequirementsNameTestsThatRun holds that each test that holds a requirement runs in `make test`, or by a target of
// `make release-check`: its build tag is set there, its package is named, and -run and -skip select it.
func TestRequirementsNameTestsThatRun(t *testing.T) {
	targets, tags := targetRules(t), tagsOfTests(t)
	for _, path := range requirementPaths(t) {
		for _, r := range requirementsOf(t, path) {
			for _, m := range testName.FindAllStringSubmatch(r.intro+r.cell, -1) {
				tag := tags[m[1]+"."+m[2]]
				if tag == "" {
					continue
				}
				if !slices.ContainsFunc(releaseChecks(t), func(name string) bool {
					return selects(targets[name].recipe, tag, m[1], m[2])
				}) {
					t.Errorf("%s names %s.%s, whose tag %s no target of RELEASE_CHECKS sets for it", r.place, m[1], m[2], tag)
				}
			}
			for _, m := range scriptName.FindAllStringSubmatch(r.cell, -1) {
				if !strings.HasPrefix(m[1], "scripts/smoke/smoke-") && !runInCI(t, targets, m[1]) {
					t.Errorf("%s names %s, which CI does not run", r.place, m[1])
				}
			}
		}
	}
}

// runInCI reports whether the recipe of a target that .ci/run names runs a script.
func runInCI(t *testing.T, targets map[string]targetRule, script string) bool {
	t.Helper()
	ci := readFile(t, ".ci/run")
	for name, target := range targets {
		if strings.Contains(target.recipe, script) && regexp.MustCompile(`make `+name+`\b`).MatchString(ci) {
			return true
		}
	}
	return false
}

// selects reports whether a line of a recipe runs a test of a folder with a build tag.
func selects(recipe, tag, dir, test string) bool {
	for line := range strings.Lines(strings.ReplaceAll(recipe, "\\\n", " ")) {
		m := tagFlag.FindStringSubmatch(line)
		if m == nil || !slices.Contains(strings.Split(m[1], ","), tag) ||
			!regexp.MustCompile(`\./`+regexp.QuoteMeta(dir)+`(\s|$)`).MatchString(line) {
			continue
		}
		run, skipped := runFlag.FindStringSubmatch(line), skipFlag.FindStringSubmatch(line)
		if (run == nil || regexp.MustCompile(run[1]).MatchString(test)) &&
			(skipped == nil || !regexp.MustCompile(skipped[1]).MatchString(test)) {
			return true
		}
	}
	return false
}

// tagsOfTests returns the build tag without which a test is not compiled, by "directory.Name". A test of a file that a
// tag excludes is compiled without one.
func tagsOfTests(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, f := range goFiles(t) {
		if !f.test {
			continue
		}
		tag := ""
		for _, c := range f.syntax.Comments {
			if !constraint.IsGoBuild(c.List[0].Text) || c.Pos() > f.syntax.Package {
				continue
			}
			x, err := constraint.Parse(c.List[0].Text)
			if err != nil {
				t.Fatal(err)
			}
			if one, ok := x.(*constraint.TagExpr); ok {
				tag = one.Tag
			}
		}
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				out[f.dir+"."+fn.Name.Name] = tag
			}
		}
	}
	return out
}

// TestReferenceReleaseCheck makes the page of the checks that CI has no time for.
func TestReferenceReleaseCheck(t *testing.T) {
	path := filepath.Join(root, "docs/reference/data/release-check.tsv")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ran := map[string][]string{}
	for line := range strings.Lines(string(raw)) {
		if cells := strings.Split(strings.TrimSpace(line), "\t"); len(cells) == 5 {
			ran[cells[0]] = cells
		} else {
			t.Errorf("%s: %q has %d cells, want 5", relative(path), line, len(cells))
		}
	}
	targets := targetRules(t)
	var rows [][]string
	for _, name := range releaseChecks(t) {
		row := []string{"`make " + name + "`", targets[name].help, "not on record", "", "", ""}
		if x := ran[name]; x != nil {
			row = append(row[:2], x[1], x[2]+" s", "`"+x[3]+"`", x[4])
		}
		rows = append(rows, row)
	}
	document.Check(t, "release-check.md", "Checks of a release", fmt.Sprintf(
		"Checks that take too long for every change. `make release-check` runs them and writes this page; each row is the last\n"+
			"run, and holds for that commit alone. CI runs all other tests.\n\n%s",
		document.Table([]string{"check", "what it does", "result", "time", "commit", "date"}, rows),
	))
}

// racedElsewhere are packages that begin goroutines and have no race detector in make test, each with the reason.
var racedElsewhere = map[string]string{
	"agent/disk/image":         "agent/installer has the detector, and writes whole images with it",
	"controller/catalog/image": "all that its timer does is to end a context",
}

// TestWhatBeginsGoroutinesIsRaced holds that the product's packages which do without the race detector begin no
// goroutine. What they call on one is raced where it is begun.
func TestWhatBeginsGoroutinesIsRaced(t *testing.T) {
	_, rest, ok := strings.Cut(readFile(t, "Makefile"), "\nUNRACED ")
	_, rest, there := strings.Cut(rest, ":= ")
	text, _, end := strings.Cut(rest, "\n")
	if !ok || !there || !end {
		t.Fatal("the Makefile has no UNRACED")
	}
	unraced := regexp.MustCompile(strings.ReplaceAll(text, "$$", "$"))
	packages, begins := map[string]bool{}, map[string]string{}
	for _, f := range handWritten(t) {
		if !unraced.MatchString(module+"/"+f.dir) || strings.HasPrefix(f.dir, "lab/") {
			continue
		}
		packages[f.dir] = true
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if beginsGoroutine(n) {
				begins[f.dir] = fset.Position(n.Pos()).String()
			}
			return true
		})
	}
	if len(packages) < 10 {
		t.Errorf("UNRACED matches %v: the pattern no longer fits the packages", slices.Sorted(maps.Keys(packages)))
	}
	for dir, where := range begins {
		if racedElsewhere[dir] == "" {
			t.Errorf("%s: begins a goroutine, and UNRACED in the Makefile has %s", where, dir)
		}
	}
	for dir := range racedElsewhere {
		if begins[dir] == "" {
			t.Errorf("racedElsewhere: %s begins no goroutine, or is raced", dir)
		}
	}
}

// beginsGoroutine reports whether a node is a go statement, or a call of a group, of time or of context that begins a
// goroutine.
func beginsGoroutine(n ast.Node) bool {
	if _, ok := n.(*ast.GoStmt); ok {
		return true
	}
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	called, ok := call.Fun.(*ast.SelectorExpr)
	return ok && (called.Sel.Name == "Go" || called.Sel.Name == "AfterFunc")
}

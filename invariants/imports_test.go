package invariants

import (
	"encoding/json"
	"errors"
	"go/ast"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// listedPackage has go list's data on a package.
type listedPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
	GoFiles    []string
	Export     string // the file of its export data, where that was asked for
	Module     *struct{ Main bool }
}

// importRule is one line of imports.txt.
type importRule struct {
	verb      string
	importers []string
	patterns  []string
}

func TestImports(t *testing.T) {
	packages := listPackages(t)
	for _, rule := range importRules(t) {
		for _, pkg := range packages {
			if !rule.covers(short(pkg.ImportPath)) {
				continue
			}
			for _, bad := range violations(rule, pkg, packages) {
				t.Errorf("%s imports %s: against \"%s %s\" of imports.txt", short(pkg.ImportPath), bad, rule.verb,
					strings.Join(rule.importers, " "))
			}
		}
	}
}

// TestTreesApart holds the rules of imports.txt that keep two trees from importing each other, in tests too.
func TestTreesApart(t *testing.T) {
	for _, rule := range importRules(t) {
		if rule.verb != "apart" {
			continue
		}
		for _, f := range goFiles(t) {
			for _, bad := range rule.crossings(f.dir, importsOf(f.syntax)) {
				t.Errorf("%s imports %s: imports.txt keeps %v and %v apart", f.path, bad, rule.importers, rule.patterns)
			}
		}
	}
}

func TestTreesApartBites(t *testing.T) {
	rule := importRule{verb: "apart", importers: []string{"a/..."}, patterns: []string{"b/..."}}
	for _, c := range []struct{ dir, imported, want string }{
		{"a", "b/x", "b/x"}, {"a/deep", "b", "b"}, {"b/x", "a", "a"}, {"a", "a/deep", ""}, {"b", "b/x", ""}, {"c", "a", ""},
		{"c", "b", ""},
	} {
		if got := strings.Join(rule.crossings(c.dir, []string{module + "/" + c.imported}), " "); got != c.want {
			t.Errorf("%s imports %s: found %q, want %q", c.dir, c.imported, got, c.want)
		}
	}
}

// crossings returns the imports of a package that lead from one tree of the rule into the other.
func (r importRule) crossings(dir string, imports []string) []string {
	switch {
	case r.covers(dir):
		return matching(r.patterns, imports, "")
	case matchesAny(r.patterns, dir):
		return matching(r.importers, imports, "")
	}
	return nil
}

func importsOf(f *ast.File) (paths []string) {
	for _, spec := range f.Imports {
		paths = append(paths, unquote(spec.Path))
	}
	return paths
}

func TestImportRulesNameWhatExists(t *testing.T) {
	packages := listPackages(t)
	for _, rule := range importRules(t) {
		for _, pattern := range rule.importers {
			pattern = strings.TrimPrefix(pattern, "!")
			found := false
			for _, pkg := range packages {
				found = found || matches(pattern, short(pkg.ImportPath))
			}
			if !found {
				t.Errorf("imports.txt: no package matches %q: the rule holds nothing", pattern)
			}
		}
	}
}

func TestImportRulesBite(t *testing.T) {
	packages := map[string]listedPackage{
		module + "/a": {ImportPath: module + "/a", Imports: []string{module + "/b", "os"},
			Deps: []string{"os", "net", module + "/b"}},
		module + "/b": {ImportPath: module + "/b", Imports: []string{"net"}, Deps: []string{"net"}},
	}
	for _, c := range []struct {
		verb, pattern, want string
	}{
		{"direct", "os", "os"},
		{"direct", "net", ""},
		{"never", "net", "net (through b)"},
		{"never", "net/...", "net (through b)"},
		{"never", "network", ""},
		{"only", "c/...", "b"},
		{"only", "b", ""},
		{"binary", "net", "net"},
	} {
		rule := importRule{verb: c.verb, importers: []string{"a"}, patterns: []string{c.pattern}}
		if got := strings.Join(violations(rule, packages[module+"/a"], packages), " "); got != c.want {
			t.Errorf("%s a : %s found %q, want %q", c.verb, c.pattern, got, c.want)
		}
	}
}

func TestImportOrderBites(t *testing.T) {
	pkg := listedPackage{ImportPath: module + "/b", Imports: []string{"os", module + "/a", module + "/c", module + "/x"}}
	for _, c := range []struct {
		order []string
		want  string
	}{
		{[]string{"a", "c", "b"}, ""},
		{[]string{"a", "b", "c"}, "c"},
		{[]string{"b", "a", "c"}, "a c"},
		{[]string{"a", "c"}, "b (which the order does not name)"},
	} {
		rule := importRule{verb: "order", patterns: c.order}
		if got := strings.Join(violations(rule, pkg, nil), " "); got != c.want {
			t.Errorf("order %v found %q, want %q", c.order, got, c.want)
		}
	}
}

func (r importRule) covers(path string) bool {
	excepted := func(p string) bool { return strings.HasPrefix(p, "!") && matches(p[1:], path) }
	return matchesAny(r.importers, path) && !slices.ContainsFunc(r.importers, excepted)
}

func TestImportRuleExceptions(t *testing.T) {
	rule := importRule{importers: []string{"agent/...", "!agent/state"}}
	for path, want := range map[string]bool{"agent": true, "agent/session": true, "agent/state": false, "agents": false} {
		if got := rule.covers(path); got != want {
			t.Errorf("covers(%q) = %t, want %t", path, got, want)
		}
	}
}

// TestImportRuleExceptionsAreNeeded holds that an exception goes with the import that it was made for.
func TestImportRuleExceptionsAreNeeded(t *testing.T) {
	packages := listPackages(t)
	for _, rule := range importRules(t) {
		for _, exception := range rule.importers {
			pattern, excepted := strings.CutPrefix(exception, "!")
			needed := func(pkg listedPackage) bool {
				return matches(pattern, short(pkg.ImportPath)) && len(violations(rule, pkg, packages)) > 0
			}
			if excepted && !slices.ContainsFunc(slices.Collect(maps.Values(packages)), needed) {
				t.Errorf("imports.txt: no package needs the exception %s of \"%s %s\": remove it", exception, rule.verb,
					strings.Join(rule.patterns, " "))
			}
		}
	}
}

func violations(rule importRule, pkg listedPackage, all map[string]listedPackage) []string {
	switch rule.verb {
	case "direct":
		return matching(rule.patterns, pkg.Imports, "")
	case "binary":
		return matching(rule.patterns, pkg.Deps, "")
	case "only":
		return strangers(rule.patterns, pkg.Imports)
	case "order":
		return upwards(rule.patterns, pkg)
	case "apart":
		return nil // TestTreesApart holds it, in tests too
	}
	bad := matching(rule.patterns, pkg.Imports, "")
	for _, dep := range pkg.Deps {
		if p, ours := all[dep]; ours {
			bad = append(bad, matching(rule.patterns, p.Imports, " (through "+short(dep)+")")...)
		}
	}
	return bad
}

// upwards returns the imports of a package that do not stand before it in the order; a package that is missing there is
// returned itself.
func upwards(order []string, pkg listedPackage) []string {
	place := slices.Index(order, short(pkg.ImportPath))
	if place < 0 {
		return []string{short(pkg.ImportPath) + " (which the order does not name)"}
	}
	var bad []string
	for _, path := range pkg.Imports {
		if slices.Contains(order[place:], short(path)) {
			bad = append(bad, short(path))
		}
	}
	return bad
}

func matching(patterns, imports []string, suffix string) []string {
	var bad []string
	for _, path := range imports {
		if matchesAny(patterns, short(path)) {
			bad = append(bad, short(path)+suffix)
		}
	}
	return bad
}

// strangers returns the imports of this module that no pattern allows.
func strangers(patterns, imports []string) []string {
	var bad []string
	for _, path := range imports {
		if strings.HasPrefix(path, module+"/") && !matchesAny(patterns, short(path)) {
			bad = append(bad, short(path))
		}
	}
	return bad
}

func matchesAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, path) })
}

func matches(pattern, path string) bool {
	if parent, ok := strings.CutSuffix(pattern, "/..."); ok {
		return within(path, parent)
	}
	return pattern == path
}

// short cuts this module's path off.
func short(path string) string {
	return strings.TrimPrefix(path, module+"/")
}

func importRules(t *testing.T) []importRule {
	t.Helper()
	var rules []importRule
	for _, line := range readLines(t, "imports.txt") {
		left, right, ok := strings.Cut(line, " : ")
		words := strings.Fields(left)
		if !ok || len(words) < 2 ||
			!slices.Contains([]string{"never", "direct", "only", "order", "binary", "apart"}, words[0]) {
			t.Fatalf("imports.txt: malformed line %q", line)
		}
		rules = append(rules, importRule{verb: words[0], importers: words[1:], patterns: strings.Fields(right)})
	}
	return rules
}

// listPackages returns this module's packages by import path.
func listPackages(t *testing.T) map[string]listedPackage {
	t.Helper()
	all := goList(t, "-json=ImportPath,Imports,Deps,Module")
	maps.DeleteFunc(all, func(_ string, p listedPackage) bool { return p.Module == nil || !p.Module.Main })
	return all
}

// goList returns this module's packages and all that they import, by import path.
func goList(t *testing.T, flags ...string) map[string]listedPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"list", "-deps"}, flags...), "./...")...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	packages := map[string]listedPackage{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listedPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("read go list: %v", err)
		}
		packages[p.ImportPath] = p
	}
}

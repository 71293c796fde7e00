package main

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// requirement is a line of docs/requirements that claims to be held.
type requirement struct {
	number, text string
	// at is the line's file and number.
	at string
	// places are the directories and files in which its section is built, from the top of the tree.
	places []string
	tests  []namedTest
}

// namedTest is a test as a line names it.
type namedTest struct{ dir, name string }

func (n namedTest) String() string { return n.dir + "." + n.name }

var (
	requirementRow  = regexp.MustCompile(`^\|([A-Z]\d+\.\d+)\|`)
	requirementTest = regexp.MustCompile("`([a-z0-9][a-z0-9/]*)\\.((?:Test|Fuzz)[A-Za-z0-9_]+)(?:/[^`]*)?`")
	quoted          = regexp.MustCompile("`([^`]+)`")
)

// readRequirements returns the lines of the files of dir whose last cell does not begin with an exception.
func readRequirements(dir string) ([]requirement, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no requirements in %s", dir)
	}
	var out []requirement
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		out = append(out, parseRequirements(path, string(text))...)
	}
	return out, nil
}

// parseRequirements reads one file. The text between a section's heading and its table names places, and tests that
// hold each of its lines.
func parseRequirements(path, text string) (out []requirement) {
	intro, number := "", 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		row := requirementRow.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(line, "#"):
			intro = ""
		case !strings.HasPrefix(line, "|"):
			intro += line + "\n"
		case row != nil:
			cells := strings.Split(strings.Trim(line, "|"), "|")
			held := cells[len(cells)-1]
			if strings.HasPrefix(held, "not built: ") || strings.HasPrefix(held, "out of scope: ") {
				continue
			}
			r := requirement{number: row[1], text: cells[1], at: fmt.Sprintf("%s:%d", path, number)}
			for _, m := range quoted.FindAllStringSubmatch(requirementTest.ReplaceAllString(intro, ""), -1) {
				r.places = append(r.places, m[1])
			}
			for _, m := range requirementTest.FindAllStringSubmatch(held+intro, -1) {
				if n := (namedTest{m[1], m[2]}); !slices.Contains(r.tests, n) {
					r.tests = append(r.tests, n)
				}
			}
			out = append(out, r)
		}
	}
	return out
}

// builtIn reports whether a mutant lies in one of the places, or in a package below one.
func (r requirement) builtIn(m *mutant) bool {
	return slices.ContainsFunc(r.places, func(place string) bool {
		return m.dir == place || strings.HasPrefix(m.dir, place+"/") || m.dir+"/"+m.file == place
	})
}

// shuffled returns a copy of list in an order that hangs on the seed and on each element's own key alone.
func shuffled[T any](list []T, seed uint64, key func(T) string) []T {
	place := func(x T) string {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, key(x)))
		return string(sum[:])
	}
	type placed struct {
		x  T
		at string
	}
	all := make([]placed, len(list))
	for i, x := range list {
		all[i] = placed{x, place(x)}
	}
	slices.SortStableFunc(all, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	out := make([]T, len(all))
	for i, p := range all {
		out[i] = p.x
	}
	return out
}

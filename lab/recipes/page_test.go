package recipes

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// step is a numbered step of a recipe, or what stands below the last one.
type step struct {
	number   int
	text     string
	optional bool
}

var (
	stepStart = regexp.MustCompile(`^(\d+)\. `)
	inTicks   = regexp.MustCompile("`([^`]+)`")
)

// recipes returns the steps of each section "Add …" of the page, by its title. The last has number 0: what ends it.
func recipes(t *testing.T, page string) map[string][]step {
	t.Helper()
	out := map[string][]step{}
	for section := range strings.SplitSeq("\n"+page, "\n## ") {
		title, body, _ := strings.Cut(section, "\n")
		if !strings.HasPrefix(title, "Add ") {
			continue
		}
		var steps []step
		end := step{}
		for line := range strings.Lines(body) {
			switch m := stepStart.FindStringSubmatch(line); {
			case m != nil:
				n, err := strconv.Atoi(m[1])
				if err != nil || n != len(steps)+1 {
					t.Fatalf("%s: step %s follows step %d", title, m[1], len(steps))
				}
				steps = append(steps, step{number: n, text: line, optional: strings.Contains(line, "Optional")})
			case strings.HasPrefix(line, "   ") && len(steps) > 0:
				steps[len(steps)-1].text += line
			case len(steps) > 0:
				end.text += line
			}
		}
		if len(steps) == 0 {
			t.Fatalf("%s has no steps", title)
		}
		out[title] = append(steps, end)
	}
	return out
}

// names reports whether a step's text names a file: whole, as the folder that it is in, or with a word in capitals in
// the place of a part, which the example fills in.
func (s step) names(path string) bool {
	return slices.ContainsFunc(inTicks.FindAllStringSubmatch(s.text, -1), func(m []string) bool {
		pattern := regexp.MustCompile(`\b[A-Z]{3,}`).ReplaceAllString(regexp.QuoteMeta(m[1]), `[a-z_]+`)
		return regexp.MustCompile(`^` + pattern + `(/[^/]+)?$`).MatchString(path)
	})
}

// hasFiles reports whether a step names any file.
func (s step) hasFiles() bool {
	return slices.ContainsFunc(inTicks.FindAllStringSubmatch(s.text, -1), func(m []string) bool {
		return strings.Contains(m[1], "/") && !strings.Contains(m[1], " ")
	})
}

// commands returns the commands that a step's text names. The examples add something named trial.
func (s step) commands() (out []string) {
	for _, m := range inTicks.FindAllStringSubmatch(s.text, -1) {
		word, rest, _ := strings.Cut(m[1], " ")
		if (word == "make" || word == "go") && rest != "" {
			out = append(out, strings.ReplaceAll(strings.Join(strings.Fields(m[1]), " "), "NAME", "trial"))
		}
	}
	return out
}

// namesWhatIsMissing reports whether a recipe's end claims that its command fails without each step.
func (s step) namesWhatIsMissing() bool {
	return strings.Contains(s.text, "names each of these steps that is missing")
}

func TestStepsAreRead(t *testing.T) {
	got := recipes(t, "# C\n\n## Add a door\n\n1. `a/door.go`: the door.\n   Then `make generate docs`.\n"+
		"2. Optional, `b/NAME/NAME.go`: paint.\n\n`go test ./a` names each of these steps that is missing.\n\n"+
		"## Rules\n\n1. x\n")
	steps := got["Add a door"]
	if len(got) != 1 || len(steps) != 3 || !steps[1].optional || steps[0].optional || !steps[2].namesWhatIsMissing() {
		t.Fatalf("read %+v", got)
	}
	if !slices.Equal(steps[0].commands(), []string{"make generate docs"}) ||
		!slices.Equal(steps[2].commands(), []string{"go test ./a"}) {
		t.Errorf("commands %q and %q", steps[0].commands(), steps[2].commands())
	}
	for path, want := range map[string]bool{"a/door.go": true, "b/red/red.go": false, "c.go": false} {
		if got := steps[0].names(path); got != want {
			t.Errorf("step 1 names %s: %t", path, got)
		}
	}
	if !steps[1].names("b/red/red.go") || !steps[0].hasFiles() || steps[2].hasFiles() {
		t.Error("a name to be filled in is none")
	}
}

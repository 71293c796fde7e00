package invariants

import (
	"regexp"
	"strings"
	"testing"
)

var makeTarget = regexp.MustCompile(`(?m)^([a-zA-Z0-9_-]+):([^=].*)?$`)

func TestMakeTargetsHaveHelp(t *testing.T) {
	text := readFile(t, "Makefile")
	targets := makeTarget.FindAllStringSubmatch(text, -1)
	if len(targets) < 10 {
		t.Fatalf("found %d targets in the Makefile: the pattern no longer fits it", len(targets))
	}
	for _, m := range targets {
		if !strings.Contains(m[0], " ## ") {
			t.Errorf("Makefile: target %s has no ## help", m[1])
		}
		if !strings.Contains(text, "\n.PHONY: "+m[1]+"\n") {
			t.Errorf("Makefile: target %s is not .PHONY", m[1])
		}
	}
}

func TestCIRunsTheTestCommandOfTheReadme(t *testing.T) {
	for _, path := range []string{".ci/run", "README.md"} {
		if !strings.Contains(readFile(t, path), "make test") {
			t.Errorf("%s does not call make test", path)
		}
	}
}

package invariants

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestContributingNamesWhatExists holds that the recipes name files and folders of the tree.
func TestContributingNamesWhatExists(t *testing.T) {
	path := regexp.MustCompile("`((?:[a-z0-9_.-]+/)+[A-Za-z0-9_.-]+)`")
	named := 0
	for _, m := range path.FindAllStringSubmatch(readFile(t, "CONTRIBUTING.md"), -1) {
		if strings.Contains(m[1], "KIND") || strings.Contains(m[1], "NAME") {
			continue
		}
		named++
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("CONTRIBUTING.md names %s, which is not in the tree", m[1])
		}
	}
	if named < 20 {
		t.Errorf("found %d paths: the pattern no longer fits the recipes", named)
	}
}

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

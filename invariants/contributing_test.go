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

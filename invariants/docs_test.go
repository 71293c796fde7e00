package invariants

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestSpecsHaveTheirForm(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(root, "docs/specs/*.md"))
	if err != nil || len(paths) < 10 {
		t.Fatalf("found %d specs (%v)", len(paths), err)
	}
	index := readFile(t, "SPECS.md")
	opening := regexp.MustCompile(
		`(?s)^# \d{3} [^\n]+\n\n\*\*Status:\*\* .+\n\*\*Date:\*\* \d{4}-\d\d-\d\d\n\*\*Scope:\*\* .+\n\*\*Depends on:\*\* .+\n`,
	)
	for _, path := range paths {
		name := relative(path)
		text := readFile(t, name)
		if !opening.MatchString(text) {
			t.Errorf("%s does not open with Status, Date, Scope, Depends on", name)
		}
		if last := text[strings.LastIndex(text, "\n## ")+1:]; !strings.HasPrefix(last, "## Out of scope\n\n") {
			t.Errorf("%s does not end with Out of scope", name)
		}
		if !strings.Contains(index, "("+name+")") {
			t.Errorf("SPECS.md does not list %s", name)
		}
	}
}

// What is published and not built must be found in one place.
func TestSpecsListEveryUnbuiltReason(t *testing.T) {
	index := readFile(t, "SPECS.md")
	for name := range reasonsOfProto(t) {
		if strings.HasSuffix(name, "_NOT_WIRED") && name != "STAGE_NOT_WIRED" && !strings.Contains(index, "`"+name+"`") {
			t.Errorf("SPECS.md does not say what answers %s", name)
		}
	}
}

var (
	markdownLink = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]+))?\)`)
	heading      = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	notInAnchor  = regexp.MustCompile(`[^a-z0-9 _-]`)
)

func TestDocumentLinksLeadSomewhere(t *testing.T) {
	checked := 0
	for _, path := range trackedFiles(t) {
		if filepath.Ext(path) != ".md" {
			continue
		}
		for _, m := range markdownLink.FindAllStringSubmatch(readFile(t, path), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			checked++
			target := path
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(path), m[1])
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s, which is not there", path, target)
			} else if m[2] != "" && !hasAnchor(readFile(t, target), m[2]) {
				t.Errorf("%s links to #%s of %s, which has no such heading", path, m[2], target)
			}
		}
	}
	if checked < 20 {
		t.Errorf("found %d links: the pattern no longer fits the documents", checked)
	}
}

// hasAnchor makes anchors of headings as code hosts do: lower case, without punctuation, hyphens for spaces.
func hasAnchor(text, anchor string) bool {
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		made := notInAnchor.ReplaceAllString(strings.ToLower(m[1]), "")
		if strings.ReplaceAll(made, " ", "-") == anchor {
			return true
		}
	}
	return false
}

package fleetview

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/harness"
)

// reading has the last words of commands that read. Commands that write have tests of their own for unknown names.
var reading = []string{
	"audit", "certificate", "certificates", "commands", "deliveries", "discovered", "get", "health", "heads", "history",
	"inventory", "leases", "list", "logs", "machines", "ops", "show", "tests", "timeline", "verify", "watch", "why",
}

// ofNames are the flags that name one thing.
var ofNames = []string{"machine", "site", "actor", "delivery", "view"}

// notRead are the commands whose name is of something that the controller does not keep.
var notRead = []string{"ingot certificate verify FILE"}

// TestNoCommandReadsWhatThereIsNot runs every command that reads with an unknown name. Each fails with exit code 3 and
// names it: an empty answer would be taken for the truth.
func TestNoCommandReadsWhatThereIsNot(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/reference/ingot.md")
	if err != nil {
		t.Fatal(err)
	}
	c := harness.New(t, harness.Options{})
	harness.Must(t, c.Admin().SetSite, &baremetalv1.SetSiteRequest{Site: "berlin"})
	asked := map[string]bool{}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		for _, line := range linesWithANameThatThereIsNot(section) {
			asked[line] = true
			code, out := c.Ingot(append([]string{"--timeout", "30s"}, strings.Fields(line)[1:]...)...)
			if code != 3 || !strings.Contains(out, "no-such") || !strings.Contains(out, "_NOT_FOUND") {
				t.Errorf("%s: exit code %d\n%s", line, code, out)
			}
		}
	}
	if len(asked) < 30 {
		t.Errorf("%d command lines were asked: the reference has another form", len(asked))
	}
	for _, line := range []string{
		"ingot webhook deliveries no-such", "ingot ops --machine no-such", "ingot audit no-such",
		"ingot audit --actor no-such", "ingot site leases berlin --machine no-such", "ingot run list --machine no-such",
	} {
		if !asked[line] {
			t.Errorf("%s was not asked", line)
		}
	}
}

var usage = regexp.MustCompile("(?s)^ingot.*?```text\n(ingot[^\n]*)\n")

// linesWithANameThatThereIsNot returns the command lines of a section of the reference in which one name is wrong.
func linesWithANameThatThereIsNot(section string) (lines []string) {
	m := usage.FindStringSubmatch(section)
	if m == nil || slices.Contains(notRead, m[1]) {
		return nil
	}
	words := strings.Fields(m[1])
	n := slices.IndexFunc(words, func(w string) bool { return strings.ContainsAny(w, "[<") || strings.ToLower(w) != w })
	if n < 0 {
		n = len(words)
	}
	command, arg := strings.Join(words[:n], " "), ""
	if n < len(words) && words[n] != "[flags]" {
		arg = words[n]
	}
	if !slices.Contains(reading, words[n-1]) {
		return nil
	}
	if arg != "" {
		lines = append(lines, command+" no-such")
	}
	if arg != "" && !strings.HasPrefix(arg, "[") {
		command += " berlin"
	}
	for _, flag := range ofNames {
		if strings.Contains(section, " --"+flag+" string") {
			lines = append(lines, command+" --"+flag+" no-such")
		}
	}
	return lines
}

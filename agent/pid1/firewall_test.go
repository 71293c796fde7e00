package pid1

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pid1 runs the loader where a policy is recorded, and returns its failure.
func TestTheFirewallIsLoadedBeforeTheNetwork(t *testing.T) {
	dir := t.TempDir()
	record, program, mark := filepath.Join(dir, "firewall.json"), filepath.Join(dir, "program"), filepath.Join(dir, "mark")
	old := policyFiles
	policyFiles = []string{filepath.Join(dir, "none"), record}
	t.Cleanup(func() { policyFiles = old })
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(program, "#!/bin/sh\necho \"$@\" >>"+mark+"\n")
	if err := loadFirewall(program); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("run though there never was a policy")
	}
	write(record, "half of a rec")
	if err := loadFirewall(program); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(mark); err != nil || string(got) != "load-firewall\n" {
		t.Errorf("run with %q, %v", got, err)
	}
	write(program, "#!/bin/sh\nexit 7\n")
	if err := loadFirewall(program); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("a failure: %v", err)
	}
}

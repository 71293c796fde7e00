package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ingot-metal/ingot/cli/command"
)

// TestAnEmptyBoundIsRefused: a flag that is given and empty is a variable that a script has not set. It would give a
// token or a role on every machine.
func TestAnEmptyBoundIsRefused(t *testing.T) {
	for _, line := range [][]string{
		{"token", "create", "ci", "--scope", "operate", "--selection", ""},
		{"token", "create", "ci", "--lifetime", "0s"},
		{"token", "issue", "machine-1", "--mac", ""},
		{"token", "issue", "machine-1", "--serial="},
		{"token", "issue", "machine-1", "--lifetime", "-1h"},
		{"role", "grant", "operator", "--group", "g", "--select", ""},
		{"role", "grant", "operator", "--group", "g", "--for", "-1h"},
		{"approval-policy", "set", "p", "--select", ""},
		{"budget", "set", "b", "--at-once", "1", "--value", ""},
		{"agent", "revoke", "a-1", "--fingerprint", ""},
	} {
		f := threeMachines()
		if got := f.run(t, line...); got.code != 1 || !strings.Contains(got.err, "bounds nothing") || len(f.asked) > 0 {
			t.Errorf("%q: asks %v (%+v)", line, f.asked, got)
		}
	}
	for _, line := range []string{"token create ci --selection site=a", "token issue machine-1 --lifetime 1h"} {
		if got := threeMachines().run(t, strings.Fields(line)...); got.code != 0 {
			t.Errorf("%s: %+v", line, got)
		}
	}
}

// TestFlagsThatGiveAllAreNarrow: a flag whose help names all as its default is refused when it is empty. Those that
// choose what is shown, or tested, give nothing away.
func TestFlagsThatGiveAllAreNarrow(t *testing.T) {
	shown := map[string]bool{"ingot test --tests": true, "ingot webhook create --event": true,
		"ingot webhook update --event": true}
	found := 0
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			all := strings.Contains(f.Usage, "default: all") || strings.Contains(f.Usage, "default all")
			if !all || shown[c.CommandPath()+" --"+f.Name] {
				return
			}
			found++
			if len(f.Annotations["narrows"]) == 0 {
				t.Errorf("%s --%s gives all when it is empty", c.CommandPath(), f.Name)
			}
		})
	}
	walk(newRoot(&command.App{}))
	if found < 3 {
		t.Errorf("%d flags give all by default", found)
	}
}

// TestAFirewallRuleWithoutItsNetwork lets in nobody, since it would let in everybody.
func TestAFirewallRuleWithoutItsNetwork(t *testing.T) {
	f := threeMachines()
	got := f.run(t, "reconfigure", "machine-1", "--default-input", "drop", "--allow", "tcp:22@", "--no-wait")
	if got.code != 2 || len(f.asked) > 0 {
		t.Errorf("%+v, asks %v", got, f.asked)
	}
}

// TestASecondDocumentIsNotLeftOut of a file.
func TestASecondDocumentIsNotLeftOut(t *testing.T) {
	for _, line := range []string{"import -f", "plan create -f", "rollout preview -f", "site set -f",
		"reconfigure machine-1 --no-wait -f"} {
		path := filepath.Join(t.TempDir(), "two.yaml")
		if err := os.WriteFile(path, []byte("machine_id: m-1\n---\nmachine_id: m-2\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		f := threeMachines()
		got := f.run(t, append(strings.Fields(line), path)...)
		if got.code != 2 || !strings.Contains(got.err, "more than one document") || len(f.asked) > 0 {
			t.Errorf("%s: %+v, asks %v", line, got, f.asked)
		}
	}
}

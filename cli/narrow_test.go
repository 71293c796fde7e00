package cli

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/controller/api/public/rows"
)

// TestShortListsAreNarrowed: the command line filters and sorts each list that the API filters and sorts by the fields
// of its rows. The controller accepts the examples of its help.
func TestShortListsAreNarrowed(t *testing.T) {
	lists := shortLists()
	for _, line := range []string{
		"approval-policy list", "bmc certificates", "bmc credentials list", "budget list", "budget slots", "cluster list", "controllers",
		"image list", "maas list", "node group list", "plan list", "role list", "script list", "session list",
		"site discovered", "site leases berlin", "site list", "ssh credentials list", "token list --enrolment",
		"view list", "webhook list",
	} {
		term, order := example(t, line, "filter"), example(t, line, "order-by")
		f := &fakeServer{}
		got := f.run(t, append(strings.Fields(line), "--filter", term, "--order-by", order)...)
		if got.code != 0 || len(f.asked) == 0 {
			t.Errorf("%s: %+v", line, got)
			continue
		}
		method, request, _ := strings.Cut(f.asked[0], " ")
		row := lists[method]
		if row == nil || !strings.Contains(request, `"filter":"`+term+`"`) ||
			!strings.Contains(request, `"order_by":"`+order+`"`) {
			t.Errorf("%s asked %s %s", line, method, request)
			continue
		}
		delete(lists, method)
		columns := rows.Of(row, nil)
		if _, err := columns.Filter(term); err != nil {
			t.Errorf("the example of %s: %v", line, err)
		}
		if _, err := columns.Order(order); err != nil {
			t.Errorf("the example of %s: %v", line, err)
		}
	}
	if len(lists) > 0 {
		t.Errorf("no command narrows %v", slices.Sorted(maps.Keys(lists)))
	}
	f := &fakeServer{}
	if got := f.run(t, "token", "list", "--order-by", "name"); got.code != command.ExitUnexpected ||
		!strings.Contains(got.err, "--enrolment") || len(f.asked) > 0 {
		t.Errorf("bearer tokens in an order: %+v, asked %q", got, f.asked)
	}
}

// shortLists are the calls that filter and sort by the fields of their rows, with the messages of these.
func shortLists() map[string]protoreflect.MessageDescriptor {
	out := map[string]protoreflect.MessageDescriptor{}
	protoregistry.GlobalFiles.RangeFilesByPackage("baremetal.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				in := m.Input().Fields()
				if m.Name() == "ListMachines" || in.ByName("page_size") == nil || in.ByName("filter") == nil ||
					in.ByName("order_by") == nil {
					continue
				}
				answer := m.Output().Fields()
				for k := range answer.Len() {
					if f := answer.Get(k); f.IsList() {
						out[string(m.Name())] = f.Message()
					}
				}
			}
		}
		return true
	})
	return out
}

// example is what the help of a command's flag ends with.
func example(t *testing.T, line, flag string) string {
	t.Helper()
	cmd, _, err := newRoot(&command.App{}).Find(strings.Fields(line))
	if err != nil {
		t.Fatal(err)
	}
	f := cmd.Flags().Lookup(flag)
	if f == nil {
		t.Fatalf("ingot %s has no --%s", line, flag)
	}
	_, text, ok := strings.Cut(f.Usage, "such as ")
	if !ok {
		t.Fatalf("--%s of ingot %s gives no example: %s", flag, line, f.Usage)
	}
	return strings.Trim(text, `"`)
}

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

// TestANumberThatTheAPICannotHold is refused before anything is asked; it would wrap, and ask for something else.
func TestANumberThatTheAPICannotHold(t *testing.T) {
	for _, line := range []string{
		"reconfigure machine-1 --hostname web-7 --confirm-timeout 1193046h28m17s",
		"reconfigure machine-1 --hostname web-7 --confirm-timeout 500ms",
		"reconfigure machine-1 --hostname web-7 --confirm-timeout 0s",
		"reconfigure machine-1 --hostname web-7 --confirm-timeout -1s",
		"rollout preview --filter site=berlin --type REBOOT --soak 1193046h28m17s",
		"rollout preview --filter site=berlin --type REBOOT --soak -5s",
		"reboot machine-1 --step-timeout 1193046h28m17s",
		"test machine-1 --disk-mib 17592186044416",
		"test machine-1 --disk-mib -1",
	} {
		f := threeMachines()
		if got := f.run(t, strings.Fields(line)...); got.code != 1 || len(f.asked) > 0 {
			t.Errorf("%s: %+v, asks %v", line, got, f.asked)
		}
	}
}

package cli

import (
	"maps"
	"slices"
	"strings"
	"testing"

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

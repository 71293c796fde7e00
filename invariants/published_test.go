package invariants

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// published returns the lines of published.txt of one kind, as name and items.
func published(t *testing.T, kind string) [][2]string {
	t.Helper()
	var out [][2]string
	for _, line := range readLines(t, "published.txt") {
		if rest, ok := strings.CutPrefix(line, kind+" "); ok {
			name, items, _ := strings.Cut(rest, ": ")
			out = append(out, [2]string{name, items})
		}
	}
	if len(out) < 5 {
		t.Fatalf("published.txt lists %d of kind %s", len(out), kind)
	}
	return out
}

func described[D protoreflect.Descriptor](t *testing.T, name string) D {
	t.Helper()
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(frontpage + "." + protoreflect.FullName(name))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	out, ok := d.(D)
	if !ok {
		t.Fatalf("%s is a %T", name, d)
	}
	return out
}

// TestPublishedMessagesKeepTheirFields: names, types and numbers of fields and enum values, as clients were promised
// them.
func TestPublishedMessagesKeepTheirFields(t *testing.T) {
	for _, m := range published(t, "message") {
		fields := described[protoreflect.MessageDescriptor](t, m[0]).Fields()
		for _, item := range strings.Split(m[1], ", ") {
			words := strings.Fields(item)
			f := fields.ByName(protoreflect.Name(words[0]))
			if f == nil {
				t.Errorf("%s has no field %s", m[0], words[0])
				continue
			}
			if got := fmt.Sprintf("%s %s %d", f.Name(), typeOf(f), f.Number()); got != item {
				t.Errorf("%s: %s, published as %s", m[0], got, item)
			}
		}
	}
	for _, e := range published(t, "enum") {
		values := described[protoreflect.EnumDescriptor](t, e[0]).Values()
		for _, item := range strings.Split(e[1], ", ") {
			name, number, _ := strings.Cut(item, " ")
			if v := values.ByName(protoreflect.Name(name)); v == nil || fmt.Sprint(v.Number()) != number {
				t.Errorf("%s: %s is not %s", e[0], name, number)
			}
		}
	}
}

// typeOf names a field's type as published.txt does.
func typeOf(f protoreflect.FieldDescriptor) string {
	name := f.Kind().String()
	switch {
	case f.IsMap():
		return "map<" + f.MapKey().Kind().String() + "," + f.MapValue().Kind().String() + ">"
	case f.Message() != nil:
		name = local(f.Message())
	case f.Enum() != nil:
		name = local(f.Enum())
	}
	if f.IsList() {
		return "[]" + name
	}
	return name
}

func local(d protoreflect.Descriptor) string {
	name := strings.TrimPrefix(string(d.FullName()), string(frontpage)+".")
	return strings.TrimPrefix(name, "google.protobuf.")
}

// TestPublishedCallsKeepTheirTypes: requests, answers and streams, as clients were promised them.
func TestPublishedCallsKeepTheirTypes(t *testing.T) {
	for _, c := range published(t, "call") {
		service, method, _ := strings.Cut(c[0], ".")
		m := described[protoreflect.ServiceDescriptor](t, service).Methods().ByName(protoreflect.Name(method))
		if m == nil {
			t.Errorf("there is no call %s", c[0])
			continue
		}
		answer := local(m.Output())
		if m.IsStreamingServer() {
			answer = "stream " + answer
		}
		if got := local(m.Input()) + " -> " + answer; got != c[1] || m.IsStreamingClient() {
			t.Errorf("%s: %s, published as %s", c[0], got, c[1])
		}
	}
	agents, err := protoregistry.GlobalFiles.FindDescriptorByName("fleet.v1.AgentService")
	if err != nil {
		t.Fatal(err)
	}
	for name, both := range map[protoreflect.Name]bool{"Commands": true, "Events": true, "RotateAgentCert": false} {
		m := agents.(protoreflect.ServiceDescriptor).Methods().ByName(name)
		if m == nil || m.IsStreamingClient() != both || m.IsStreamingServer() != both {
			t.Errorf("%s of agents: streams in both directions: want %t", name, both)
		}
	}
}

// TestTypesOfTheAPIAreNew: the TypeScript client's types were generated from the API's description as it is. The
// generator needs packages of npm, which not every machine has.
func TestTypesOfTheAPIAreNew(t *testing.T) {
	want := fmt.Sprintf("%x", sha256.Sum256([]byte(readFile(t, "api/openapi/ingot.json"))))
	got, _, _ := strings.Cut(readFile(t, "integrations/typescript/src/schema.source"), " ")
	if got != want {
		t.Error(
			"integrations/typescript/src/schema.ts is of another description of the API; run `npm ci && npm run types` there",
		)
	}
}

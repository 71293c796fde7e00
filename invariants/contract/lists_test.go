package contract

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// TestListsHaveOnePattern: every list pages by page_size and page_token, and returns the next token and the number of
// rows. One text, filter, narrows it, and one text, order_by, orders it. lists_exceptions.txt names the exceptions and
// their reasons.
func TestListsHaveOnePattern(t *testing.T) {
	exceptions := map[string]string{}
	for line := range strings.Lines(readFile(t, "lists_exceptions.txt")) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		what, why, ok := strings.Cut(line, ": ")
		if !ok || len(why) < 10 {
			t.Fatalf("lists_exceptions.txt: %q gives no reason", line)
		}
		exceptions[what] = why
	}
	used := map[string]bool{}
	lists := 0
	for _, m := range calls(t) {
		if !isList(m) {
			continue
		}
		lists++
		for _, lack := range lacks(m) {
			what := string(m.Name()) + " " + lack
			if used[what] = true; exceptions[what] == "" {
				t.Errorf("%s is against the pattern of lists; lists_exceptions.txt does not say why", what)
			}
		}
	}
	for _, what := range slices.Sorted(maps.Keys(exceptions)) {
		if !used[what] {
			t.Errorf("lists_exceptions.txt names %q, which is not so", what)
		}
	}
	if lists < 30 {
		t.Errorf("found %d lists", lists)
	}
	t.Logf("%d lists, %d exceptions", lists, len(exceptions))
}

// isList reports whether a call answers rows: by its name, or because it pages.
func isList(m protoreflect.MethodDescriptor) bool {
	return !m.IsStreamingServer() &&
		(strings.HasPrefix(string(m.Name()), "List") || m.Input().Fields().ByName("page_size") != nil)
}

// pattern are the fields that every list has, with their types.
var pattern = []struct {
	name protoreflect.Name
	kind protoreflect.Kind
	in   func(protoreflect.MethodDescriptor) protoreflect.MessageDescriptor
}{
	{"page_size", protoreflect.Int32Kind, protoreflect.MethodDescriptor.Input},
	{"page_token", protoreflect.StringKind, protoreflect.MethodDescriptor.Input},
	{"filter", protoreflect.StringKind, protoreflect.MethodDescriptor.Input},
	{"order_by", protoreflect.StringKind, protoreflect.MethodDescriptor.Input},
	{"next_page_token", protoreflect.StringKind, protoreflect.MethodDescriptor.Output},
	{"total_size", protoreflect.Int32Kind, protoreflect.MethodDescriptor.Output},
}

// lacks names what of the pattern a list does not have, and the fields that narrow it in another way.
func lacks(m protoreflect.MethodDescriptor) (out []string) {
	var known []protoreflect.Name
	for _, p := range pattern {
		known = append(known, p.name)
		f := p.in(m).Fields().ByName(p.name)
		if f == nil || f.Kind() != p.kind || f.IsList() {
			out = append(out, "lacks "+string(p.name))
		}
	}
	for i := range m.Input().Fields().Len() {
		if f := m.Input().Fields().Get(i); !slices.Contains(known, f.Name()) {
			out = append(out, "takes "+string(f.Name()))
		}
	}
	return out
}

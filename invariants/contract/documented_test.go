package contract

import (
	"regexp"
	"strings"
	"testing"
)

var (
	protoBlock = regexp.MustCompile(`^\s*(message|enum|service|oneof) (\w+) \{(\}?)$`)
	protoCall  = regexp.MustCompile(`^\s+rpc (\w+)\(`)
	protoField = regexp.MustCompile(`^\s*(?:repeated |optional )?[\w.]+(?:<[\w., ]+>)? (\w+) = \d+`)
	protoValue = regexp.MustCompile(`^\s*(\w+) = \d+`)
)

// TestEveryCallAndFieldIsDocumented counts what clients read in the protos: each call, field and value of an enum has a
// comment, and each message that is more than the envelope of a call.
func TestEveryCallAndFieldIsDocumented(t *testing.T) {
	counts := map[string]int{}
	for file, text := range protoFiles(t) {
		for _, d := range protoDeclarations(text) {
			counts[d.kind]++
			envelope := d.kind == "message" && (strings.HasSuffix(d.name, "Request") || strings.HasSuffix(d.name, "Response"))
			if d.comment == "" && !envelope {
				t.Errorf("%s: %s %s has no comment", file, d.kind, d.name)
			}
		}
	}
	all := len(calls(t))
	if counts["call"] != all || counts["field"] < 1200 {
		t.Errorf("the protos declare %v, and the descriptors have %d calls: the patterns fit no longer", counts, all)
	}
	t.Logf("%d calls and %d fields are documented, %d values of enums, %d messages", counts["call"], counts["field"],
		counts["value"], counts["message"])
}

// protoDeclaration is one declaration of a .proto file. Its kind is message, enum, service, call, field or value.
type protoDeclaration struct{ kind, name, comment string }

func protoDeclarations(text string) (out []protoDeclaration) {
	var kinds, names []string
	protoLines(text, func(line, comment string) {
		add := func(kind, name string) {
			out = append(out, protoDeclaration{kind, strings.Join(append(append([]string{}, names...), name), "."), comment})
		}
		if m := protoBlock.FindStringSubmatch(line); m != nil {
			if m[1] != "oneof" {
				add(m[1], m[2])
			}
			if m[3] == "" {
				kinds, names = append(kinds, m[1]), append(names, m[2])
			}
			return
		}
		switch {
		case len(kinds) == 0:
		case strings.TrimSpace(line) == "}":
			kinds, names = kinds[:len(kinds)-1], names[:len(names)-1]
		case protoCall.MatchString(line):
			add("call", protoCall.FindStringSubmatch(line)[1])
		case kinds[len(kinds)-1] == "enum" && protoValue.MatchString(line):
			add("value", protoValue.FindStringSubmatch(line)[1])
		case protoField.MatchString(line):
			add("field", protoField.FindStringSubmatch(line)[1])
		}
	})
	return out
}

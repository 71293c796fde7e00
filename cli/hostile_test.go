package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/safetext"
	"github.com/ingot-metal/ingot/internal/testkit/document"
)

// hostileText is a text that an agent, a BMC or an older row of the database can hold. It has a window title, colours
// in C0 and C1, a reordered line, a byte order mark, and separators of lines. It has a line that looks like a field,
// and YAML's own signs.
const hostileText = "\x1b]0;owned\x07\x1b[8m\u009b31m\u0085\u202egnp\u2066\ufeff\ufffe\u2028\x7f\r" +
	"\n  Phase:  READY\t\U0001f600: #\n"

// spoiled returns the answer with the hostile text at the end of every string.
func (f *fakeServer) spoiled(m proto.Message) proto.Message {
	out := proto.Clone(m)
	spoil(out.ProtoReflect(), f.hostile)
	return out
}

func spoil(m protoreflect.Message, text string) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		isText := f.Kind() == protoreflect.StringKind
		switch {
		case strings.HasSuffix(string(f.Name()), "page_token") || f.IsMap() && f.MapValue().Message() != nil:
		case f.IsMap() && f.MapValue().Kind() == protoreflect.StringKind:
			v.Map().Set(protoreflect.ValueOfString("hostile"+text).MapKey(), protoreflect.ValueOfString(text))
		case f.IsMap():
		case f.IsList():
			for i := range v.List().Len() {
				if f.Message() != nil {
					spoil(v.List().Get(i).Message(), text)
				} else if isText {
					v.List().Set(i, protoreflect.ValueOfString(v.List().Get(i).String()+text))
				}
			}
		case f.Message() != nil:
			spoil(v.Message(), text)
		case isText:
			m.Set(f, protoreflect.ValueOfString(v.String()+text))
		}
		return true
	})
}

// hostileReads are commands that show what machines, agents and other systems report.
var hostileReads = []string{
	"list", "machine get machine-1", "node list", "node get machine-1", "node history machine-1", "script list",
	"script show fix-raid-1", "maas list", "ca status", "view show gpu-racks", "audit", "agent list", "ops",
	"ops get op-1", "plan list", "image list", "status", "cluster list", "budget list", "rollout list", "workflow list",
	"site list", "machine inventory machine-1", "timeline machine-1",
}

func hostileFleet() *fakeServer {
	f := fleet()
	f.op = &pb.Operation{OperationId: "op-1", MachineId: "machine-1", ProgressMessage: "writing"}
	f.hostile = hostileText
	return f
}

func TestNoOutputCarriesWhatSteersATerminal(t *testing.T) {
	t.Parallel()
	for _, line := range hostileReads {
		for _, output := range []string{"table", "wide", "json", "yaml", "name"} {
			for _, terminal := range []bool{false, true} {
				if terminal && output != "table" {
					continue
				}
				f := hostileFleet()
				got := f.runWith(t, func(c *command.Config) { c.OutTerminal, c.ErrTerminal = terminal, terminal },
					append(strings.Fields(line), "-o", output)...)
				for name, text := range map[string]string{"out": got.out, "err": got.err} {
					for _, own := range []string{"\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[34m",
						"\x1b[1;33m", "\x1b[90m", "\r\x1b[K"} {
						if terminal {
							text = strings.ReplaceAll(text, own, "")
						}
					}
					if i := strings.IndexFunc(text, safetext.Unsafe); i >= 0 {
						t.Errorf("ingot %s -o %s (terminal: %v): %s holds %q", line, output, terminal, name,
							text[max(0, i-20):min(len(text), i+20)])
					}
				}
				if strings.HasPrefix(line, "machine") && strings.Contains(got.out, "\n  Phase:  READY") {
					t.Errorf("ingot %s: a machine has written a field of its own:\n%s", line, got.out)
				}
			}
		}
		sameData(t, line)
	}
}

// sameData holds that YAML parses to the data that JSON holds, with the hostile text in it.
func sameData(t *testing.T, line string) {
	t.Helper()
	read := func(output string) (out []any, text string) {
		f := hostileFleet()
		got := f.runWith(t, func(c *command.Config) { c.Clock = stillClock{quickClock{clock.Real()}} },
			append(strings.Fields(line), "-o", output)...)
		yamls, jsons := yaml.NewDecoder(strings.NewReader(got.out)), json.NewDecoder(strings.NewReader(got.out))
		for {
			var v any
			var err error
			if output == "yaml" {
				err = yamls.Decode(&v)
			} else {
				err = jsons.Decode(&v)
			}
			if errors.Is(err, io.EOF) {
				return out, got.out
			}
			if err != nil {
				t.Fatalf("ingot %s -o %s does not parse: %v\n%s", line, output, err, got.out)
			}
			out = append(out, v)
		}
	}
	fromJSON, text := read("json")
	fromYAML, _ := read("yaml")
	a, errA := json.Marshal(fromJSON)
	b, errB := json.Marshal(fromYAML)
	if errA != nil || errB != nil || !bytes.Equal(a, b) && !reflect.DeepEqual(fromJSON, fromYAML) {
		t.Errorf("ingot %s: YAML holds %s, JSON %s (%v, %v)", line, b, a, errA, errB)
	}
	if len(fromJSON) > 0 && !strings.Contains(text, `\u202e`) {
		t.Errorf("ingot %s shows no string of an answer: %s", line, text)
	}
}

func TestReferenceCommands(t *testing.T) {
	document.Check(t, "ingot.md", "ingot", document.Commands(newRoot(&command.App{})))
}

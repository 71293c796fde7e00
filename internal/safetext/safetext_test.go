package safetext_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/internal/safetext"
)

const hostile = "a\x00\x1b[31m\u009b\u202eb\ufeff\r\nc\td\xff"

func TestCleanAndEscape(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, got, want string }{
		{"clean", safetext.Clean(hostile), "a[31mb\nc\td?"},
		{"line", safetext.Line(" " + hostile + "\n"), "a[31mb c d?"},
		{"bounded", safetext.Bounded("abcdef", 4), "abc…"},
		{"escape", safetext.Escape(hostile), `a\u0000\u001b[31m\u009b\u202eb\ufeff\u000d` + "\nc\td" + `\xff`},
		{"plain text", safetext.Clean("Zürich 東京 👩‍🚀\n"), "Zürich 東京 👩‍🚀\n"},
	} {
		if strings.TrimPrefix(c.got, " ") != c.want {
			t.Errorf("%s: %q, want %q", c.name, c.got, c.want)
		}
	}
}

func TestCleanedTextIsSafe(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		raw := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "text")
		for _, got := range []string{safetext.Clean(raw), safetext.Line(raw), safetext.Escape(raw)} {
			if strings.ContainsFunc(got, safetext.Unsafe) || !utf8.ValidString(got) {
				t.Fatalf("%q became %q", raw, got)
			}
		}
		if got := safetext.Clean(raw); safetext.Clean(got) != got {
			t.Fatalf("%q is cleaned again", got)
		}
		document, err := json.Marshal(map[string]any{raw: []any{raw, 1.5, nil, true}})
		if err != nil {
			t.Fatal(err)
		}
		clean, err := safetext.JSON(document)
		var parsed map[string][]any
		if err != nil || json.Unmarshal(clean, &parsed) != nil {
			t.Fatalf("%q became %q (%v)", document, clean, err)
		}
		for key, list := range parsed {
			if text, _ := list[0].(string); strings.ContainsFunc(key+text, safetext.Unsafe) || len(list) != 4 {
				t.Fatalf("%q became %q", document, clean)
			}
		}
	})
}

func TestEveryStringOfAMessageIsCleaned(t *testing.T) {
	t.Parallel()
	text := "m\x1b\u202e"
	m := &fleetv1.EventsRequest{Message: &fleetv1.EventsRequest_Event{Event: &fleetv1.Event{
		Body: &fleetv1.Event_Report{Report: &fleetv1.Report{Kind: text, Fields: map[string]string{text: text}}}}}}
	unsafe := func(_ protoreflect.FullName, s string) bool { return strings.ContainsFunc(s, safetext.Unsafe) }
	if at := safetext.Find(m, unsafe); at == "" {
		t.Error("nothing unsafe was found")
	}
	safetext.Message(m)
	if at := safetext.Find(m, unsafe); at != "" {
		t.Errorf("%s is unsafe", at)
	}
	want := &fleetv1.Report{Kind: "m", Fields: map[string]string{"m": "m"}}
	if got := m.GetEvent().GetReport(); !proto.Equal(got, want) {
		t.Errorf("cleaned to %v", got)
	}
}

func TestADocumentThatIsNestedTooDeep(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("[", 1<<20), `{"a":"\u001b"} {}`, `{"a":"\u001b"`} {
		if _, err := safetext.JSON([]byte(text + "\ufeff")); err == nil {
			t.Errorf("%.20s is taken", text)
		}
	}
}

func TestTheWriterKeepsOwnColours(t *testing.T) {
	t.Parallel()
	const in = "\x1b[1;33mwarn\x1b[0m \r\x1b[K\x1b]0;title\x07\x1b[2J\u202e"
	for terminal, want := range map[bool]string{
		true:  "\x1b[1;33mwarn\x1b[0m \r\x1b[K" + `\u001b]0;title\u0007\u001b[2J\u202e`,
		false: `\u001b[1;33mwarn\u001b[0m \u000d\u001b[K\u001b]0;title\u0007\u001b[2J\u202e`,
	} {
		var out strings.Builder
		n, err := safetext.Writer{W: &out, Terminal: terminal}.Write([]byte(in))
		if n != len(in) || err != nil || out.String() != want {
			t.Errorf("terminal %v: %q, %d bytes (%v)", terminal, out.String(), n, err)
		}
	}
}

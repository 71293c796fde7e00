package encode

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/safetext"
)

// hostileStrings draws strings of characters that parsers of YAML and JSON, and terminals, read in ways of their own.
var hostileStrings = rapid.OneOf(
	rapid.StringOf(rapid.OneOf(
		rapid.SampledFrom([]rune("\x00\x1b\x07\b\r\n\t \x7f\u0080\u0085\u009b\u00a0\u061c\u200e\u2028"+
			"\u202e\u2066\ufeff\ufffd\ufffe\U0001f600\U0010ffff:#-?!&*|>'\"%@`{}[],\\/=<~0123456789abcneyo._+")),
		rapid.Rune())),
	rapid.SampledFrom([]string{"", " ", "yes", "No", "null", "~", "1:30:00", "0777", "0x1f", "1e3", ".5", "1_000", "=",
		"<<", "2026-01-02", "---", "...", "- a", "a: b", " a\nb", "a\n\nb\n", "\ta\nb", "a \nb", "\n", "a\n ", ".inf", "+1"}),
)

func TestYAMLParsesToTheSameData(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := func(name string) string { return strings.ToValidUTF8(hostileStrings.Draw(t, name), "") }
		m := &pb.Machine{MachineId: text("id"), Labels: map[string]string{text("key"): text("value")},
			Spec: &pb.MachineSpec{Rack: text("rack"), MacAddresses: []string{text("mac"), text("mac")}}}
		inYAML, err := YAML(m)
		if err != nil {
			t.Fatal(err)
		}
		inJSON, err := JSON(m)
		if err != nil {
			t.Fatal(err)
		}
		var a, b map[string]any
		if err := yaml.Unmarshal(inYAML, &a); err != nil {
			t.Fatalf("%v in\n%s", err, inYAML)
		}
		if err := json.Unmarshal(inJSON, &b); err != nil {
			t.Fatalf("%v in\n%s", err, inJSON)
		}
		if !reflect.DeepEqual(a, b) || a["machine_id"] != m.GetMachineId() {
			t.Fatalf("%q became %#v in YAML and %#v in JSON", m, a, b)
		}
		for _, out := range [][]byte{inYAML, inJSON} {
			if strings.ContainsFunc(string(out), safetext.Unsafe) {
				t.Fatalf("%q holds an unsafe character", out)
			}
		}
	})
}

func TestBytesThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	raw, err := YAML(&pb.LogChunk{Data: []byte("a\xff\x1b[8m\nb")})
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Data string }
	if err := yaml.Unmarshal(raw, &got); err != nil || got.Data != "a\ufffd\x1b[8m\nb" {
		t.Errorf("%q (%v) in %s", got.Data, err, raw)
	}
	document := `{"vendor":"\ud83d\ude00 \ud800 \u001b","raw":"` + "\xff\ufeff" + `"}`
	raw, err = YAML(&pb.Inventory{Document: []byte(document)})
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Document map[string]string }
	if err := yaml.Unmarshal(raw, &doc); err != nil || doc.Document["vendor"] != "\U0001f600 \ufffd \x1b" ||
		doc.Document["raw"] != "\ufffd\ufeff" {
		t.Errorf("%q (%v) in %s", doc.Document, err, raw)
	}
}

package convert

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store/jsonscan"
)

// words are texts that a client may have sent.
var words = []string{"", "r1", "a b", `say "x"`, `back\slash`, "line\nbreak", "ü – 漢字 🜨", "[1]", "{}", ": ,", "\x7f",
	"</script>", "\u2028"}

// TestFlatReadsAsTheRealDecodersDo draws specs and labels, and reads them both ways.
func TestFlatReadsAsTheRealDecodersDo(t *testing.T) {
	fields := (&baremetalv1.MachineSpec{}).ProtoReflect().Descriptor().Fields()
	if fields.Len() != len(jsonscan.SpecFields) {
		t.Errorf("a spec has %d fields, %d are known here", fields.Len(), len(jsonscan.SpecFields))
	}
	rng := rand.New(rand.NewPCG(3, 4))
	quick := 0
	for range 5000 {
		doc := map[string]any{}
		for i := range fields.Len() {
			f := fields.Get(i)
			if rng.IntN(3) > 0 {
				continue
			}
			word := func() string { return words[rng.IntN(len(words))] }
			if f.IsList() {
				var list []string
				for range rng.IntN(3) {
					list = append(list, word())
				}
				doc[string(f.Name())] = list
			} else {
				doc[string(f.Name())] = word()
			}
		}
		raw, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		want := &baremetalv1.MachineSpec{}
		wantErr := SpecIn.Unmarshal(raw, want)
		got, gotErr := SpecFromJSON(raw)
		if (gotErr != nil) != (wantErr != nil) || gotErr == nil && !proto.Equal(got, want) {
			t.Fatalf("%s\nis read as %v, %v\nwant       %v, %v", raw, got, gotErr, want, wantErr)
		}
		if _, ok := jsonscan.Spec(raw); ok {
			quick++
		}
		var labels map[string]string
		if json.Unmarshal(raw, &labels) != nil || len(labels) == 0 {
			labels = nil
		}
		if got := JSONToMap(raw); !maps.Equal(got, labels) || (got == nil) != (labels == nil) {
			t.Fatalf("%s\nas labels is %v, want %v", raw, got, labels)
		}
	}
	if quick < 100 {
		t.Errorf("only %d were read the quick way", quick)
	}
}

func TestWhatIsNotFlatIsLeftAlone(t *testing.T) {
	for _, doc := range []string{
		``, `null`, `[]`, `{`, `{"a"`, `{"a":`, `{"a":"b"`, `{"a":"b",}`, `{"a":"b"}x`, `{"a":1}`, `{"a":null}`,
		`{"a":{"b":"c"}}`, `{"a":["b"`,
		`{"a":["b",]}`, `{"a":"\u0041"}`, `{a:"b"}`,
	} {
		if jsonscan.Object([]byte(doc), func(_, _ []byte) bool { return true }) {
			t.Errorf("%s was read", doc)
		}
	}
	if !jsonscan.Object([]byte(`{"a": "b", "c": ["d", "e"], "f": []}`), func(_, _ []byte) bool { return true }) {
		t.Error("what Postgres writes was not")
	}
}

func BenchmarkSpec(b *testing.B) {
	raw := []byte(
		`{"rack": "r1", "site": "site-1", "group": "g1", "region": "eu-1", "serial": "SN000000001", "provider": "redfish", ` +
			`"bmc_endpoint": "https://10.0.0.1", "mac_addresses": ["02:00:00:00:00:01"]}`)
	for name, read := range map[string]func() error{
		"flat":      func() error { _, err := SpecFromJSON(raw); return err },
		"protojson": func() error { return protojson.Unmarshal(raw, &baremetalv1.MachineSpec{}) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				if err := read(); err != nil {
					b.Fatal(fmt.Errorf("read: %w", err))
				}
			}
		})
	}
}

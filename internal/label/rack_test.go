package label_test

import (
	"fmt"
	"testing"

	"github.com/ingot-metal/ingot/internal/label"
)

func TestTheRackOfAMachine(t *testing.T) {
	t.Parallel()
	for in, want := range map[struct{ field, label string }]struct {
		rack string
		both string
	}{
		{"", ""}:     {"", "[]"},
		{"r1", ""}:   {"r1", "[r1]"},
		{"", "r1"}:   {"r1", "[r1]"},
		{"r1", "r1"}: {"r1", "[r1]"},
		{"r2", "r1"}: {"r2", "[r1 r2]"},
		{"r1", "r2"}: {"r1", "[r1 r2]"},
	} {
		labels := map[string]string{label.Rack: in.label, "other": "x"}
		if got := label.RackOf(in.field, labels); got != want.rack {
			t.Errorf("%v: %q, want %q", in, got, want.rack)
		}
		if got := fmt.Sprint(label.RacksOf(in.field, labels)); got != want.both {
			t.Errorf("%v: both are %s, want %s", in, got, want.both)
		}
	}
	if got := label.RacksOf("", nil); len(got) != 1 || got[0] != "" {
		t.Errorf("without labels: %q", got)
	}
}

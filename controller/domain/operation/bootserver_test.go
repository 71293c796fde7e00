package operation_test

import (
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/failure"
)

func TestBootServerOfTheSegmentOrTheFirst(t *testing.T) {
	two := map[string]string{"b": "10.0.1.1", "a": "10.0.0.1"}
	for _, c := range []struct {
		addresses             map[string]string
		segment, want, reason string
	}{
		{two, "b", "10.0.1.1", ""}, {two, "", "10.0.0.1", ""}, {two, "c", "10.0.0.1", ""},
		{nil, "a", "", "SITE_AGENT_SILENT"},
	} {
		got, err := operation.BootServer(c.addresses, c.segment)
		if got != c.want || failure.ReasonOf(err) != c.reason {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

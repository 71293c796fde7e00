package hardware

import (
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/internal/evidence"
)

func disk(model string, rate float64) evidence.HardwareResult {
	return evidence.HardwareResult{Test: "disk", Part: "S1", Class: model, Verdict: evidence.HardwarePassed, Figure: rate,
		Unit: "MB/s"}
}

// A value is compared with the median of at least three other machines, of the same part and unit, and no other.
func TestNorms(t *testing.T) {
	machine := func(all ...evidence.HardwareResult) []evidence.HardwareResult { return all }
	failed := disk("A", 1)
	failed.Verdict = evidence.HardwareFailed
	worn := evidence.HardwareResult{Test: "disk", Class: "A", Verdict: evidence.HardwarePassed, Figure: 90, Unit: "% used"}
	four := [][]evidence.HardwareResult{
		machine(disk("A", 2900), disk("A", 3100), disk("B", 500)), machine(disk("A", 3200), disk("B", 500)),
		machine(disk("A", 2800), failed, worn), machine(failed, worn), machine(worn),
	}
	for name, c := range map[string]struct {
		others [][]evidence.HardwareResult
		own    evidence.HardwareResult
		norm   Norm
		warns  string
	}{
		"as the others":         {four, disk("A", 2950), Norm{3000, 3}, ""},
		"a little slower":       {four, disk("A", 2100), Norm{3000, 3}, ""},
		"far below":             {four, disk("A", 2000), Norm{3000, 3}, "2000 MB/s is far below the 3000 MB/s of 3 other"},
		"two others":            {four, disk("B", 5), Norm{}, ""},
		"of another model":      {four, disk("C", 5), Norm{}, ""},
		"one that has failed":   {four, failed, Norm{}, ""},
		"more of it is not bad": {four, worn, Norm{}, ""},
		"nobody was tested":     {nil, disk("A", 5), Norm{}, ""},
	} {
		n := NormsOf(c.others).Of(c.own)
		if n != c.norm {
			t.Errorf("%s: norm %+v, not %+v", name, n, c.norm)
		}
		if got := n.Warning(c.own); c.warns == "" && got != "" || !strings.HasPrefix(got, c.warns) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

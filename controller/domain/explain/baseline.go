package explain

import (
	"math"
	"slices"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/kind"
)

// enough is the number of steps that determine the normal time.
const enough = 5

// Sample is one step that succeeded.
type Sample struct {
	Kind kind.Kind
	// Group and Model are the machine's; empty where it has none.
	Group, Model string
	Simulated    bool
	Took         time.Duration
}

// Baseline is how long steps of one kind take.
type Baseline struct {
	P50, P95 time.Duration
	Samples  int
	// Population is which steps these are: "group web", "model R640", "fleet".
	Population string
}

type class struct {
	kind       kind.Kind
	population string
	simulated  bool
}

// Baselines are the normal durations of a fleet's steps. The zero value knows none. It is not changed once made.
type Baselines struct{ by map[class]Baseline }

// Measure computes normal durations.
func Measure(samples []Sample) Baselines {
	took := map[class][]time.Duration{}
	for _, x := range samples {
		for _, p := range populations(x.Group, x.Model) {
			c := class{x.Kind, p, x.Simulated}
			took[c] = append(took[c], x.Took)
		}
	}
	n := Baselines{by: map[class]Baseline{}}
	for c, all := range took {
		if len(all) >= enough {
			slices.Sort(all)
			n.by[c] = Baseline{quantile(all, 0.5), quantile(all, 0.95), len(all), c.population}
		}
	}
	return n
}

// populations name the sets of machines that one is of, the narrowest first.
func populations(group, model string) []string {
	var out []string
	if group != "" {
		out = append(out, "group "+group)
	}
	if model != "" {
		out = append(out, "model "+model)
	}
	return append(out, "fleet")
}

// For returns the normal duration of a kind of step on a machine: that of its group, else of its model, else of the
// fleet.
func (n Baselines) For(k kind.Kind, group, model string, simulated bool) Baseline {
	for _, p := range populations(group, model) {
		if got, ok := n.by[class{k, p, simulated}]; ok {
			return got
		}
	}
	return Baseline{}
}

// quantile is the smallest value that at least the fraction q of the values does not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[max(i, 0)]
}

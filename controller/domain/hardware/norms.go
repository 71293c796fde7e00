package hardware

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/ingot-metal/ingot/internal/evidence"
)

// leastMachines is how many other machines of its model make a norm.
const leastMachines = 3

// farBelow is the part of the norm under which a value is a warning.
const farBelow = 0.7

// rates are the units in which more is better.
var rates = []string{"MB/s", "GB/s", "IOPS", "MHash/s", "Mbit/s"}

// Norm is what machines of a model measure.
type Norm struct {
	Value float64
	// Machines that it is the median of.
	Machines int
}

// measure is what values are compared by.
type measure struct{ test, class, unit string }

// Norms holds the norms of a model.
type Norms map[measure]Norm

// NormsOf makes the norms of the newest tests of other machines of the model, one list for each machine. Where fewer
// than three have measured a value it has no norm.
func NormsOf(machines [][]evidence.HardwareResult) Norms {
	values := map[measure][]float64{}
	for _, results := range machines {
		own := map[measure][]float64{}
		for _, r := range results {
			if compared(r) {
				own[of(r)] = append(own[of(r)], r.Figure)
			}
		}
		for m, all := range own {
			values[m] = append(values[m], median(all))
		}
	}
	out := Norms{}
	for m, all := range values {
		if len(all) >= leastMachines {
			out[m] = Norm{Value: median(all), Machines: len(all)}
		}
	}
	return out
}

// Of returns the norm of a result; none where its value is not compared.
func (n Norms) Of(r evidence.HardwareResult) Norm {
	if !compared(r) {
		return Norm{}
	}
	return n[of(r)]
}

// Warning returns a text when a value is far below its norm; empty where it is not.
func (n Norm) Warning(r evidence.HardwareResult) string {
	if n.Machines < leastMachines || r.Figure >= farBelow*n.Value {
		return ""
	}
	return fmt.Sprintf("%s %s is far below the %s %s of %d other machines of its model", short(r.Figure), r.Unit,
		short(n.Value), r.Unit, n.Machines)
}

func short(f float64) string {
	if f >= 100 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'g', 3, 64)
}

func of(r evidence.HardwareResult) measure { return measure{r.Test, r.Class, r.Unit} }

// compared reports whether the result has a value that others have too: a part that has failed, or was skipped, is no
// measure of the model.
func compared(r evidence.HardwareResult) bool {
	return r.Verdict == evidence.HardwarePassed && slices.Contains(rates, r.Unit)
}

// median is the middle one, or the mean of the two in the middle.
func median(all []float64) float64 {
	s := slices.Sorted(slices.Values(all))
	n := len(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

package rollout

import (
	"cmp"
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/budget"
	"github.com/ingot-metal/ingot/internal/label"
)

// Order returns the machines in the order in which they begin: one of each domain after the other, so that a wave
// touches few of any, and by id within a domain. The same machines always come out the same way.
func Order(machines []Machine) []Machine {
	type ranked struct {
		Machine
		rank int
	}
	byID := slices.SortedFunc(slices.Values(machines), func(a, b Machine) int { return cmp.Compare(a.ID, b.ID) })
	seen := map[string]int{}
	list := make([]ranked, 0, len(byID))
	for _, m := range byID {
		list = append(list, ranked{m, seen[m.Domain]})
		seen[m.Domain]++
	}
	slices.SortStableFunc(list,
		func(a, b ranked) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.Domain, b.Domain)) })
	out := make([]Machine, 0, len(list))
	for _, r := range list {
		out = append(out, r.Machine)
	}
	return out
}

// Waves returns the sizes of the waves of n machines. Waves that would be empty are left out.
func Waves(s Spec, n int) []int {
	var ends []int
	last := 0
	reach := func(end int) {
		if end = min(end, n); end > last {
			ends = append(ends, end-last)
			last = end
		}
	}
	reach(s.Canary)
	for _, p := range s.Percents {
		reach((n*p + 99) / 100)
	}
	reach(n)
	return ends
}

// RackDomain is the failure domain of racks.
const RackDomain = budget.LabelPrefix + label.Rack

// DefaultBound returns how many of n machines may be under work at a time, in all and in each rack. It applies to work
// that takes machines out of service, without a bound by the caller or a budget. racks reports whether every machine
// names its rack. 0 is no bound.
func DefaultBound(n int, racks bool) (inFlight, perRack int) {
	if racks {
		perRack = 1
	}
	return max(1, n/10), perRack
}

// Bounded returns the specification with bounds where it has none; 0 is none.
func (s Spec) Bounded(inFlight, perDomain int) Spec {
	if s.MaxInFlight == 0 {
		s.MaxInFlight = inFlight
	}
	if s.MaxPerDomain == 0 {
		s.MaxPerDomain = perDomain
	}
	return s
}

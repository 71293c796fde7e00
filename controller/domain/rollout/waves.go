package rollout

import (
	"cmp"
	"slices"
)

// Order gives machines the order in which they begin: one of each domain after the other, so that a wave touches few of
// any, and by id within a domain. The same machines always come out the same way.
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

// Waves gives the sizes of the waves of n machines. Waves that would be empty are left out.
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

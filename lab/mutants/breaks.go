package main

import (
	"cmp"
	"fmt"
	"slices"
)

// reach is what one named test executes, and what the tests do that it is compared with.
type reach struct {
	test namedTest
	ids  []int
	// others counts for each mutant how many of the compared tests of the same package execute it too.
	others map[int]int
}

// drawBreaks draws n mutants for a line from the statements that its tests execute, by the seed alone:
//
//   - Only statements in the places that the line's section names count, unless a test executes none of them.
//   - Statements that the fewest compared tests execute come first: set-up, which all tests execute, comes last.
//   - The tests of the line take turns, so that a test of a whole system does not crowd out a small one.
//   - One source line is broken once.
func drawBreaks(r requirement, reached []reach, mutants map[int]*mutant, seed uint64, n int) []*mutant {
	queues := make([][]*mutant, len(reached))
	for i, x := range reached {
		queues[i] = ordered(r, x, mutants, seed)
	}
	var out []*mutant
	taken := map[string]bool{}
	for left := true; left && len(out) < n; {
		left = false
		for i := range queues {
			for len(queues[i]) > 0 {
				m := queues[i][0]
				queues[i] = queues[i][1:]
				at := fmt.Sprintf("%s/%s:%d", m.dir, m.file, m.line)
				if taken[at] {
					continue
				}
				taken[at], left = true, true
				out = append(out, m)
				break
			}
			if len(out) == n {
				break
			}
		}
	}
	return out
}

// ordered returns the mutants of one test in the order in which they are drawn.
func ordered(r requirement, x reach, mutants map[int]*mutant, seed uint64) []*mutant {
	var here, elsewhere []*mutant
	for _, id := range x.ids {
		if m := mutants[id]; m == nil {
			continue
		} else if r.builtIn(m) {
			here = append(here, m)
		} else {
			elsewhere = append(elsewhere, m)
		}
	}
	if len(here) == 0 {
		here = elsewhere
	}
	out := shuffled(here, seed, func(m *mutant) string { return r.number + " " + m.key })
	slices.SortStableFunc(out, func(a, b *mutant) int { return cmp.Compare(x.others[a.id], x.others[b.id]) })
	return out
}

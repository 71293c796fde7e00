package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
)

// reach is what one named test executes, and what the tests do that it is compared with.
type reach struct {
	test namedTest
	ids  []int
	// compared is the number of other tests of the package, and others how many of them execute each mutant too.
	compared int
	others   map[int]int
}

// setUp reports whether all compared tests execute a mutant too, at least three: the package's own set-up.
func (x reach) setUp(id int) bool { return x.compared >= 3 && x.others[id] == x.compared }

// drawBreaks draws n mutants for a line from the statements that its tests execute, by the seed alone:
//
//   - Only statements in the places that the line's section names count, unless a test executes none of them.
//   - Only changes that change a value wherever they are executed: a case that does not match is not broken.
//   - What all compared tests of the package execute is set-up and does not count.
//   - Of these the pool of a test are the statements of the highest weight: words that are shared with the line raise
//     it, each compared test that executes the statement lowers it. The seed draws from the pool.
//   - The tests of the line take turns, so that a test of a whole system does not crowd out a small one.
//   - One source line is broken once.
func drawBreaks(r requirement, reached []reach, tree vocabulary, seed uint64, n int) []*mutant {
	queues := make([][]*mutant, len(reached))
	for i, x := range reached {
		queues[i] = pool(r, x, tree, seed, n)
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

// pool returns the mutants of one test in the order in which they are drawn, n at most.
func pool(r requirement, x reach, tree vocabulary, seed uint64, n int) []*mutant {
	var here, elsewhere []*mutant
	for _, id := range x.ids {
		if m := tree.mutants[id]; m == nil || m.unsure || x.setUp(id) {
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
	of, weight := wordsOf(r.text), map[int]float64{}
	for _, m := range here {
		weight[m.id] = (1 + tree.shared(m, of)) * (1 - float64(x.others[m.id])/float64(x.compared+1))
	}
	out := shuffled(here, seed, func(m *mutant) string { return r.number + " " + m.key })
	slices.SortStableFunc(out, func(a, b *mutant) int {
		return cmp.Compare(weight[b.id], weight[a.id])
	})
	return shuffled(out[:min(n, len(out))], seed, func(m *mutant) string { return r.number + " " + m.key })
}

// vocabulary are all mutants, and how many of them have each word.
type vocabulary struct {
	mutants map[int]*mutant
	counts  map[string]int
}

func newVocabulary(mutants map[int]*mutant) vocabulary {
	v := vocabulary{mutants, map[string]int{}}
	for _, m := range mutants {
		for word := range mutantWords(m) {
			v.counts[word]++
		}
	}
	return v
}

// shared returns the sum of the weights of the words that a mutant shares with a line. A rare word weighs more.
func (v vocabulary) shared(m *mutant, of map[string]bool) (sum float64) {
	for word := range mutantWords(m) {
		if of[word] {
			sum += math.Log(float64(len(v.mutants)+1) / float64(v.counts[word]))
		}
	}
	return sum
}

// mutantWords returns the words of a mutant's package, file and function, and of the changed text.
func mutantWords(m *mutant) map[string]bool {
	before, _, _ := strings.Cut(m.key, " => ")
	return wordsOf(before + " " + strings.TrimSuffix(m.file, ".go"))
}

// wordsOf splits a text into words of three letters or more in lower case, names at their capitals. An s at the end is
// left out.
func wordsOf(text string) map[string]bool {
	out := map[string]bool{}
	var word []rune
	end := func() {
		if w := strings.TrimSuffix(strings.ToLower(string(word)), "s"); len(w) >= 3 {
			out[w] = true
		}
		word = word[:0]
	}
	for _, c := range text {
		switch {
		case !unicode.IsLetter(c):
			end()
			continue
		case unicode.IsUpper(c) && len(word) > 0 && unicode.IsLower(word[len(word)-1]):
			end()
		}
		word = append(word, c)
	}
	end()
	return out
}

package main

import (
	"cmp"
	"fmt"
	"go/token"
	"slices"
	"strings"
)

// mutant is one change of the code.
type mutant struct {
	// id is its switch, above 0 and unique among the mutants of one build.
	id   int
	dir  string
	file string // base name
	line int
	// key names the mutant by function and text, so that it is the same when lines move.
	key string
	// removed and added are the first changed line before and after.
	removed, added string
	// fine marks a change of a limit, of a number by one, of one part of a condition, or of clean-up. Most inputs do not
	// show it.
	fine bool
	// unsure marks a change that can be executed and change no value: another case of a switch, && in the place of ||.
	unsure bool

	edits []edit
}

// edit is one change of a file's text that builds in the switch.
type edit struct {
	at   int // offset
	kind editKind
	text string
	// cut is how many bytes are replaced.
	cut int
}

type editKind int

const (
	// closing is inserted after what ends at the offset. Of several the first is outermost, and so comes last.
	closing editKind = iota
	// opening is inserted before what starts at the offset. Of several the first is outermost, and so comes first.
	opening
	// replacing stands for the bytes that it cuts.
	replacing
)

// rewrite builds the edits into a text.
func rewrite(text []byte, edits []edit) []byte {
	at := map[int][]edit{}
	for _, e := range edits {
		at[e.at] = append(at[e.at], e)
	}
	var out []byte
	for i := 0; i <= len(text); i++ {
		here := at[i]
		for _, e := range slices.Backward(here) {
			if e.kind == closing {
				out = append(out, e.text...)
			}
		}
		cut := 0
		for _, e := range here {
			switch e.kind {
			case opening:
				out = append(out, e.text...)
			case replacing:
				out = append(out, e.text...)
				cut = e.cut
			}
		}
		if i == len(text) {
			break
		}
		if cut > 0 {
			i += cut - 1
			continue
		}
		out = append(out, text[i])
	}
	return out
}

// storeDir is where the packages lie that lock, store sets and count grants. A sample has its share of them, however
// the number of mutants elsewhere grows.
const (
	storeDir   = "controller/store/"
	storeShare = 4 // one mutant in so many
)

// draw picks n of the mutants by the seed. A mutant's place in the order depends on its own key alone, so that a change
// of the code elsewhere does not reorder all.
func draw(all []*mutant, seed uint64, n int) []*mutant {
	if n <= 0 || n >= len(all) {
		return all
	}
	order := shuffled(all, seed, func(m *mutant) string { return m.key })
	elsewhere := func(m *mutant) bool { return !strings.HasPrefix(m.dir, storeDir) }
	stored := slices.DeleteFunc(slices.Clone(order), elsewhere)
	drawn := slices.Clone(stored[:min(len(stored), (n+storeShare-1)/storeShare)])
	taken := map[*mutant]bool{}
	for _, m := range drawn {
		taken[m] = true
	}
	rest := slices.DeleteFunc(order, func(m *mutant) bool { return taken[m] })
	drawn = append(drawn, rest[:n-len(drawn)]...)
	// Edits are built in by the order of the source.
	slices.SortFunc(drawn, byPlace)
	return drawn
}

// byPlace orders mutants by package and number.
func byPlace(a, b *mutant) int { return cmp.Or(strings.Compare(a.dir, b.dir), cmp.Compare(a.id, b.id)) }

// collapse returns a text on one line, and truncates a long one.
func collapse(text string) string {
	s := strings.Join(strings.Fields(text), " ")
	const most = 160
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return s
}

// numbered makes keys unique: a change that stands in a function more than once is counted there.
func numbered(all []*mutant) {
	seen := map[string]int{}
	for i, m := range all {
		m.id = i + 1
		seen[m.key]++
		if n := seen[m.key]; n > 1 {
			m.key = fmt.Sprintf("%s #%d", m.key, n)
		}
	}
}

// negated are the operators that say the opposite, moved those that differ where both sides are equal.
var (
	negated = map[token.Token]string{
		token.EQL: "!=", token.NEQ: "==", token.LSS: ">=", token.LEQ: ">", token.GTR: "<=", token.GEQ: "<", token.LAND: "||",
		token.LOR: "&&",
	}
	moved = map[token.Token][2]string{
		token.LSS: {"<=", "mutantLess"}, token.LEQ: {"<", "mutantLessEqual"}, token.GTR: {">=", "mutantMore"},
		token.GEQ: {">", "mutantMoreEqual"},
	}
	reckoned = map[token.Token][2]string{
		token.ADD: {"-", "mutantAdd"}, token.SUB: {"+", "mutantSubtract"}, token.MUL: {"/", "mutantMultiply"},
		token.QUO: {"*", "mutantDivide"},
	}
)

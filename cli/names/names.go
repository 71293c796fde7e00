// Package names reads and sorts names of machines as people write them.
package names

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// mostNames bounds the names that one argument stands for.
const mostNames = 10_000

// Expand returns the names that an argument stands for: r42-[01-16] is r42-01 to r42-16, m-[1,3,7-9] is five
// names. A number that begins with 0 keeps its width.
func Expand(pattern string) ([]string, error) {
	open := strings.IndexByte(pattern, '[')
	if open < 0 {
		if at := strings.IndexByte(pattern, ']'); at >= 0 {
			return nil, nameError(pattern, at, "a ] without its [")
		}
		return []string{pattern}, nil
	}
	end := strings.IndexByte(pattern[open:], ']')
	if end < 0 {
		return nil, nameError(pattern, open, "a [ without its ]")
	}
	rest, err := Expand(pattern[open+end+1:])
	if err != nil {
		return nil, err
	}
	var out []string
	at := open + 1
	for part := range strings.SplitSeq(pattern[open+1:open+end], ",") {
		numbers, err := numbersOf(part)
		if err != nil {
			return nil, nameError(pattern, at, err.Error())
		}
		if len(out)+len(numbers)*len(rest) > mostNames {
			return nil, nameError(pattern, at, fmt.Sprintf("more than %d names", mostNames))
		}
		for _, n := range numbers {
			for _, r := range rest {
				out = append(out, pattern[:open]+n+r)
			}
		}
		at += len(part) + 1
	}
	return out, nil
}

// ExpandAll returns the names that arguments stand for, in their order and each once.
func ExpandAll(args []string) (out []string, err error) {
	have := map[string]bool{}
	for _, arg := range args {
		names, err := Expand(arg)
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			if !have[n] {
				have[n] = true
				out = append(out, n)
			}
		}
	}
	return out, nil
}

// List returns names as a list of a filter has them.
func List(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = strconv.Quote(n)
	}
	return strings.Join(quoted, ", ")
}

func nameError(pattern string, at int, what string) error {
	return fmt.Errorf("%q, position %d: %s; a range is written [01-16] or [1,3,7-9]", pattern, at+1, what)
}

// numbersOf returns the numbers of one part between brackets.
func numbersOf(part string) ([]string, error) {
	from, to, isRange := strings.Cut(part, "-")
	if !isRange {
		to = from
	}
	first, err := strconv.ParseUint(from, 10, 32)
	last, err2 := strconv.ParseUint(to, 10, 32)
	switch {
	case err != nil || err2 != nil:
		return nil, fmt.Errorf("%q is no number, and no two with a - between them", part)
	case last < first:
		return nil, fmt.Errorf("%q ends before it begins", part)
	case last-first >= mostNames:
		return nil, fmt.Errorf("more than %d names", mostNames)
	}
	width := 0
	if strings.HasPrefix(from, "0") {
		width = len(from)
	}
	out := make([]string, 0, last-first+1)
	for n := first; n <= last; n++ {
		out = append(out, fmt.Sprintf("%0*d", width, n))
	}
	return out, nil
}

// Compare orders names as people do: m-2 before m-10.
func Compare(a, b string) int {
	for i, j := 0, 0; ; {
		switch {
		case i == len(a) || j == len(b):
			return cmp.Or(cmp.Compare(len(a)-i, len(b)-j), cmp.Compare(a, b))
		case isDigit(a[i]) && isDigit(b[j]):
			x, y := digits(a[i:]), digits(b[j:])
			i, j = i+len(x), j+len(y)
			x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); c != 0 {
				return c
			}
		case a[i] != b[j]:
			return cmp.Compare(a[i], b[j])
		default:
			i, j = i+1, j+1
		}
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// digits are those that a text begins with.
func digits(s string) string {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return s[:n]
}

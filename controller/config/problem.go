package config

import (
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong.
type Problem struct {
	// Line in the file; 0 where it is not in the file, as with a missing value or a variable.
	Line int
	// Key is the path of the key, such as "listen.http", or the name of a variable.
	Key     string
	Message string
}

// String returns "line 3: listen.http: …" with the parts that there are.
func (p Problem) String() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", p.Line)
	}
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Problems are all that is wrong with a configuration, in the order of the file. As an error they take a line each.
type Problems []Problem

// Error returns one line for each problem.
func (ps Problems) Error() string {
	lines := make([]string, 0, len(ps))
	for _, p := range ps {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int { return a.Line - b.Line })
	return ps
}

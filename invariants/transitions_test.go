package invariants

import (
	"fmt"
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/operation"
)

// table is a transition table with its states as plain strings.
type table struct {
	name, stateType, initial string
	// diagram is the document with the picture of it.
	diagram string
	next    map[string][]string
}

func transitionTables() []table {
	return []table{
		{"PhaseTable", "Phase", string(operation.Pending), "docs/specs/002-operations-engine.md",
			plain(operation.PhaseTable)},
		{"StepTable", "StepState", string(operation.StepWaiting), "", plain(operation.StepTable)},
		{"CommandTable", "CommandState", string(operation.Queued), "docs/specs/004-commands-and-grants.md",
			plain(operation.CommandTable)},
	}
}

func plain[S ~string](in map[S][]S) map[string][]string {
	out := map[string][]string{}
	for from, targets := range in {
		out[string(from)] = []string{}
		for _, to := range targets {
			out[string(from)] = append(out[string(from)], string(to))
		}
	}
	return out
}

func TestTransitionTablesAreComplete(t *testing.T) {
	for _, table := range transitionTables() {
		t.Run(table.name, func(t *testing.T) {
			declared := constantsOf(t, "controller/domain/operation", table.stateType)
			if states := slices.Sorted(maps.Keys(table.next)); !slices.Equal(states, declared) {
				t.Errorf("states of the table %v, declared constants %v", states, declared)
			}
			reached := reachable(table.next, table.initial)
			for state, targets := range table.next {
				if !reached[state] {
					t.Errorf("%s is never reached from %s", state, table.initial)
				}
				if len(slices.Compact(slices.Sorted(slices.Values(targets)))) != len(targets) {
					t.Errorf("%s lists a target twice: %v", state, targets)
				}
			}
		})
	}
}

func reachable(next map[string][]string, from string) map[string]bool {
	seen := map[string]bool{}
	for todo := []string{from}; len(todo) > 0; todo = todo[1:] {
		if !seen[todo[0]] {
			seen[todo[0]] = true
			todo = append(todo, next[todo[0]]...)
		}
	}
	return seen
}

// Every way on must end somewhere: each state has a terminal one within reach.
func TestEveryStateCanEnd(t *testing.T) {
	for _, table := range transitionTables() {
		for state := range table.next {
			ends := false
			for s := range reachable(table.next, state) {
				ends = ends || len(table.next[s]) == 0
			}
			if !ends {
				t.Errorf("%s: nothing ends what is %s", table.name, state)
			}
		}
	}
}

var arrow = regexp.MustCompile(`(?m)^ {4}([A-Z]+) --> ([A-Z]+)`)

func TestDiagramsShowTheTables(t *testing.T) {
	for _, table := range transitionTables() {
		if table.diagram == "" {
			continue
		}
		drawn := map[string]bool{}
		for _, m := range arrow.FindAllStringSubmatch(diagramWith(t, table), -1) {
			drawn[m[1]+" → "+m[2]] = true
		}
		for from, targets := range table.next {
			for _, to := range targets {
				if edge := from + " → " + to; !drawn[edge] {
					t.Errorf("%s does not show %s", table.diagram, edge)
				} else {
					delete(drawn, edge)
				}
			}
		}
		for edge := range drawn {
			t.Errorf("%s shows %s, which %s does not have", table.diagram, edge, table.name)
		}
	}
}

// diagramWith returns the state diagram of the document that starts where the table does.
func diagramWith(t *testing.T, table table) string {
	t.Helper()
	for _, block := range strings.Split(readFile(t, table.diagram), "```") {
		if strings.Contains(block, fmt.Sprintf("[*] --> %s\n", table.initial)) {
			return block
		}
	}
	t.Fatalf("%s has no diagram that starts at %s", table.diagram, table.initial)
	return ""
}

// constantsOf returns the values of the string constants of a type, sorted.
func constantsOf(t *testing.T, dir, typeName string) []string {
	t.Helper()
	var values []string
	for _, f := range handWritten(t) {
		if f.dir != dir {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if name, ok := spec.Type.(*ast.Ident); ok && name.Name == typeName {
				for _, v := range spec.Values {
					if lit, ok := v.(*ast.BasicLit); ok {
						values = append(values, unquote(lit))
					}
				}
			}
			return true
		})
	}
	slices.Sort(values)
	return values
}

package timeline

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// AuditData is a row of the audit log as it is in its table.
type AuditData struct {
	AuditRow
	// Salt is nil once the row has been scrubbed.
	Salt []byte
	// Data is the JSON text of event_data.
	Data string
}

// Tables is what the tables say of a machine now, in the same words as a State.
type Tables struct {
	Machine    map[string]string
	Conditions map[string]ConditionState
	Operations map[string]OperationState
	Commands   map[string]CommandState
	Workflows  map[string]WorkflowState
	Audits     map[string]AuditData
	Moves      map[string]MoveState
	// Elsewhere are the numbers of audit rows that another history has: those of a target that was no machine yet.
	Elsewhere map[string]bool
	// Scrubs are announcements in other histories, by target.
	Scrubs map[string][]Scrub
}

// Diff returns where tables and history differ, one line each, in a stable order; nothing when they agree.
func Diff(s *State, t Tables) []string {
	var out []string
	out = append(out, diffValues("machine", s.Machine, t.Machine)...)
	out = append(out, diffMaps("condition", s.conditions(), t.Conditions)...)
	out = append(out, s.diffOperations(t)...)
	out = append(out, s.diffCommands(t)...)
	out = append(out, diffMaps("workflow", s.Workflows, t.Workflows)...)
	out = append(out, s.diffMoves(t)...)
	return append(out, s.diffAudits(t)...)
}

func diffValues(what string, history, table map[string]string) []string {
	var out []string
	for _, k := range keys(history, table) {
		if history[k] != table[k] {
			out = append(out, fmt.Sprintf("%s: %s is %q in the table and %q in the history", what, k, table[k], history[k]))
		}
	}
	return out
}

func keys[A, B any](a map[string]A, b map[string]B) []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(all)
	return slices.Compact(all)
}

// diffMaps compares two maps of comparable values.
func diffMaps[T comparable](what string, history, table map[string]T) []string {
	var out []string
	for _, k := range keys(history, table) {
		h, inHistory := history[k]
		t, inTable := table[k]
		if h != t || inHistory != inTable {
			out = append(out, fmt.Sprintf("%s %s: %s in the table, %s in the history", what, k, shown(t, inTable),
				shown(h, inHistory)))
		}
	}
	return out
}

func shown(v any, there bool) string {
	if !there {
		return "nothing"
	}
	return fmt.Sprintf("%+v", v)
}

// conditions are without what only the history knows.
func (s *State) conditions() map[string]ConditionState {
	out := map[string]ConditionState{}
	for k, c := range s.Conditions {
		c.Since = time.Time{}
		out[k] = c
	}
	return out
}

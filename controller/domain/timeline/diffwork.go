package timeline

import (
	"fmt"
	"strconv"
)

func (s *State) diffOperations(t Tables) []string {
	var out []string
	before := 0
	for _, id := range keys(s.Operations, t.Operations) {
		h, inHistory := s.Operations[id]
		o, inTable := t.Operations[id]
		o.Steps = asTold(h.Steps, o.Steps)
		switch {
		case !inHistory:
			before++
		case fmt.Sprintf("%+v", h) != fmt.Sprintf("%+v", o):
			out = append(out, fmt.Sprintf("operation %s: %s in the table, %s in the history", id, shown(o, inTable),
				shown(h, true)))
		}
	}
	if want := cmpOr(s.OperationsBefore, "0"); strconv.Itoa(before) != want {
		out = append(out,
			fmt.Sprintf("operations: the table has %d that the history does not, and %s are older than the history", before,
				want))
	}
	return out
}

// asTold leaves out of the table's steps the messages that the history was not told.
func asTold(history, table map[string]StepState) map[string]StepState {
	var out map[string]StepState
	for name, step := range table {
		if history[name].Message == Untold {
			step.Message = Untold
		}
		if out == nil {
			out = map[string]StepState{}
		}
		out[name] = step
	}
	return out
}

// diffMoves: moves that are older than the history are counted, all others are in it.
func (s *State) diffMoves(t Tables) []string {
	var out []string
	last, before := number(s.LastMove), 0
	for _, id := range keys(s.Moves, t.Moves) {
		h, inHistory := s.Moves[id]
		m, inTable := t.Moves[id]
		if inTable && number(id) <= last {
			before++
		}
		if (inHistory || number(id) > last) && (h != m || inHistory != inTable) {
			out = append(out, fmt.Sprintf("node move %s: %s in the table, %s in the history", id, shown(m, inTable),
				shown(h, inHistory)))
		}
	}
	if want := cmpOr(s.MovesBefore, "0"); strconv.Itoa(before) != want {
		out = append(out, fmt.Sprintf("node moves: the table has %d up to number %d, and there were %s", before, last, want))
	}
	return out
}

func cmpOr(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// diffCommands leaves out commands of operations that are older than the history.
func (s *State) diffCommands(t Tables) []string {
	table := map[string]CommandState{}
	for id, c := range t.Commands {
		_, known := s.Commands[id]
		if _, ours := s.Operations[c.OperationID]; known || ours {
			table[id] = c
		}
	}
	return diffMaps("command", s.Commands, table)
}

// number returns 0 for a text that is none; the database numbers from 1.
func number(id string) int64 {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

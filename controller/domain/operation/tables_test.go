package operation_test

import (
	"slices"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/operation"
)

// holds checks a table against the list of its states: all there, all reachable, ends without a way out.
func holds[S ~string](t *testing.T, table map[S][]S, initial S, states []S, ends ...S) {
	t.Helper()
	if len(table) != len(states) {
		t.Errorf("the table has %d states, want %d", len(table), len(states))
	}
	for _, st := range states {
		next, ok := table[st]
		if !ok {
			t.Errorf("%s is not in the table", st)
		}
		if !leadsTo(table, initial, st) {
			t.Errorf("%s is not reachable from %s", st, initial)
		}
		isEnd := false
		for _, e := range ends {
			isEnd = isEnd || e == st
		}
		if isEnd != (len(next) == 0) {
			t.Errorf("%s has the ways out %v", st, next)
		}
		for _, to := range next {
			if _, ok := table[to]; !ok {
				t.Errorf("%s leads to %s, which is not in the table", st, to)
			}
		}
	}
}

func TestTables(t *testing.T) {
	holds(t, operation.PhaseTable, operation.Pending, allPhases, operation.Succeeded, operation.Failed, operation.Canceled)
	holds(t, operation.StepTable, operation.StepWaiting,
		[]operation.StepState{operation.StepWaiting, operation.StepRunning, operation.StepSucceeded, operation.StepFailed},
		operation.StepSucceeded, operation.StepFailed)
	holds(t, operation.CommandTable, operation.Queued, allCommandStates, operation.Done, operation.CommandCanceled,
		operation.Expired)
}

func TestUnknownOnlyLeadsToDone(t *testing.T) {
	if next := operation.CommandTable[operation.Unknown]; len(next) != 1 || next[0] != operation.Done {
		t.Errorf("UNKNOWN leads to %v", next)
	}
}

// Only what was granted may have acted, and only what may have acted can be unknown, whatever its executor claims.
func TestNothingGrantedIsEverWithdrawn(t *testing.T) {
	for _, to := range operation.CommandTable[operation.Granted] {
		if to != operation.Done && to != operation.Unknown {
			t.Errorf("GRANTED leads to %s", to)
		}
	}
}

func TestTerminalPhases(t *testing.T) {
	for _, p := range allPhases {
		want := p != operation.Pending && p != operation.Running
		if operation.IsTerminal(p) != want {
			t.Errorf("IsTerminal(%s) = %t", p, !want)
		}
	}
	for _, st := range allCommandStates {
		var want bool
		switch st {
		case operation.Done, operation.CommandCanceled, operation.Expired, operation.Unknown:
			want = true
		}
		if operation.IsFinalCommand(st) != want {
			t.Errorf("IsFinalCommand(%s) = %t", st, !want)
		}
		if c := (&operation.Command{State: st}); c.Settled() != want {
			t.Errorf("a command that is %s is settled: %t", st, !want)
		}
	}
}

// TestNoCommandIsSettled: nothing is awaited before the first.
func TestNoCommandIsSettled(t *testing.T) {
	if !(*operation.Command)(nil).Settled() {
		t.Error("no command is under way")
	}
}

// leadsTo reports whether a table has a way, of any length, from one state to another.
func leadsTo[S comparable](table map[S][]S, from, to S) bool {
	if from == to {
		return true
	}
	for _, next := range table[from] {
		if leadsTo(table, next, to) {
			return true
		}
	}
	return false
}

var (
	allPhases = []operation.Phase{operation.Pending, operation.Running, operation.Succeeded, operation.Failed,
		operation.Canceled}

	allCommandStates = []operation.CommandState{
		operation.Queued, operation.Sent, operation.Acked, operation.Granted, operation.Done, operation.CommandCanceled,
		operation.Expired, operation.Unknown,
	}
)

// TestOnlyMovesOfTheTable: a move that its table lacks panics, before a transaction could store it. A state may stay.
func TestOnlyMovesOfTheTable(t *testing.T) {
	moves := func(from, to operation.CommandState) (moved bool) {
		defer func() { moved = recover() == nil }()
		operation.MayMove(operation.CommandTable, from, to)
		return true
	}
	for _, from := range allCommandStates {
		for _, to := range allCommandStates {
			if want := from == to || slices.Contains(operation.CommandTable[from], to); moves(from, to) != want {
				t.Errorf("%s to %s: moved %t, want %t", from, to, !want, want)
			}
		}
	}
}

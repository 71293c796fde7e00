package node_test

import (
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/node"
)

// Every status in every state: five pairs mean something, all others are refused and change nothing.
func TestEveryReportInEveryState(t *testing.T) {
	was := func(s node.State) node.Install {
		return node.Install{State: s, Attempts: 1, LastError: "before", Percent: 40}
	}
	want := map[node.State]map[string]node.Install{
		node.Pending: {node.Started: {State: node.Installing}},
		node.Installing: {
			node.Started:  {State: node.Installing, Attempts: 1, LastError: "before"},
			node.Progress: {State: node.Installing, Attempts: 1, LastError: "before", Percent: 55},
			node.Complete: {State: node.Installed, Percent: 100},
			node.Failed:   {State: node.Installing, Attempts: 2, LastError: "no disk", Percent: 40},
		},
	}
	for _, s := range node.States() {
		for _, status := range append(node.Statuses(), "", "paused") {
			got, refusal := node.Decide(was(s), node.Report{Status: status, Percent: 55, Error: "no disk"})
			expect, ok := want[s][status]
			switch {
			case ok && (refusal != nil || got != expect):
				t.Errorf("%s in %s: %+v %v, want %+v", status, node.Name(s), got, refusal, expect)
			case !ok && (refusal == nil || refusal.Reason != "REPORT_REFUSED" || got != was(s)):
				t.Errorf("%s in %s: %+v %v, want a refusal", status, node.Name(s), got, refusal)
			}
		}
	}
}

// An installation that fails twice goes on, and ends at the third time; a start in between resets nothing.
func TestAttempts(t *testing.T) {
	at := node.Install{State: node.Pending, Attempts: 7, LastError: "of long ago"}
	for i, step := range []struct {
		status   string
		state    node.State
		attempts int
	}{
		{node.Started, node.Installing, 0},
		{node.Failed, node.Installing, 1},
		{node.Started, node.Installing, 1},
		{node.Failed, node.Installing, 2},
		{node.Started, node.Installing, 2},
		{node.Failed, node.InstallFailed, 3},
	} {
		next, refusal := node.Decide(at, node.Report{Status: step.status, Error: "disk not found"})
		if refusal != nil || next.State != step.state || next.Attempts != step.attempts {
			t.Fatalf("report %d, %s: %+v %v, want %+v", i, step.status, next, refusal, step)
		}
		at = next
	}
	if at.LastError != "disk not found" {
		t.Errorf("kept %q", at.LastError)
	}
	if _, refusal := node.Decide(at, node.Report{Status: node.Started}); refusal == nil {
		t.Error("an installation that has failed starts again by itself")
	}
}

// complete after two failures resets the counter.
func TestCompleteResets(t *testing.T) {
	got, refusal := node.Decide(node.Install{State: node.Installing, Attempts: 2, LastError: "x"},
		node.Report{Status: node.Complete})
	if refusal != nil || got != (node.Install{State: node.Installed, Percent: 100}) {
		t.Errorf("%+v %v", got, refusal)
	}
}

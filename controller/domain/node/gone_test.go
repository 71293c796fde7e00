package node_test

import (
	"slices"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/node"
)

// The condition Retired follows three states and no other.
func TestGoneStates(t *testing.T) {
	for _, s := range node.States() {
		if want := slices.Contains([]node.State{node.Retired, node.Removing, node.Deleted}, s); node.Gone(s) != want {
			t.Errorf("%s: gone %t, want %t", node.Name(s), !want, want)
		}
	}
}

// A refusal names the ways that there are from here: by whom, and each once.
func TestIllegalMovesListTheLegalOnes(t *testing.T) {
	for _, c := range []struct {
		from, to node.State
		by       node.Trigger
		want     string
	}{
		{node.Installed, node.Draining, node.Admin, "a node that is installed cannot become draining; from here admin may " +
			"move it to active, quarantined, retired, deleted"},
		{node.Pending, node.Installing, node.Admin, "a node that is pending cannot become installing by admin; from here " +
			"admin may move it to quarantined, retired, deleted"},
		{node.Pending, node.Active, node.NodeReport,
			"a node that is pending cannot become active; from here node_report may move it to installing"},
	} {
		_, refusal := node.Check(c.from, c.to, c.by, node.Facts{})
		if refusal == nil || refusal.Reason != "NODE_TRANSITION_ILLEGAL" || refusal.Message != c.want {
			t.Errorf("got %+v, want %q", refusal, c.want)
		}
	}
}

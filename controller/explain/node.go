package explain

import (
	"slices"

	"github.com/ingot-metal/ingot/controller/node"
)

// nodeWait is for whom a node waits in a state of its life in which nothing is wrong.
type nodeWait struct {
	on        Party
	who, text string
}

var nodeWaits = map[node.State]nodeWait{
	node.Discovered:      {OnOperator, "somebody who approves it", "the machine is known, and nobody has approved it yet"},
	node.BootstrapIssued: {OnAgent, "an agent that enrols", "a token was issued for the machine, and no agent has enrolled with it yet"},
	node.Pending:         {OnOperator, "its installation", "the machine is approved, and waits to be installed"},
	node.Installed:       {OnOperator, "somebody who verifies it", "the machine is installed, and waits to be verified before it counts as active"},
}

// lifeWaits says that the node's place in its life is what it waits in.
func (s *scene) lifeWaits() bool {
	_, ok := nodeWaits[s.status.GetNodeState()]
	return ok
}

func (s *scene) sayLife(e *Explanation) {
	w := nodeWaits[s.status.GetNodeState()]
	e.WaitsOn, e.WaitsFor, e.Since = w.on, w.who, when(s.status.GetNodeStateChangedAt())
	e.Summary = "nothing is under way; " + w.text
	e.Actions = s.transitions()
}

// spent says that the node's installations have failed as often as they may.
func (s *scene) spent() bool { return s.status.GetNodeState() == node.InstallFailed }

// unowned says that the node's state stands for work that nobody does.
func (s *scene) unowned() bool { return node.InProgress(s.status.GetNodeState()) }

func (s *scene) sayUnowned(e *Explanation) {
	e.WaitsOn, e.WaitsFor, e.Since = OnOperator, "an operator", when(s.status.GetNodeStateChangedAt())
	e.Cause.Text = "the machine is " + s.nodeState() + ", which stands for work, and no operation or workflow of ours works on it"
	if s.status.GetNodeState() == node.Installing {
		e.WaitsOn, e.WaitsFor = OnAgent, "the report of an installer"
		e.Cause.Text = "the machine is installing by an installer that reports by itself; its next report is waited for"
	}
	e.Summary = e.Cause.Text
	e.Actions = s.transitions()
}

// transitions are the changes of the node's state that an admin may make, but for those that end its life.
func (s *scene) transitions() []Action {
	var out []Action
	for _, t := range node.From(s.status.GetNodeState()) {
		if !slices.Contains(t.Triggers, node.Admin) || node.Gone(t.To) || t.To == node.Quarantined {
			continue
		}
		out = append(out, Action{
			Command:     "ingot node transition " + s.id() + " " + node.Name(t.To),
			Consequence: "moves the node from " + node.Name(t.From) + " to " + node.Name(t.To),
		})
	}
	return out
}

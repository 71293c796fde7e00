package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

// nodeWait is for whom a node waits in a state of its life in which nothing is wrong.
type nodeWait struct {
	on        explain.Party
	who, text string
}

var nodeWaits = map[node.State]nodeWait{
	node.Discovered: {
		explain.OnOperator,
		"an operator who approves it",
		"the machine is known, and not approved yet",
	},
	node.BootstrapIssued: {explain.OnAgent, "an agent that enrols",
		"a token was issued for the machine, and no agent has enrolled with it yet"},
	node.Pending: {explain.OnOperator, "its installation", "the machine is approved, and waits to be installed"},
	node.Installed: {explain.OnOperator, "an operator who verifies it",
		"the machine is installed, and waits to be verified before it counts as active"},
}

// lifeWaits reports whether the node's place in its life is what it waits in.
func (s *scene) lifeWaits() bool {
	_, ok := nodeWaits[s.status.GetNodeState()]
	return ok
}

func (s *scene) sayLife(e *explain.Explanation) {
	w := nodeWaits[s.status.GetNodeState()]
	if s.status.GetNodeState() == node.BootstrapIssued && s.host != nil {
		w = nodeWait{
			explain.OnAgent,
			"a session of agent " + s.host.AgentID,
			"agent " + s.host.AgentID + " " + s.Seen(s.host),
		}
		if s.host.LastSeen.IsZero() {
			w = nodeWait{explain.OnAgent, "the first session of agent " + s.host.AgentID, "agent " + s.host.AgentID +
				" has enrolled, and has not opened a session yet"}
		}
	}
	e.WaitsOn, e.WaitsFor, e.Since = w.on, w.who, explain.When(s.status.GetNodeStateChangedAt())
	e.Summary = "nothing is under way; " + w.text
	e.Actions = s.transitions()
}

// unhealthy reports whether a node on its way in has an agent with a session, and waits for its health checks.
func (s *scene) unhealthy() bool {
	return s.host != nil && s.host.Live && len(node.Failing(s.Checks)) > 0
}

// sayUnhealthy names each check that does not pass, with the expected and the found value.
func (s *scene) sayUnhealthy(e *explain.Explanation) {
	e.WaitsOn, e.WaitsFor = explain.OnOperator, "an operator who corrects the registration, or the machine"
	e.Since = explain.When(s.status.GetNodeStateChangedAt())
	e.Cause = explain.Cause{Reason: fleet.AttentionInactive, Text: "agent " + s.host.AgentID +
		" is connected, and the node becomes active only when its health checks pass: " +
		strings.Join(node.Failing(s.Checks), "; ")}
	for _, c := range s.Checks {
		if c.State == node.CheckPassed {
			e.Cause.Facts = append(e.Cause.Facts, "check "+c.Name+" passes")
			continue
		}
		e.Actions = append(e.Actions, s.cureOfCheck(c)...)
	}
	e.Summary = "nothing is under way; " + e.Cause.Text
	e.Next = "the checks are made again all the time, and the node becomes active by itself"
	if !slices.ContainsFunc(s.Checks, func(c node.HealthCheck) bool { return c.State == node.CheckFailing }) {
		e.WaitsOn, e.WaitsFor = explain.OnAgent, "what the checks compare"
	}
}

// cureOfCheck returns what makes a health check pass.
func (s *scene) cureOfCheck(c node.HealthCheck) []explain.Action {
	switch {
	case c.Name == node.CheckInventory && c.State == node.CheckFailing:
		return []explain.Action{inventory(s),
			{Command: "ingot machine update " + s.ID() + " --mac-addresses MAC,… --serial SERIAL",
				Consequence: "corrects the registration; be sure that it is the machine that was meant"}}
	case c.Name == node.CheckInventory:
		return []explain.Action{explain.Doctor()}
	case c.Name == node.CheckProvider && s.Provider() == workflow.ProviderMAAS:
		return []explain.Action{maasPage(s)}
	case c.Name == node.CheckProvider:
		return []explain.Action{s.GiveBMC(), s.SetCredentials()}
	}
	return nil
}

// spent reports whether the node's installations have failed as often as they may.
func (s *scene) spent() bool { return s.status.GetNodeState() == node.InstallFailed }

// unowned reports whether the node's state stands for work without a worker.
func (s *scene) unowned() bool { return node.InProgress(s.status.GetNodeState()) }

// ownerGrace is how long a controller leaves such a node alone.
const ownerGrace = time.Minute

func (s *scene) sayUnowned(e *explain.Explanation) {
	to, _ := node.Ownerless(s.status.GetNodeState())
	e.WaitsOn, e.WaitsFor, e.Since = explain.OnLimit, "a controller that takes it out of there",
		explain.When(s.status.GetNodeStateChangedAt())
	e.Cause.Text = "the machine is " + s.nodeState() +
		", which stands for work, and no operation or workflow of ours works on it"
	e.Next = "a controller moves the node to " + node.Name(to)
	if !e.Since.IsZero() {
		e.NextAt = explain.Latest(e.Since.Add(ownerGrace), s.Now)
	}
	e.Summary = e.Cause.Text
	e.Actions = s.transitions()
}

// reported reports whether an installer which is not ours installs the machine and reports by itself.
func (s *scene) reported() bool { return s.step != nil && s.step.Mode == workflow.ReportedInstall }

func (s *scene) sayReported(e *explain.Explanation) {
	e.WaitsOn, e.WaitsFor, e.Since = explain.OnAgent, "the next report of its installer", s.step.StartedAt
	e.Cause.Text = "the machine is installing by an installer that reports by itself"
	if n := s.status.GetInstallAttempts(); n > 0 {
		e.Cause.Facts = append(e.Cause.Facts, fmt.Sprintf("%d of %d install attempts have failed; the last one said: %s", n,
			node.MaxAttempts, s.status.GetLastInstallError()))
	}
	e.Next, e.NextAt = "if it says nothing by then, gives up: FAILED with INSTALLER_SILENT, and the attempt counts as "+
		"failed", s.Op.WakeAt
}

// replaced reports whether the machine's hardware is being replaced.
func (s *scene) replaced() bool { return s.step != nil && s.step.Mode == workflow.AwaitReplacement }

func (s *scene) sayReplaced(e *explain.Explanation) {
	e.WaitsOn, e.WaitsFor, e.Since = explain.OnOperator, "the person who replaces its hardware", s.step.StartedAt
	e.Cause.Text = "the machine's hardware is being replaced; it is back when its agent reports under another boot"
	e.Next, e.NextAt = "if it is not back by then, gives up: FAILED with AGENT_UNAVAILABLE", s.limit()
}

// exhaustedBy returns why the last install attempt failed: the reason, and its message.
func (s *scene) exhaustedBy() (code, message string) {
	if s.Op != nil && s.Op.Error != nil && s.Op.Error.Code == "INSTALL_ATTEMPTS_EXHAUSTED" {
		code = s.Op.Error.Details["cause"]
	}
	said := s.status.GetLastInstallError()
	if c, rest, ok := strings.Cut(said, ": "); ok && (c == code || code == "") && remedies[c].text != "" {
		return c, rest
	}
	return code, said
}

// transitions are the moves that an admin may make now, but for those that end the node's life or stop all work on it.
func (s *scene) transitions() []explain.Action {
	var out []explain.Action
	from := node.Name(s.status.GetNodeState())
	for _, to := range s.Offers.Moves {
		if node.Gone(to) || to == node.Quarantined {
			continue
		}
		out = append(out, explain.Action{
			Command: "ingot node transition " + s.ID() + " " + node.Name(to), Consequence: "moves the node from " + from +
				" to " + node.Name(to),
			Destructive: destructiveMoves[to],
		})
	}
	return out
}

// destructiveMoves start work that loses data or takes the machine away.
var destructiveMoves = map[node.State]bool{node.Reprovision: true, node.Deprovisioning: true, node.Migrating: true}

package decider

import (
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
)

// Steps in a cluster: the agent of the machine's site speaks to the cluster's API server. A join is two commands: that
// agent makes a token, and the machine's own agent uses it.

// TokenUse is how long the token of a join may have been there when the machine's agent is told to use it; after that
// another one is made. It is well below the token's life.
const TokenUse = 5 * time.Minute

// clusterKind is the kind of the next command of such a step.
func (d *decider) clusterKind(s *operation.Step) kind.Kind {
	token := kind.Of(s.Kind).Token
	switch {
	case s.IsStage():
		return kind.Drain
	case token != "" && !d.tokenMade():
		return token
	}
	return s.Kind
}

// tokenMade reports whether the latest command has made the token of this join, and there is time to use it.
func (d *decider) tokenMade() bool {
	return d.cmd != nil && d.cmd.StepIdx == d.op.CurrentStep && d.cmd.Kind == kind.Of(d.step().Kind).Token &&
		d.cmd.State == operation.Done &&
		d.cmd.Outcome == operation.OutcomeSucceeded &&
		d.now.Before(d.cmd.FinishedAt.Add(TokenUse))
}

// routeInCluster picks who takes the next command; while one is out, who could take that one.
func (d *decider) routeInCluster(s *operation.Step) *fleet.Candidate {
	next := d.clusterKind(s)
	if d.cmd != nil && !d.cmd.Settled() {
		next = d.cmd.Kind
	}
	if !kind.Of(next).AsksHost {
		return fleet.SiteForClusters(d.w.Candidates)
	}
	if host := fleet.Host(d.w.Candidates); host != nil && host.Live {
		return host
	}
	return nil
}

// dispatchInCluster makes the next command, or waits for somebody who can take it.
func (d *decider) dispatchInCluster(s *operation.Step, limit time.Time) {
	next, k := d.routeInCluster(s), d.clusterKind(s)
	switch {
	case next != nil && kind.Of(k).AsksHost && !next.CanDo(kind.Of(k).Capability):
		d.fail("CAPABILITY_MISSING", "agent "+next.AgentID+" cannot join its machine to a cluster", false)
	case next != nil:
		d.makeCommand(s, k, next)
	case d.past(limit) && kind.Of(k).AsksHost:
		d.fail("AGENT_UNAVAILABLE",
			"the machine's agent did not come to join it before the step's deadline; nothing was started", true)
	case d.past(limit):
		d.fail("AGENT_UNAVAILABLE",
			"no agent of the machine's site could speak to the cluster before the step's deadline; nothing was started", true)
	default:
		d.wait(operation.WaitAgent, operation.Earliest(limit, d.now.Add(min(operation.LookAgain, 10*time.Second))))
	}
}

// follow sets the conditions that follow from a success, by what was read back.
func (d *decider) follow(seen map[string]string) {
	for _, c := range kind.Of(d.cmd.Kind).Follows {
		if c.If == "" || seen[c.If] != "" {
			d.condition(c.Type, c.Status, c.Reason, c.MessageOf(seen))
		}
	}
}

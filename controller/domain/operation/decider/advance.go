package decider

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/situation"
)

// advance starts the current step, or its next attempt, and goes on through steps that end at once.
func advance(s Situation) verdict {
	switch {
	case s.Over:
		return verdict{}
	case s.Step.State == operation.StepSucceeded:
		return closeOperation(s)
	case s.Step.State == operation.StepWaiting:
		return verdict{moves: []move{stepBegins{}, noted{"step_started", s.StepKind.Started}}, then: attempt}
	case s.Op.CurrentStage != s.Step.Name:
		return verdict{moves: []move{entersStage{}}, then: attempt}
	}
	return attempt(s)
}

// attempt tries the current step once.
func attempt(s Situation) verdict {
	if s.Step.RetryAt.After(s.Now) {
		return does(waits{operation.WaitRetry, s.Step.RetryAt})
	}
	switch s.StepKind.Control {
	case kind.SetsPhase:
		return stepDone(s, map[string]string{"phase": s.Step.Mode}).
			after(changesMachine{SetPhase: fleet.Phase(s.Step.Mode)})
	case kind.ChecksStage:
		return attemptStage(s)
	case kind.AwaitsAgent:
		return awaitAgent(s)
	case kind.FlagsRMA:
		if s.Step.Mode == "return" {
			return stepDone(s, map[string]string{"rma": "returned"}).after(flags{rma: false})
		}
		return stepDone(s, map[string]string{"rma": "flagged"}).after(flags{rma: true})
	default:
		return dispatch(s)
	}
}

func awaitAgent(s Situation) verdict {
	limit := s.Step.StartedAt.Add(s.Step.Timeout)
	switch {
	case s.World.TargetAgentLive:
		return stepDone(s, map[string]string{"agent_id": s.World.TargetAgentID, "boot_id": s.World.TargetBootID})
	case s.Past(limit):
		return fails("AGENT_UNAVAILABLE", "the machine's agent did not come up in time", true)
	}
	return does(waits{operation.WaitAgent, limit})
}

func failBlocked() verdict {
	return fails("MACHINE_BLOCKED",
		"the machine has been flagged RMA or Retired since, and nothing runs on a blocked machine", false)
}

// untaken fails a step that no agent could take in time. Of an earlier attempt it repeats the end.
func untaken(s Situation) verdict {
	if s.Step.RetryCount > 0 {
		return fails("AGENT_UNAVAILABLE",
			"no agent could take the next attempt before the step's deadline; the one before has failed: "+s.Step.Message, true)
	}
	return fails("AGENT_UNAVAILABLE", "no agent could take the step before its deadline; nothing was started", true)
}

// dispatch makes the command of the next attempt, if an agent can take it.
func dispatch(s Situation) verdict {
	if s.Blocked && !s.Forgets {
		return failBlocked()
	}
	next := s.Route()
	switch {
	case next == nil && noExecutor(s) && !s.Step.AsksCluster():
		return waitForAgent(s)
	case s.ThroughInstaller():
		return dispatchThroughInstaller(s)
	case s.Step.AsksCluster():
		return dispatchInCluster(s)
	case next == nil && s.Past(s.Limit()):
		return untaken(s)
	case next == nil:
		return does(waits{operation.WaitAgent, s.SoonOr(s.Limit())})
	case !next.CanDo(s.StepKind.Capability):
		return fails(s.StepKind.Missing, fmt.Sprintf("agent %s cannot %s on this machine", next.AgentID,
			s.StepKind.Capability), false)
	}
	return makeCommand(s, s.Step.Kind, next)
}

// noExecutor reports whether no agent could ever take the step as things are: the machine has none of its own, and no
// agent of its site has a way to it.
func noExecutor(s Situation) bool {
	if s.StepKind.Route != kind.Direct {
		return false // which have other ways to the machine
	}
	for i := range s.World.Candidates {
		c := &s.World.Candidates[i]
		through := len(c.Capabilities) == 0 ||
			slices.ContainsFunc(c.Capabilities, func(s string) bool { return strings.HasPrefix(s, "provider:") })
		if c.Role != "site" || through {
			return false
		}
	}
	return true
}

// waitForAgent leaves operators a short time in which they can enrol an agent.
func waitForAgent(s Situation) verdict {
	limit := operation.Earliest(s.Limit(), s.Step.StartedAt.Add(operation.NobodyGrace))
	if !s.Past(limit) {
		return does(waits{operation.WaitNobody, limit})
	}
	return fails(operation.WaitNobody,
		"nothing can reach the machine: it has no agent, and its site has no agent with a way to it; enrol one of them, "+
			"or set the BMC's endpoint; nothing was started", false)
}

// newCommand returns the next attempt of the current step. A replacement gets no more time than what it replaces: an
// operation ends, however often agents change.
func newCommand(s Situation, k kind.Kind, executor *fleet.Candidate) commandMade {
	made := commandMade{kind: k, attempt: 1, deadline: s.Now.Add(s.Step.Timeout), executor: executor}
	if s.OfStep {
		made.attempt = s.Command.Attempt + 1
		if s.Command.State == operation.CommandCanceled && !s.Outlived() {
			made.deadline = s.Command.Deadline
		}
	}
	return made
}

// wait returns the wait for the command.
func (m commandMade) wait(s Situation) waits {
	if m.executor.Live {
		return waits{operation.WaitResult, s.SoonOr(m.deadline)}
	}
	return waits{operation.WaitAgent, s.SoonOr(m.deadline)}
}

func makeCommand(s Situation, k kind.Kind, executor *fleet.Candidate) verdict {
	made := newCommand(s, k, executor)
	return does(made, made.wait(s))
}

// replaceCommand cancels a command that was never granted, and so never acted, for a new attempt.
func replaceCommand(why string) verdict {
	return verdict{
		moves: []move{commandEnds{state: operation.CommandCanceled, message: why}, noted{"step_retrying", why}},
		then:  advance,
	}
}

// shouldHandOver reports whether another agent should take the step: the executor is silent, was never granted the
// command, and no answer that it may still hold can be in its window any more.
func shouldHandOver(s Situation) bool {
	if s.World.ExecutorLive || fleet.Silence(s.World.ExecutorSilentFrom, s.Now) < fleet.HandOverAfter {
		return false
	}
	if s.ThroughInstaller() {
		return otherExecutor(s)
	}
	next := s.Route()
	return next != nil && next.AgentID != s.Command.ExecutorID && next.CanDo(s.StepKind.Capability)
}

// Steps in a cluster: the agent of the machine's site speaks to the cluster's API server. A join is two commands: that
// agent makes a token, and the machine's own agent uses it.

// TokenUse is the age at which the token of a join is made anew instead of used.
const TokenUse = situation.TokenUse

// clusterLook is how soon a step is evaluated again that waits for an agent of its machine's site.
const clusterLook = 10 * time.Second

// dispatchInCluster makes the next command, or waits for an agent that can take it.
func dispatchInCluster(s Situation) verdict {
	next, k, limit := s.RouteInCluster(), s.ClusterKind(), s.Limit()
	of := kind.Lookup(k)
	switch {
	case next != nil && of.AsksHost && !next.CanDo(of.Capability):
		return fails("CAPABILITY_MISSING", "agent "+next.AgentID+" cannot join its machine to a cluster", false)
	case next != nil:
		return makeCommand(s, k, next)
	case s.Past(limit) && of.AsksHost:
		return fails("AGENT_UNAVAILABLE",
			"the machine's agent did not come to join it before the step's deadline; nothing was started", true)
	case s.Past(limit):
		return fails("AGENT_UNAVAILABLE",
			"no agent of the machine's site could speak to the cluster before the step's deadline; nothing was started", true)
	}
	return waitForSite(s)
}

// waitForSite waits for an agent of the machine's site.
func waitForSite(s Situation) verdict {
	return does(waits{operation.WaitAgent,
		operation.Earliest(s.Limit(), s.Now.Add(min(operation.LookAgain, clusterLook)))})
}

// followed returns the conditions that follow from a success and its evidence.
func followed(s Situation, seen map[string]string) []operation.ConditionChange {
	var out []operation.ConditionChange
	for _, c := range s.CommandKind.Follows {
		if c.If == "" || seen[c.If] != "" {
			out = append(out, condition(c.Type, c.Status, c.Reason, c.MessageOf(seen)))
		}
	}
	return out
}

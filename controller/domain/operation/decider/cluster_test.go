package decider_test

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/decider"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// inCluster is a world with both agents that a join takes.
func inCluster(t *testing.T, steps ...operation.Step) *stored {
	t.Helper()
	s := newStored(t, steps...)
	s.setAgents(joiner("s-1", true), clusterSite())
	return s
}

func joiner(stateID string, live bool) fleet.Candidate {
	c := host(stateID, live)
	c.Capabilities = append(c.Capabilities, "join")
	return c
}

func clusterSite() fleet.Candidate {
	c := site("site-state")
	c.Capabilities = append(c.Capabilities, "cluster")
	return c
}

func step(k operation.Kind, retries int) operation.Step {
	return operation.Step{Kind: k, MaxRetries: retries}
}

// grantedTo lets the latest command be granted to whom it was sent.
func (s *stored) grantedTo(want string, kind operation.Kind) *operation.Command {
	s.t.Helper()
	c := s.latest()
	if c == nil || c.ExecutorID != want || c.Kind != kind || c.State != operation.Sent {
		s.t.Fatalf("the command is %+v, want %s for %s", c, kind, want)
	}
	s.ask(c, "boot-1")
	return s.latest()
}

// TestAJoinTakesTwo: the site's agent makes the token, the machine's own uses it, and the site's sees the Node.
func TestAJoinTakesTwo(t *testing.T) {
	s := inCluster(t, step(operation.KindJoin, 1), step(operation.KindVerify, 0))
	s.look()
	s.result(s.grantedTo(siteID, operation.KindJoinToken), operation.OutcomeSucceeded, nil)
	if s.op.CurrentStep != 0 || s.op.Steps[0].State != operation.StepRunning {
		t.Fatalf("a token is taken for a join: %+v", s.op)
	}
	join := s.grantedTo(hostID, operation.KindJoin)
	if join.Attempt != 2 {
		t.Errorf("it is attempt %d", join.Attempt)
	}
	s.result(join, operation.OutcomeSucceeded, map[string]string{evidence.JoinedCluster: "sha256:1"})
	if s.conditions[fleet.InCustomerCluster] {
		t.Error("kubeadm's word is taken for the Node's")
	}
	s.result(s.grantedTo(siteID, operation.KindVerify), operation.OutcomeSucceeded,
		map[string]string{evidence.NodeReadyAt: "t", evidence.ClusterName: "prod"})
	s.ended(operation.Succeeded, "")
	if !s.conditions[fleet.InCustomerCluster] {
		t.Error("a Node that is ready does not count")
	}
}

// TestEveryJoinHasATokenOfItsOwn: neither one that was used in vain nor one that has lain too long is used.
func TestEveryJoinHasATokenOfItsOwn(t *testing.T) {
	s := inCluster(t, step(operation.KindJoin, 1))
	s.look()
	s.result(s.grantedTo(siteID, operation.KindJoinToken), operation.OutcomeSucceeded, nil)
	join := s.grantedTo(hostID, operation.KindJoin)
	s.do(operation.Resulted{AgentID: hostID, CommandID: join.ID, Outcome: operation.OutcomeFailed,
		Reason: "KUBEADM_FAILED", Retryable: true})
	s.now = s.now.Add(time.Minute)
	s.look()
	s.grantedTo(siteID, operation.KindJoinToken)

	s = inCluster(t, step(operation.KindJoin, 1))
	s.look()
	first := s.grantedTo(siteID, operation.KindJoinToken)
	s.setAgents(joiner("s-1", false), clusterSite())
	s.result(first, operation.OutcomeSucceeded, nil)
	if s.latest().ID != first.ID || s.op.WaitReason != operation.WaitAgent {
		t.Fatalf("nobody is there to join, and the operation %s with %+v", s.op.WaitReason, s.latest())
	}
	s.setAgents(joiner("s-1", true), clusterSite())
	s.now = s.now.Add(decider.TokenUse)
	s.op.Steps[0].Timeout = time.Hour
	s.look()
	s.grantedTo(siteID, operation.KindJoinToken)
}

// TestNobodyJoins: what lacks is named.
func TestNobodyJoins(t *testing.T) {
	s := inCluster(t, step(operation.KindJoin, 0))
	s.setAgents(host("s-1", true), clusterSite())
	s.look()
	s.result(s.grantedTo(siteID, operation.KindJoinToken), operation.OutcomeSucceeded, nil)
	s.ended(operation.Failed, "CAPABILITY_MISSING")

	s = inCluster(t, step(operation.KindVerify, 0))
	s.setAgents(joiner("s-1", true), site("x"))
	s.look()
	s.now = s.now.Add(stepTimeout)
	s.look()
	s.ended(operation.Failed, "AGENT_UNAVAILABLE")
	if len(s.commands) != 0 {
		t.Errorf("%d commands were made", len(s.commands))
	}
}

// TestDrainAndBack: the conditions follow what was read back, and nothing else.
func TestDrainAndBack(t *testing.T) {
	s := inCluster(t, step(operation.KindDrain, 0), step(operation.KindUncordon, 0))
	s.conditions[fleet.InCustomerCluster] = true
	s.look()
	s.result(s.grantedTo(siteID, operation.KindDrain), operation.OutcomeSucceeded,
		map[string]string{evidence.NodeDrained: "0"})
	if !s.conditions[fleet.Drained] || !s.conditions[fleet.InCustomerCluster] {
		t.Errorf("after the drain: %v", s.conditions)
	}
	s.result(s.grantedTo(siteID, operation.KindUncordon), operation.OutcomeSucceeded,
		map[string]string{evidence.NodeSchedulable: "true"})
	if s.conditions[fleet.Drained] {
		t.Errorf("after the uncordon: %v", s.conditions)
	}
	s.ended(operation.Succeeded, "")

	s = inCluster(t, step(operation.KindDrain, 0))
	s.conditions[fleet.InCustomerCluster] = true
	s.look()
	s.result(s.grantedTo(siteID, operation.KindDrain), operation.OutcomeSucceeded,
		map[string]string{evidence.NodeDrained: "3", evidence.NodeRemoved: "t"})
	if s.conditions[fleet.InCustomerCluster] || !s.conditions[fleet.Drained] {
		t.Errorf("after leaving: %v", s.conditions)
	}

	s = inCluster(t, step(operation.KindDrain, 0))
	s.look()
	s.result(s.grantedTo(siteID, operation.KindDrain), operation.OutcomeSucceeded, nil)
	s.ended(operation.Failed, "EVIDENCE_MISSING")
}

// TestTheStageThatDrains asks the cluster where there is one to ask, and looks where there is none.
func TestTheStageThatDrains(t *testing.T) {
	stage := operation.Step{Kind: operation.KindStage, Mode: workflow.DrainNode}
	facts := func(s *stored, member, known bool) {
		s.op.Type = fleet.Decommission
		s.world.Stage = workflow.StageFacts{Kind: workflow.Decommission, Mode: workflow.SoftReset, Cluster: "prod",
			ClusterKnown: known}
		s.world.Machine.Conditions[fleet.InCustomerCluster] = member
	}
	s := inCluster(t, stage)
	facts(s, true, true)
	s.look()
	s.result(s.grantedTo(siteID, operation.KindDrain), operation.OutcomeSucceeded,
		map[string]string{evidence.NodeDrained: "2"})
	s.ended(operation.Succeeded, "")

	s = inCluster(t, stage)
	facts(s, true, false)
	s.look()
	s.ended(operation.Failed, "CLUSTER_NOT_FOUND")

	s = inCluster(t, stage)
	facts(s, false, true)
	s.look()
	s.ended(operation.Succeeded, "")
	if len(s.commands) != 0 {
		t.Errorf("%d commands for a machine in no cluster", len(s.commands))
	}
}

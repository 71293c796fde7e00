package decider_test

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
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

func step(k kind.Kind, retries int) operation.Step {
	return operation.Step{Kind: k, MaxRetries: retries}
}

// grantedTo lets the latest command be granted to whom it was sent.
func (s *stored) grantedTo(want string, k kind.Kind) *operation.Command {
	s.t.Helper()
	c := s.latest()
	if c == nil || c.ExecutorID != want || c.Kind != k || c.State != operation.Sent {
		s.t.Fatalf("the command is %+v, want %s for %s", c, k, want)
	}
	s.ask(c, "boot-1")
	return s.latest()
}

// TestAJoinTakesTwo: the site's agent makes the token, the machine's own uses it, and the site's sees the Node.
func TestAJoinTakesTwo(t *testing.T) {
	s := inCluster(t, step(kind.Join, 1), step(kind.Verify, 0))
	s.look()
	s.result(s.grantedTo(siteID, kind.JoinToken), operation.OutcomeSucceeded, nil)
	if s.op.CurrentStep != 0 || s.op.Steps[0].State != operation.StepRunning {
		t.Fatalf("a token is taken for a join: %+v", s.op)
	}
	join := s.grantedTo(hostID, kind.Join)
	if join.Attempt != 2 {
		t.Errorf("it is attempt %d", join.Attempt)
	}
	s.result(join, operation.OutcomeSucceeded, map[string]string{evidence.JoinedCluster: "sha256:1"})
	if s.conditions[fleet.InCustomerCluster] {
		t.Error("kubeadm's word is taken for the Node's")
	}
	s.result(s.grantedTo(siteID, kind.Verify), operation.OutcomeSucceeded,
		map[string]string{evidence.NodeReadyAt: "t", evidence.ClusterName: "prod"})
	s.ended(operation.Succeeded, "")
	if !s.conditions[fleet.InCustomerCluster] {
		t.Error("a Node that is ready does not count")
	}
}

// TestEveryJoinHasATokenOfItsOwn: neither one that was used in vain nor one that has lain too long is used.
func TestEveryJoinHasATokenOfItsOwn(t *testing.T) {
	s := inCluster(t, step(kind.Join, 1))
	s.look()
	s.result(s.grantedTo(siteID, kind.JoinToken), operation.OutcomeSucceeded, nil)
	join := s.grantedTo(hostID, kind.Join)
	s.do(operation.Resulted{AgentID: hostID, CommandID: join.ID, Outcome: operation.OutcomeFailed,
		Reason: "KUBEADM_FAILED", Retryable: true})
	s.now = s.now.Add(time.Minute)
	s.look()
	s.grantedTo(siteID, kind.JoinToken)

	s = inCluster(t, step(kind.Join, 1))
	s.look()
	first := s.grantedTo(siteID, kind.JoinToken)
	s.setAgents(joiner("s-1", false), clusterSite())
	s.result(first, operation.OutcomeSucceeded, nil)
	if s.latest().ID != first.ID || s.op.WaitReason != operation.WaitAgent {
		t.Fatalf("nobody is there to join, and the operation %s with %+v", s.op.WaitReason, s.latest())
	}
	s.setAgents(joiner("s-1", true), clusterSite())
	s.now = s.now.Add(decider.TokenUse)
	s.op.Steps[0].Timeout = time.Hour
	s.look()
	s.grantedTo(siteID, kind.JoinToken)
}

// TestNobodyJoins: what lacks is named.
func TestNobodyJoins(t *testing.T) {
	s := inCluster(t, step(kind.Join, 0))
	s.setAgents(host("s-1", true), clusterSite())
	s.look()
	s.result(s.grantedTo(siteID, kind.JoinToken), operation.OutcomeSucceeded, nil)
	s.ended(operation.Failed, "CAPABILITY_MISSING")

	s = inCluster(t, step(kind.Verify, 0))
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
	s := inCluster(t, step(kind.Drain, 0), step(kind.Uncordon, 0))
	s.conditions[fleet.InCustomerCluster] = true
	s.look()
	s.result(s.grantedTo(siteID, kind.Drain), operation.OutcomeSucceeded,
		map[string]string{evidence.NodeDrained: "0"})
	if !s.conditions[fleet.Drained] || !s.conditions[fleet.InCustomerCluster] {
		t.Errorf("after the drain: %v", s.conditions)
	}
	s.result(s.grantedTo(siteID, kind.Uncordon), operation.OutcomeSucceeded,
		map[string]string{evidence.NodeSchedulable: "true"})
	if s.conditions[fleet.Drained] {
		t.Errorf("after the uncordon: %v", s.conditions)
	}
	s.ended(operation.Succeeded, "")

	s = inCluster(t, step(kind.Drain, 0))
	s.conditions[fleet.InCustomerCluster] = true
	s.look()
	s.result(s.grantedTo(siteID, kind.Drain), operation.OutcomeSucceeded,
		map[string]string{evidence.NodeDrained: "3", evidence.NodeRemoved: "t"})
	if s.conditions[fleet.InCustomerCluster] || !s.conditions[fleet.Drained] {
		t.Errorf("after leaving: %v", s.conditions)
	}

	s = inCluster(t, step(kind.Drain, 0))
	s.look()
	s.result(s.grantedTo(siteID, kind.Drain), operation.OutcomeSucceeded, nil)
	s.ended(operation.Failed, "EVIDENCE_MISSING")
}

// TestTheStageThatDrains asks the cluster where there is one to ask, and looks where there is none.
func TestTheStageThatDrains(t *testing.T) {
	stage := operation.Step{Kind: kind.WorkflowStage, Mode: workflow.DrainNode}
	facts := func(s *stored, member, known bool) {
		s.op.Type = fleet.Decommission
		s.world.Stage = workflow.StageFacts{Kind: workflow.Decommission, Mode: workflow.SoftReset, Cluster: "prod",
			ClusterKnown: known}
		s.world.Machine.Conditions[fleet.InCustomerCluster] = member
	}
	s := inCluster(t, stage)
	facts(s, true, true)
	s.look()
	s.result(s.grantedTo(siteID, kind.Drain), operation.OutcomeSucceeded,
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

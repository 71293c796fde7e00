package decider_test

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// TestWhichBootSettlesAnUnknownCommand: a system that was seen before the grant, or no other boot at all, proves
// nothing.
func TestWhichBootSettlesAnUnknownCommand(t *testing.T) {
	noted := map[string]string{evidence.HostAgentID: hostID, evidence.HostBootID: "boot-1"}
	command := func(state operation.CommandState, k kind.Kind, role string) *operation.Command {
		return &operation.Command{State: state, Kind: k, ExecutorRole: role, BootIDBefore: "boot-x", Evidence: noted}
	}
	for name, c := range map[string]struct {
		command *operation.Command
		booted  operation.Booted
		want    bool
	}{
		"no command": {nil, operation.Booted{BootID: "boot-2"}, false},
		"a known outcome": {command(operation.Done, kind.Reboot, "host"),
			operation.Booted{BootID: "boot-2"}, false},
		"a reboot": {command(operation.Unknown, kind.Reboot, "host"),
			operation.Booted{AgentID: hostID, Role: "host", BootID: "boot-2"}, true},
		"a reboot, the same boot": {command(operation.Unknown, kind.Reboot, "host"),
			operation.Booted{AgentID: hostID, Role: "host", BootID: "boot-x"}, false},
		"a switch by the site": {command(operation.Unknown, kind.Power, "site"),
			operation.Booted{AgentID: hostID, Role: "host", BootID: "boot-2"}, true},
		"a switch, the boot noted before": {command(operation.Unknown, kind.Power, "site"),
			operation.Booted{AgentID: hostID, Role: "host", BootID: "boot-1"}, false},
		"a switch, another agent": {command(operation.Unknown, kind.Power, "site"),
			operation.Booted{AgentID: "a-new", Role: "host", BootID: "boot-1"}, true},
		"a switch, no host": {command(operation.Unknown, kind.Power, "site"),
			operation.Booted{AgentID: hostID, Role: "installer", BootID: "boot-1"}, true},
		"a kexec": {command(operation.Unknown, kind.Kexec, "host"),
			operation.Booted{BootID: "boot-2"}, true},
		"an installer's write": {command(operation.Unknown, kind.Repave, "installer"),
			operation.Booted{BootID: "boot-2"}, true},
		"a write in place": {command(operation.Unknown, kind.Repave, "host"),
			operation.Booted{BootID: "boot-2"}, false},
		"nobody says which boot": {command(operation.Unknown, kind.Reboot, "host"),
			operation.Booted{AgentID: hostID, Role: "host"}, false},
	} {
		if got := operation.ProofSettles(c.command, c.booted); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestWhichPowerOffSettlesAnUnknownCommand: what ran on the machine runs no more, if it was seen off after the grant.
func TestWhichPowerOffSettlesAnUnknownCommand(t *testing.T) {
	unknown := operation.Command{State: operation.Unknown, ExecutorRole: "host", GrantedAt: t0}
	known, bySite := unknown, unknown
	known.State, bySite.ExecutorRole = operation.Granted, "site"
	for name, c := range map[string]struct {
		command *operation.Command
		seen    time.Time
		want    bool
	}{
		"after the grant": {&unknown, t0.Add(1), true},
		"at the grant":    {&unknown, t0, false},
		"under way":       {&known, t0.Add(1), false},
		"by the site":     {&bySite, t0.Add(1), false},
		"no command":      {nil, t0, false},
	} {
		if got := operation.PowerOffSettles(c.command, c.seen); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestAFingerprintThatIsNewIsNoOtherMachine: an agent that had none when the reboot was granted may name one
// afterwards, and the other way round.
func TestAFingerprintThatIsNewIsNoOtherMachine(t *testing.T) {
	for _, c := range []struct{ before, after string }{{"", "hw-1"}, {"hw-1", ""}, {"", ""}} {
		s := started(t, reboot())
		h := host("s-1", true)
		h.BootID, h.Hardware = "boot-1", c.before
		s.setAgents(h)
		s.ask(s.latest(), "boot-1")
		h.BootID, h.Hardware = "boot-2", c.after
		s.setAgents(h)
		s.result(s.latest(), operation.OutcomeSucceeded,
			map[string]string{"boot_id_before": "boot-1", "boot_id_after": "boot-2"})
		if s.op.Phase != operation.Succeeded {
			t.Errorf("%+v: the operation is %s", c, s.op.Phase)
		}
	}
}

// TestAProviderWritesInPlace: where it is neither a BMC nor MAAS, the site's agent repaves without an installer; it
// erases by none.
func TestAProviderWritesInPlace(t *testing.T) {
	for _, c := range []struct {
		provider string
		k        kind.Kind
		want     bool
	}{
		{"fake", kind.Repave, true}, {"fake", kind.Erase, false},
		{fleet.AgentProvider, kind.Repave, false}, {workflow.ProviderMAAS, kind.Repave, false},
	} {
		s := newStored(t, operation.Step{Kind: c.k})
		s.world.Provider, s.world.TargetAgentID, s.world.TargetAgentLive = c.provider, "", false
		agent := site("s-1")
		agent.Capabilities = []string{"provider:" + c.provider}
		s.setAgents(agent)
		s.look()
		if got := s.latest() != nil && s.latest().Kind == c.k; got != c.want {
			t.Errorf("%s by %s: in place %t, %s", c.k, c.provider, got, dump(s.latest()))
		}
	}
}

// TestAStageSeesWhatItsAttemptHasProved: the reboot before it is evidence of a clean machine.
func TestAStageSeesWhatItsAttemptHasProved(t *testing.T) {
	stage := operation.Step{Kind: kind.WorkflowStage, Mode: workflow.ValidateClean}
	facts := workflow.StageFacts{Kind: workflow.Decommission, Mode: workflow.SoftReset}
	s := newStored(t, reboot(), stage)
	s.world.Stage = facts
	s.look()
	s.ask(s.latest(), "boot-1")
	s.world.TargetBootID = "boot-2"
	s.do(operation.SessionOpened{AgentID: hostID, StateID: "s-1", BootID: "boot-2", OfTarget: true})
	s.result(s.latest(), operation.OutcomeSucceeded, map[string]string{"boot_id_before": "boot-1",
		"boot_id_after": "boot-2"})
	s.ended(operation.Succeeded, "")
	s = newStored(t, stage)
	s.world.Stage = facts
	s.look()
	s.ended(operation.Failed, "STAGE_CHECK_FAILED")
}

// TestATestOfTheHardwareLeavesNothingOpen: it changes nothing, so that one without a result is no unknown outcome and
// fences no machine, however its executor was lost.
func TestATestOfTheHardwareLeavesNothingOpen(t *testing.T) {
	begun := func(retries int) *stored {
		s := newStored(t, operation.Step{Kind: kind.TestHardware, MaxRetries: retries})
		s.op.Type = fleet.TestHardware
		h := host("s-1", true)
		h.Capabilities = append(h.Capabilities, "test_hardware")
		s.setAgents(h)
		s.look()
		if d := s.ask(s.latest(), "boot-1"); !d.Grant {
			t.Fatalf("no grant: %+v", d.Refusal)
		}
		return s
	}
	for name, lose := range map[string]func(s *stored){
		"its time is up": func(s *stored) { s.now = s.latest().Deadline; s.look() },
		"another memory": func(s *stored) {
			s.do(operation.SessionOpened{AgentID: hostID, StateID: "s-2", BootID: "boot-1", OfTarget: true})
		},
		"the agent cannot know": func(s *stored) { s.result(s.latest(), operation.OutcomeUnknown, nil) },
		"the memory went back": func(s *stored) {
			s.do(operation.SessionOpened{AgentID: hostID, StateID: "s-1", BootID: "boot-1", OfTarget: true, RolledBack: true})
		},
	} {
		s := begun(1)
		lose(s)
		s.ended(operation.Failed, "HARDWARE_TEST_UNFINISHED")
		if s.fence != "" || s.latest().State != operation.Done {
			t.Errorf("%s: fenced by %q, the command is %s", name, s.fence, s.latest().State)
		}
		if _, raised := s.causes[fleet.CauseHardware]; !raised {
			t.Errorf("%s: nobody is told: %v", name, s.causes)
		}
	}
	s := begun(0)
	s.do(operation.CancelAsked{Actor: "ann"})
	s.now = s.now.Add(operation.CancelPatience)
	s.look()
	if s.op.Phase != operation.Canceled || s.fence != "" {
		t.Errorf("a cancel without an answer: %s, fenced by %q", s.op.Phase, s.fence)
	}
	s = begun(1)
	s.do(operation.Resulted{CommandID: s.latest().ID, AgentID: hostID, Outcome: operation.OutcomeFailed,
		Reason: "HARDWARE_TEST_FAILED", Message: "disk S1: SMART", Evidence: map[string]string{evidence.HardwareTests: "[]"}})
	s.ended(operation.Failed, "HARDWARE_TEST_FAILED")
	if s.latest().Evidence[evidence.HardwareTests] == "" {
		t.Error("what was found is not kept with the command")
	}
}

// TestAKindWithoutProofIsNeverDone: a success of a kind that is not declared, and so names no evidence, does not count,
// whatever the executor adds to it.
func TestAKindWithoutProofIsNeverDone(t *testing.T) {
	t.Parallel()
	const newer kind.Kind = "of a newer version"
	s := newStored(t, operation.Step{Kind: newer})
	for i := range s.world.Candidates {
		s.world.Candidates[i].Capabilities = append(s.world.Candidates[i].Capabilities, string(newer))
	}
	s.look()
	if d := s.ask(s.latest(), ""); !d.Grant {
		t.Fatal(d.Refusal)
	}
	s.result(s.latest(), operation.OutcomeSucceeded, map[string]string{"": "done"})
	if s.op.Phase != operation.Failed || s.op.Error.Code != "EVIDENCE_MISSING" {
		t.Errorf("%s %+v", s.op.Phase, s.op.Error)
	}
}

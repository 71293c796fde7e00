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

// TestEveryReasonAgainstAGrant: each alone keeps a command that was sent from being granted, and says which it was.
func TestEveryReasonAgainstAGrant(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		bring func(s *stored, ask *operation.GrantAsked)
		want  string
	}{
		"nothing":             {func(*stored, *operation.GrantAsked) {}, ""},
		"another agent asks":  {func(_ *stored, a *operation.GrantAsked) { a.AgentID = siteID }, "GRANT_REFUSED"},
		"another memory asks": {func(_ *stored, a *operation.GrantAsked) { a.StateID = "s-2" }, "AGENT_MEMORY_LOST"},
		"another digest": {func(_ *stored, a *operation.GrantAsked) { a.Digest = []byte("digest of c-2") },
			"GRANT_REFUSED"},
		"no digest":        {func(_ *stored, a *operation.GrantAsked) { a.Digest = nil }, "GRANT_REFUSED"},
		"an older session": {func(s *stored, _ *operation.GrantAsked) { s.world.StaleEpoch = true }, "SESSION_SUPERSEDED"},
		"the deadline":     {func(s *stored, _ *operation.GrantAsked) { s.now = s.latest().Deadline }, "COMMAND_EXPIRED"},
		"just before it":   {func(s *stored, _ *operation.GrantAsked) { s.now = s.latest().Deadline.Add(-1) }, ""},
		"a frozen fleet": {func(s *stored, _ *operation.GrantAsked) {
			s.world.Machine.Freeze = fleet.Freeze{Comment: "audit", Actor: "x", Since: at}
		}, "FLEET_FROZEN"},
		"a quarantined machine": {func(s *stored, _ *operation.GrantAsked) { s.world.Machine.NodeState = fleet.Quarantined },
			"MACHINE_QUARANTINED"},
		"a flagged machine": {func(s *stored, _ *operation.GrantAsked) { s.world.Machine.Conditions[fleet.RMA] = true },
			"MACHINE_BLOCKED"},
		"a retired machine": {func(s *stored, _ *operation.GrantAsked) {
			s.world.Machine.Conditions[fleet.RetiredFlag] = true
		}, "MACHINE_BLOCKED"},
		"no slot, destructive": {func(s *stored, _ *operation.GrantAsked) { s.op.Destructive = true }, "BUDGET_REQUIRED"},
		"a slot, destructive": {func(s *stored, _ *operation.GrantAsked) {
			s.op.Destructive, s.world.SlotHeld = true,
				true
		}, ""},
		"an unreachable machine": {func(s *stored, _ *operation.GrantAsked) {
			s.world.Machine.Conditions[fleet.Reachable] = false
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := started(t, reconfig())
			cmd := s.latest()
			ask := operation.GrantAsked{CommandID: cmd.ID, AgentID: hostID, StateID: "s-1", BootID: "boot-1", Seq: 1,
				Digest: cmd.Digest}
			c.bring(s, &ask)
			d := s.do(ask)
			if d.Grant != (c.want == "") {
				t.Fatalf("granted: %t, refusal %+v", d.Grant, d.Refusal)
			}
			if c.want != "" && d.Refusal.Reason != c.want {
				t.Errorf("refused with %s, want %s", d.Refusal.Reason, c.want)
			}
		})
	}
}

// TestAForgottenMachineIsNotBlocked: the step that makes a provider forget a retired machine is granted; any other step
// of the same operation, and the same step of a flagged machine, is not.
func TestAForgottenMachineIsNotBlocked(t *testing.T) {
	forget := operation.Step{Kind: kind.ProviderAction, Mode: workflow.ForgetAction}
	for name, c := range map[string]struct {
		op       fleet.OperationType
		step     operation.Step
		flag     fleet.ConditionType
		refusing bool
	}{
		"it forgets":             {fleet.Decommission, forget, fleet.RetiredFlag, false},
		"another operation does": {fleet.RunPlan, forget, fleet.RetiredFlag, true},
		"it does something else": {fleet.Decommission, operation.Step{Kind: kind.ProviderAction, Mode: "release"},
			fleet.RetiredFlag, true},
		"it is no provider's": {fleet.Decommission,
			operation.Step{Kind: kind.Net, Mode: workflow.ForgetAction}, fleet.RetiredFlag, true},
		"the machine is sent away": {fleet.Decommission, forget, fleet.RMA, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStored(t, c.step)
			site := site("s-2")
			site.Capabilities = append(site.Capabilities, "provider_action", "provider:maas")
			s.setAgents(host("s-1", true), site)
			s.world.Provider, s.op.Type = "maas", c.op
			s.look()
			s.world.Machine.Conditions[c.flag] = true
			if d := s.ask(s.latest(), "boot-1"); d.Grant == c.refusing {
				t.Errorf("granted: %t, %+v", d.Grant, d.Refusal)
			}
		})
	}
}

// TestAFlagHoldsFromItsStepOn: what follows the step that flags the machine finds it blocked; what follows its return
// does not.
func TestAFlagHoldsFromItsStepOn(t *testing.T) {
	for _, known := range []bool{true, false} {
		s := newStored(t, operation.Step{Kind: kind.RMA}, reboot())
		if !known {
			s.world.Machine.Conditions = nil
		}
		s.look()
		if !s.conditions[fleet.RMA] {
			t.Fatal("the machine is not flagged")
		}
		if !known {
			continue
		}
		s.ended(operation.Failed, "MACHINE_BLOCKED")
		if s.op.Error.Retryable {
			t.Error("to be tried again, though the machine stays blocked")
		}
	}
	s := newStored(t, operation.Step{Kind: kind.RMA, Mode: "return"}, reboot())
	s.conditions[fleet.RMA], s.world.Machine.Conditions[fleet.RMA] = true, true
	s.look()
	if s.conditions[fleet.RMA] || s.latest() == nil || s.op.Steps[0].Evidence["rma"] != "returned" {
		t.Errorf("after its return: flagged %t, %s, %v", s.conditions[fleet.RMA], dump(s.latest()), s.op.Steps[0].Evidence)
	}
}

// TestEachKindIsProvenByItsOwnEvidence: a claim of success with the evidence of its kind ends the step; with any other
// it fails.
func TestEachKindIsProvenByItsOwnEvidence(t *testing.T) {
	keys := map[kind.Kind]string{
		kind.Net: evidence.ConfigDigest, kind.Netboot: evidence.BootNext,
		kind.Repave: evidence.ImageDigest,
		kind.Erase:  evidence.EraseMethod, kind.ResetDevices: evidence.DevicesReset,
		kind.TestHardware: evidence.HardwareTests,
		kind.SSH:          evidence.ExitCode,
		kind.PowerOff:     evidence.PowerOffSeenAt, kind.PowerOn: evidence.PowerOnSeenAt,
		kind.ProviderAction: evidence.ProviderSaid,
		kind.Verify:         evidence.NodeReadyAt, kind.Drain: evidence.NodeDrained,
		kind.Uncordon: evidence.NodeSchedulable,
	}
	for k, key := range keys {
		for _, said := range keys {
			if cluster := k == kind.Verify || k == kind.Drain ||
				k == kind.Uncordon; cluster {
				continue // held in TestClusterEvidence
			}
			s := newStored(t, operation.Step{Kind: k})
			h, site := host("s-1", true), site("s-2")
			h.Capabilities = append(h.Capabilities, "erase", "reset_devices", "test_hardware", "power")
			site.Capabilities = append(site.Capabilities, "provider_action", "provider:maas", "power", "ssh")
			s.setAgents(h, site)
			if k == kind.ProviderAction {
				s.world.Provider = "maas"
			}
			s.look()
			if s.latest() == nil {
				t.Fatalf("no command for %s: %s %+v", k, s.op.WaitReason, s.op.Error)
			}
			if d := s.ask(s.latest(), "boot-1"); !d.Grant {
				t.Fatalf("%s: %+v", k, d.Refusal)
			}
			s.result(s.latest(), operation.OutcomeSucceeded, map[string]string{said: "seen"})
			if said == key {
				s.ended(operation.Succeeded, "")
			} else {
				s.ended(operation.Failed, "EVIDENCE_MISSING")
			}
		}
	}
}

// TestAPasswordIsProvenByALogIn, by the agent of the machine's site, which must be able to change it.
func TestAPasswordIsProvenByALogIn(t *testing.T) {
	step := operation.Step{Kind: kind.WorkflowStage, Mode: workflow.RotateBMCPassword, Timeout: time.Minute}
	rotate := func(change func(*stored)) *stored {
		s := newStored(t, step)
		at := site("s-2")
		at.Capabilities = append(at.Capabilities, "provider:agent", fleet.ChangesBMCPasswords)
		s.setAgents(host("s-1", true), at)
		s.world.Provider = "agent"
		change(s)
		s.look()
		return s
	}
	for said, code := range map[string]string{evidence.BMCPasswordAcceptedAt: "", evidence.ConfigDigest: "EVIDENCE_MISSING"} {
		s := rotate(func(*stored) {})
		if c := s.latest(); c == nil || c.Kind != kind.BMCPassword || c.ExecutorRole != "site" {
			t.Fatalf("command %s", dump(c))
		}
		if d := s.ask(s.latest(), ""); !d.Grant {
			t.Fatal(d.Refusal)
		}
		s.result(s.latest(), operation.OutcomeSucceeded, map[string]string{said: "now"})
		s.ended(map[bool]operation.Phase{true: operation.Succeeded, false: operation.Failed}[code == ""], code)
	}
	rotate(func(s *stored) { s.world.Provider = "maas" }).ended(operation.Failed, "CAPABILITY_MISSING")
	rotate(func(s *stored) {
		old := site("s-2")
		old.Capabilities = append(old.Capabilities, "provider:agent")
		s.setAgents(old)
	}).ended(operation.Failed, "CAPABILITY_MISSING")
	nobody := rotate(func(s *stored) { s.setAgents(host("s-1", true)) })
	if nobody.latest() != nil || nobody.op.WaitReason != operation.WaitAgent {
		t.Errorf("without a site agent: %s", nobody.op.WaitReason)
	}
	nobody.now = nobody.now.Add(time.Minute)
	nobody.look()
	nobody.ended(operation.Failed, "AGENT_UNAVAILABLE")
}

// TestOnlyTheBootsOfABootAreNoted: the system before a command is noted where a boot must be told from it, and nowhere
// else.
func TestOnlyTheBootsOfABootAreNoted(t *testing.T) {
	if s := granted(t, reconfig()); s.latest().Evidence != nil {
		t.Errorf("a configuration notes %v", s.latest().Evidence)
	}
	if s := granted(t, reboot()); s.latest().Evidence[evidence.HostAgentID] != hostID ||
		s.latest().Evidence[evidence.HostBootID] != "boot-1" {
		t.Errorf("a reboot notes %v", s.latest().Evidence)
	}
}

// TestAMachineThatOnlyItsSiteReaches is reachable or not as its site's agent has found it; an agent of its own knows
// better.
func TestAMachineThatOnlyItsSiteReaches(t *testing.T) {
	run := func(own bool, reason string) *stored {
		s := newStored(t, operation.Step{Kind: kind.PowerOn})
		site := site("s-2")
		site.Capabilities = append(site.Capabilities, "power")
		s.setAgents(site)
		if !own {
			s.world.TargetAgentID, s.world.TargetBootID = "", ""
		}
		s.look()
		if d := s.ask(s.latest(), ""); !d.Grant {
			t.Fatal(d.Refusal)
		}
		c, outcome := s.latest(), operation.OutcomeFailed
		if reason == "" {
			outcome = operation.OutcomeSucceeded
		}
		s.do(operation.Resulted{CommandID: c.ID, AgentID: c.ExecutorID, StateID: c.ExecutorStateID, Outcome: outcome,
			Reason: reason, Evidence: map[string]string{evidence.PowerOnSeenAt: "now"}})
		return s
	}
	for reason, want := range map[string]bool{"": true, "BMC_UNREACHABLE": false} {
		if got, said := run(false, reason).conditions[fleet.Reachable]; !said || got != want {
			t.Errorf("%q: reachable %t, said %t", reason, got, said)
		}
		if _, said := run(true, reason).conditions[fleet.Reachable]; said {
			t.Errorf("%q: the site agent speaks for a machine that has an agent", reason)
		}
	}
	// The BMC has answered: why the work failed is no word about the machine's reach.
	if _, said := run(false, "BMC_NO_EFFECT").conditions[fleet.Reachable]; said {
		t.Error("work that failed is taken for a machine that is not reached")
	}
	s := granted(t, reconfig())
	s.world.TargetAgentID = ""
	s.result(s.latest(), operation.OutcomeFailed, nil)
	if _, said := s.conditions[fleet.Reachable]; said {
		t.Error("a host's command says whether its site reaches it")
	}
}

// TestBothBootsMustBeRead: for a machine without an agent the boot ids that the site's agent read are the evidence, if
// both were read and they differ.
func TestBothBootsMustBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		before, after string
		proves        bool
	}{
		"both": {"b-1", "b-2", true}, "the same": {"b-1", "b-1", false}, "only before": {"b-1", "", false},
		"only after": {"", "b-2", false}, "none": {"", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStored(t, reboot())
			s.setAgents(fleet.Candidate{AgentID: siteID, Role: "site", StateID: "s-2", Live: true, LastSeen: t0,
				Capabilities: []string{"provider:fake", "reboot"}})
			s.world.TargetAgentID, s.world.TargetBootID, s.world.TargetAgentLive = "", "", false
			s.look()
			if d := s.ask(s.latest(), ""); !d.Grant {
				t.Fatal(d.Refusal)
			}
			s.result(s.latest(), operation.OutcomeSucceeded,
				map[string]string{evidence.BootIDBefore: c.before, evidence.BootIDAfter: c.after})
			if c.proves {
				s.ended(operation.Succeeded, "")
				if s.op.Evidence[evidence.BootedBy] != operation.ByProvider {
					t.Errorf("evidence %v", s.op.Evidence)
				}
				return
			}
			if s.op.WaitReason != operation.WaitEvidence {
				t.Errorf("%s, waits for %q", s.op.Phase, s.op.WaitReason)
			}
		})
	}
}

// TestWhatTheSuccessOfABootCures: an operation that restarted the machine takes the causes away that a boot cures; one
// that did not does not.
func TestWhatTheSuccessOfABootCures(t *testing.T) {
	s := granted(t, reboot())
	s.do(operation.Resulted{CommandID: s.latest().ID, AgentID: hostID, Outcome: operation.OutcomeSucceeded,
		SessionBootID: "boot-2"})
	s.ended(operation.Succeeded, "")
	s = granted(t, reconfig())
	s.raise(fleet.CauseReboot, "")
	s.result(s.latest(), operation.OutcomeSucceeded, map[string]string{evidence.ConfigDigest: "sha256:1"})
	if _, left := s.causes[fleet.CauseReboot]; !left {
		t.Error("a configuration cures a failed reboot")
	}
	s = granted(t, reboot())
	s.raise(fleet.CauseReboot, "")
	s.do(operation.Resulted{CommandID: s.latest().ID, AgentID: hostID, Outcome: operation.OutcomeSucceeded,
		SessionBootID: "boot-2"})
	if _, left := s.causes[fleet.CauseReboot]; left {
		t.Error("a restart of a plan does not cure a failed reboot")
	}
}

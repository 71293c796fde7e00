package decider_test

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/hwid"
)

// actions are what may happen in every situation. Those that lead far come first.
func actions() []action {
	return slices.Concat(farActions(), askActions(), resultActions(), sessionActions(), worldActions(), timeActions())
}

func farActions() []action {
	return []action{
		{"looks", later(0)},
		{"asks", asks(func(*operation.GrantAsked) {})},
		{"succeeds", says(operation.OutcomeSucceeded, false, everyEvidence, "")},
		{"the site applies", changed(func(s *stored) { s.world.Boot.Applied = s.revision })},
		{"an installer comes", enters("a-installer-1", "repave", "erase", "reboot", "preflight", "reset_devices")},
		{"fails, retryable", says(operation.OutcomeFailed, true, nil, "")},
		{"claims", says(operation.OutcomeSucceeded, false, nil, "boot-1")},
		{"cancel", event(operation.CancelAsked{Actor: "x"})},
		{"half a minute", later(30 * time.Second)},
		{"the host goes", changed(live(false, "host"))},
		{"a new boot", comes("boot-2", "s-1", false)},
		{"the written system comes", writtenComes(digest)},
		{"fails", says(operation.OutcomeFailed, false, nil, "")},
		{"can write", reports(operation.OutcomeSucceeded, func(e *operation.Resulted) {
			e.Evidence = map[string]string{evidence.PreflightDisk: "QM0001"}
		})},
		{"it is due", when(theWake, 0, event(operation.Due{}))},
		{"five minutes", later(stepTimeout)},
		{"another installer comes", enters("a-installer-2", "repave", "erase", "reboot")},
	}
}

func askActions() []action {
	return []action{
		{"asks once more", asks(func(e *operation.GrantAsked) { e.Earlier = nil })},
		{"asks with an old number", asks(func(e *operation.GrantAsked) { e.Seq-- })},
		{"asks with another memory", asks(func(e *operation.GrantAsked) { e.StateID = "s-7" })},
		{"asks from another boot", asks(func(e *operation.GrantAsked) { e.SessionBootID = "boot-7" })},
		{"asks after a restart", asks(func(e *operation.GrantAsked) { e.BootID = "boot-2" })},
		{"asks with another digest", asks(func(e *operation.GrantAsked) { e.Digest = []byte("another") })},
		{"another agent asks", asks(func(e *operation.GrantAsked) { e.AgentID = "a-other" })},
		{"acknowledges", ofLatest(func(_ *stored, c operation.Command) operation.Event {
			return operation.AckedByAgent{CommandID: c.ID, AgentID: c.ExecutorID}
		})},
		{"another acknowledges", ofLatest(func(_ *stored, c operation.Command) operation.Event {
			return operation.AckedByAgent{CommandID: c.ID, AgentID: "a-other"}
		})},
		{"no slot", func(s *stored) operation.Decision {
			s.op.Destructive, s.world.SlotHeld = true, false
			return asks(func(*operation.GrantAsked) {})(s)
		}},
		{"frozen, and asks", func(s *stored) operation.Decision {
			s.world.Machine.Freeze = fleet.Freeze{Since: s.now, Actor: "x"}
			return asks(func(*operation.GrantAsked) {})(s)
		}},
		{"quarantined, and asks", func(s *stored) operation.Decision {
			s.world.Machine.NodeState = fleet.Quarantined
			return asks(func(*operation.GrantAsked) {})(s)
		}},
		{"flagged RMA, and asks", func(s *stored) operation.Decision {
			condition(fleet.RMA)(s)
			return asks(func(*operation.GrantAsked) {})(s)
		}},
		{"an old session asks", func(s *stored) operation.Decision {
			s.world.StaleEpoch = true
			return asks(func(*operation.GrantAsked) {})(s)
		}},
	}
}

func resultActions() []action {
	boots := func(before, after string) func(*operation.Resulted) {
		return func(e *operation.Resulted) {
			e.Evidence = map[string]string{evidence.BootIDBefore: before, evidence.BootIDAfter: after}
		}
	}
	because := func(reason string) func(*operation.Resulted) {
		return func(e *operation.Resulted) { e.Reason, e.Message = reason, "because of it" }
	}
	return []action{
		{"succeeds over a new boot", says(operation.OutcomeSucceeded, false, everyEvidence, "boot-2")},
		{"read two boots back", reports(operation.OutcomeSucceeded, boots("boot-1", "boot-2"))},
		{"read one boot back twice", reports(operation.OutcomeSucceeded, boots("boot-1", "boot-1"))},
		{"read the later boot back alone", reports(operation.OutcomeSucceeded, boots("", "boot-2"))},
		{"read the earlier boot back alone", reports(operation.OutcomeSucceeded, boots("boot-1", ""))},
		{"its probe is answered", reports(operation.OutcomeSucceeded, func(e *operation.Resulted) {
			e.Evidence = map[string]string{evidence.PowerOffSeenAt: "t", evidence.PowerOnSeenAt: "t",
				evidence.ProbeAnsweredAt: "t"}
		})},
		{"its probe is answered, and no switch was seen", reports(operation.OutcomeSucceeded, func(e *operation.Resulted) {
			e.Evidence = map[string]string{evidence.ProbeAnsweredAt: "t"}
		})},
		{"succeeds, with what else there may be", reports(operation.OutcomeSucceeded, func(e *operation.Resulted) {
			e.Evidence = maps.Clone(everyEvidence)
			delete(e.Evidence, evidence.ImageDigest)
			maps.Copy(e.Evidence, map[string]string{evidence.Deployed: "jammy", evidence.Redeployed: "t",
				evidence.NodeRemoved: "t", evidence.ClusterName: "prod", evidence.HardwareTests: "[]"})
		})},
		{"has a value under no key", reports(operation.OutcomeSucceeded, func(e *operation.Resulted) {
			e.Evidence = map[string]string{"": "x"}
		})},
		{"succeeds, and others switched", reports(operation.OutcomeSucceeded, func(e *operation.Resulted) {
			e.Evidence = maps.Clone(everyEvidence)
			e.Evidence[evidence.PowerByOthers] = "on at noon"
		})},
		{"succeeds in an old session", func(s *stored) operation.Decision {
			s.world.StaleEpoch = true
			return says(operation.OutcomeSucceeded, false, nil, "boot-2")(s)
		}},
		{"another agent succeeds", reports(operation.OutcomeSucceeded, func(e *operation.Resulted) {
			e.AgentID = "a-other"
		})},
		{"refuses", says(operation.OutcomeRefused, false, nil, "")},
		{"refuses for lack of a grant", reports(operation.OutcomeRefused, because("GRANT_REFUSED"))},
		{"refuses as expired", reports(operation.OutcomeRefused, because("COMMAND_EXPIRED"))},
		{"does not reach the BMC", reports(operation.OutcomeFailed, because("BMC_UNREACHABLE"))},
		{"stopped", says(operation.OutcomeCanceled, false, nil, "")},
		{"stopped, retryable", says(operation.OutcomeCanceled, true, nil, "")},
		{"does not know", says(operation.OutcomeUnknown, false, nil, "")},
		{"does not know, for a reason", reports(operation.OutcomeUnknown, because("EXECUTOR_PANICKED"))},
		{"does not know over a new boot", says(operation.OutcomeUnknown, false, nil, "boot-2")},
		{"reports a start", event(operation.Reported{Status: "started", Actor: "x"})},
		{"reports progress", event(operation.Reported{Status: "progress", Actor: "x"})},
		{"reports the end", event(operation.Reported{Status: "complete", Actor: "x"})},
		{"reports a failure", event(operation.Reported{Status: "failed", Error: "bad disk", Actor: "x"})},
		{"reports a failure without a message", event(operation.Reported{Status: "failed", Actor: "x"})},
	}
}

func sessionActions() []action {
	return []action{
		{"the same boot", comes("boot-1", "s-1", false)},
		{"a new memory", comes("boot-1", "s-2", false)},
		{"a new boot and memory", comes("boot-2", "s-2", false)},
		{"an old memory", comes("boot-1", "s-1", true)},
		{"another written system comes", writtenComes("sha256:other")},
		{"an installer that can do all comes", enters("a-installer-3", "repave", "erase", "reboot", "preflight",
			"reset_devices", "agentless", "data_disks")},
		{"the executor is back", returns(func(*operation.SessionOpened) {})},
		{"the executor is back with another memory", returns(func(e *operation.SessionOpened) { e.StateID = "s-8" })},
		{"the executor is back with an older copy", returns(func(e *operation.SessionOpened) { e.RolledBack = true })},
		{"the executor is back in another boot", returns(func(e *operation.SessionOpened) { e.BootID = "boot-8" })},
		{"an old session of the executor", func(s *stored) operation.Decision {
			s.world.StaleEpoch = true
			return returns(func(e *operation.SessionOpened) { e.StateID = "s-8" })(s)
		}},
		{"on other hardware", func(s *stored) operation.Decision {
			hosts(func(c *fleet.Candidate) { c.Hardware = hwid.Facts{Serial: "another"}.Fingerprint() })(s)
			return comes("boot-2", "s-1", false)(s)
		}},
		{"on hardware with another card", func(s *stored) operation.Decision {
			hosts(func(c *fleet.Candidate) {
				f := hwid.ParseFingerprint(c.Hardware)
				f.MACs = []string{"02:00:00:00:00:09"}
				c.Hardware = f.Fingerprint()
			})(s)
			return comes("boot-2", "s-1", false)(s)
		}},
		{"the site's session opens", event(operation.SessionOpened{AgentID: siteID, StateID: "s-site", BootID: "boot-s"})},
		{"from another image", func(s *stored) operation.Decision {
			hosts(func(c *fleet.Candidate) { c.ImageDigest = "sha256:0123" })(s)
			return comes("boot-2", "s-1", false)(s)
		}},
		{"from the written image", func(s *stored) operation.Decision {
			hosts(func(c *fleet.Candidate) { c.ImageDigest = "SHA256:5EED"[7:] })(s)
			return comes("boot-2", "s-1", false)(s)
		}},
		{"it phones home", changed(func(s *stored) {
			s.world.Boot.PhonedHome = map[string]string{evidence.PhonedHomeAt: "t", evidence.PhonedHomeFrom: "10.0.0.9",
				evidence.InstanceID: evidence.InstanceOf(s.op.ID)}
		})},
		{"another instance phones home", changed(func(s *stored) {
			s.world.Boot.PhonedHome = map[string]string{evidence.PhonedHomeAt: "t", evidence.InstanceID: "ingot-op-9"}
		})},
		{"cancel for a reason", event(operation.CancelAsked{Actor: "x", Why: "blocked"})},
		{"quarantine", event(operation.Quarantine{Reason: "CLONE_DETECTED", Message: "two of them"})},
		{"impostor", event(operation.Impostor{Reason: "IDENTITY_MISMATCH", Message: "another machine"})},
		{"is seen to be on", switched("on", time.Second)},
		{"is seen to be off", switched("off", time.Second)},
		{"was off at the start", func(s *stored) operation.Decision {
			return s.do(operation.PowerSeen{State: "off", At: s.op.StartedAt})
		}},
	}
}

func worldActions() []action {
	return []action{
		{"the site goes", changed(live(false, "site"))},
		{"the installer goes", changed(live(false, "installer"))},
		{"all go, for two minutes", func(s *stored) operation.Decision {
			live(false, "host", "site", "installer")(s)
			return later(2 * time.Minute)(s)
		}},
		{"the executor goes, not yet for long", gone(fleet.HandOverAfter - 1)},
		{"the executor goes, for so long that another may take over", gone(fleet.HandOverAfter)},
		{"the executor goes, almost for a minute", gone(operation.InstallerLost - 1)},
		{"the executor goes, for a minute", gone(operation.InstallerLost)},
		{"RMA", changed(condition(fleet.RMA))},
		{"retired", changed(condition(fleet.RetiredFlag))},
		{"in a cluster", changed(condition(fleet.InCustomerCluster))},
		{"unfit",
			changed(func(s *stored) { s.world.Unfit = &fleet.Refusal{Reason: "DISK_RULE_NO_UNIQUE_MATCH", Message: "none"} })},
		{"no installer image", changed(func(s *stored) { s.world.Boot.InstallerReady = false })},
		{"no segments", changed(func(s *stored) { s.world.Boot.Segments = 0 })},
		{"the site has not applied", changed(func(s *stored) { s.world.Boot.Applied = s.world.Boot.Revision - 1 })},
		{"agents can do nothing", changed(everyAgent(func(c *fleet.Candidate) { c.Capabilities = nil }))},
		{"agents can do all", changed(everyAgent(func(c *fleet.Candidate) {
			c.Capabilities = []string{"reboot", "netboot", "kexec", "repave", "reconfig", "join", "erase", "reset_devices",
				"test_hardware", "cluster", "ssh", "power", "provider_action", "preflight", "agentless", "data_disks",
				fleet.ChangesBMCPasswords, "provider:fake", "provider:agent", "provider:maas"}
		}))},
		{"agents have no session, ever", changed(func(s *stored) {
			live(false, "host", "site", "installer")(s)
			everyAgent(func(c *fleet.Candidate) { c.LastSeen = time.Time{} })(s)
		})},
		{"there are no agents", changed(func(s *stored) {
			s.setAgents()
			s.world.TargetAgentID, s.world.TargetBootID, s.world.TargetAgentLive = "", "", false
		})},
		{"is in another boot, unheard", quietly(func(s *stored) {
			live(true, "host")(s)
			hosts(func(c *fleet.Candidate) { c.BootID = "boot-9" })(s)
		})},
		{"the host is gone for an hour", changed(hosts(func(c *fleet.Candidate) {
			c.Live, c.LastSeen = false, c.LastSeen.Add(-time.Hour)
		}))},
		{"an installer is there, unheard", quietly(installerUnheard("op-1"))},
		{"another operation's installer is there", quietly(installerUnheard("op-9"))},
		{"the installer is assigned", changed(func(s *stored) {
			s.world.Boot.Mode, s.world.Boot.OperationID = operation.BootInstaller, s.op.ID
		})},
		{"another operation's installer is assigned", changed(func(s *stored) {
			s.world.Boot.Mode, s.world.Boot.OperationID = operation.BootInstaller, "op-9"
		})},
		{"an installer has enrolled", changed(func(s *stored) { s.world.Boot.InstallerAgentID = "a-installer-5" })},
		{"retired, in a full decommission", changed(func(s *stored) {
			condition(fleet.RetiredFlag)(s)
			s.world.Stage.Mode = workflow.FullDecommission
		})},
		{"simulated", changed(hosts(func(c *fleet.Candidate) { c.Simulated = true }))},
		{"driven by MAAS", changed(func(s *stored) { s.world.Provider = workflow.ProviderMAAS })},
		{"driven by agents", changed(func(s *stored) { s.world.Provider = fleet.AgentProvider })},
		{"attempts count", changed(func(s *stored) {
			s.world.Install = operation.Install{Counted: true, Failed: 1, Max: 3}
		})},
		{"the last attempt", changed(func(s *stored) {
			s.world.Install = operation.Install{Counted: true, Failed: 2, Max: 3}
		})},
	}
}

// timeActions bring the clock to each time on which something depends, and to the moment before it.
func timeActions() []action {
	out := []action{
		{"it is almost due", when(theWake, operation.ClockSlack, event(operation.Due{}))},
		{"it is not yet due", when(theWake, operation.ClockSlack+1, event(operation.Due{}))},
		{"the wake, looked at late", when(theWake, -time.Hour, event(operation.Evaluate{}))},
	}
	for name, moment := range map[string]func(*stored) time.Time{
		"the deadline": theDeadline, "the step's limit": theLimit, "the end of patience with the installer": theInstaller,
		"the end of patience with a cancel": theCancel, "the retry": theRetry,
	} {
		ask := asks(func(*operation.GrantAsked) {})
		back := func(of time.Duration, then func(*stored) operation.Decision) func(*stored) operation.Decision {
			return when(moment, 0, func(s *stored) operation.Decision {
				s.world.CaughtUpAt = s.now.Add(of)
				return then(s)
			})
		}
		out = append(out,
			action{name, when(moment, 0, event(operation.Evaluate{}))},
			action{"before " + name, when(moment, 1, event(operation.Evaluate{}))},
			action{name + ", asks", when(moment, 0, ask)},
			action{"before " + name + ", asks", when(moment, 1, ask)},
			action{name + ", while agents come back", back(time.Minute, event(operation.Evaluate{}))},
			action{name + ", as agents are back", back(0, event(operation.Evaluate{}))},
			action{name + ", asks while agents come back", back(10*time.Second, ask)},
			action{name + ", refuses as expired", back(time.Minute, reports(operation.OutcomeRefused,
				func(e *operation.Resulted) { e.Reason, e.Message = "COMMAND_EXPIRED", "too late" }))},
			action{name + ", a new boot", when(moment, 0, comes("boot-2", "s-1", false))},
		)
	}
	slices.SortFunc(out[3:], func(a, b action) int { return strings.Compare(a.name, b.name) })
	return out
}

// The times on which something depends; zero where the situation has none such.

func theWake(s *stored) time.Time { return s.op.WakeAt }

func theDeadline(s *stored) time.Time {
	if c := s.latest(); c != nil {
		return c.Deadline
	}
	return time.Time{}
}

func theStep(s *stored) operation.Step { return s.op.Steps[s.op.CurrentStep] }

func theRetry(s *stored) time.Time { return theStep(s).RetryAt }

func theLimit(s *stored) time.Time {
	from := theStep(s).StartedAt
	if again := theStep(s).RetryAt; again.After(from) {
		from = again
	}
	return from.Add(theStep(s).Timeout)
}

func theInstaller(s *stored) time.Time {
	patience := min(5*time.Minute, theStep(s).Timeout/3)
	switch c := s.latest(); {
	case c == nil:
		return time.Time{}
	case !c.FinishedAt.IsZero():
		return c.FinishedAt.Add(patience)
	default:
		return c.GrantedAt.Add(patience)
	}
}

func theCancel(s *stored) time.Time { return s.op.CancelRequested.Add(operation.CancelPatience) }

// when moves the clock to a moment, or so long before it, and lets something happen then. At a moment that has passed
// nothing happens.
func when(
	moment func(*stored) time.Time, before time.Duration, then func(*stored) operation.Decision,
) func(*stored) operation.Decision {
	return func(s *stored) operation.Decision {
		t := moment(s).Add(-before)
		if t.Before(s.now) {
			return operation.Decision{}
		}
		s.now = t
		return then(s)
	}
}

// reports brings a result of the latest command's executor.
func reports(o operation.Outcome, spoil func(*operation.Resulted)) func(*stored) operation.Decision {
	return ofLatest(func(_ *stored, c operation.Command) operation.Event {
		e := operation.Resulted{CommandID: c.ID, AgentID: c.ExecutorID, StateID: c.ExecutorStateID, Outcome: o}
		spoil(&e)
		return e
	})
}

// returns opens a session of the latest command's executor, with the memory and in the boot that it had.
func returns(spoil func(*operation.SessionOpened)) func(*stored) operation.Decision {
	return ofLatest(func(s *stored, c operation.Command) operation.Event {
		e := operation.SessionOpened{AgentID: c.ExecutorID, StateID: c.ExecutorStateID,
			OfTarget: c.ExecutorRole == "host", Installer: c.ExecutorRole == "installer"}
		for _, a := range s.world.Candidates {
			if a.AgentID == c.ExecutorID {
				e.BootID = a.BootID
			}
		}
		spoil(&e)
		everyAgent(func(a *fleet.Candidate) {
			if a.AgentID == c.ExecutorID {
				a.Live, a.LastSeen, a.BootID = true, s.now, e.BootID
			}
		})(s)
		return e
	})
}

// quietly changes something in the world that no event tells of.
func quietly(change func(*stored)) func(*stored) operation.Decision {
	return func(s *stored) operation.Decision { change(s); return operation.Decision{} }
}

// installerUnheard adds an installer of an operation whose session has not been told of.
func installerUnheard(operationID string) func(*stored) {
	return func(s *stored) {
		s.world.Candidates = append(slices.Clone(s.world.Candidates), fleet.Candidate{
			AgentID: "a-installer-6", Role: "installer", StateID: "s-6", BootID: "boot-6", Live: true, LastSeen: s.now,
			OperationID: operationID, Capabilities: []string{"repave", "erase", "reboot"},
		})
	}
}

// gone takes the session of the latest command's executor away, and looks after that time.
func gone(silence time.Duration) func(*stored) operation.Decision {
	return func(s *stored) operation.Decision {
		c := s.latest()
		everyAgent(func(a *fleet.Candidate) {
			if c != nil && a.AgentID == c.ExecutorID {
				a.Live, a.LastSeen = false, s.now
			}
		})(s)
		return later(silence)(s)
	}
}

// switched is a change of the machine's power that its BMC shows.
func switched(state string, ago time.Duration) func(*stored) operation.Decision {
	return func(s *stored) operation.Decision {
		s.now = s.now.Add(time.Minute)
		return s.do(operation.PowerSeen{State: state, At: s.now.Add(-ago)})
	}
}

// everyAgent changes all agents that the machine has.
func everyAgent(change func(*fleet.Candidate)) func(*stored) {
	return func(s *stored) {
		s.world.Candidates = slices.Clone(s.world.Candidates)
		for i := range s.world.Candidates {
			change(&s.world.Candidates[i])
		}
	}
}

// hosts changes the agents of systems on the machine's disk.
func hosts(change func(*fleet.Candidate)) func(*stored) {
	return everyAgent(func(c *fleet.Candidate) {
		if c.Role == "host" {
			change(c)
		}
	})
}

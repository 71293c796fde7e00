package decider_test

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/decider"
)

var (
	phases = []operation.Phase{operation.Pending, operation.Running, operation.Succeeded, operation.Failed,
		operation.Canceled}

	commandStates = []operation.CommandState{
		operation.Queued, operation.Sent, operation.Acked, operation.Granted, operation.Done, operation.CommandCanceled,
		operation.Expired, operation.Unknown,
	}
)

// noCommand stands for an operation without a command.
const noCommand = operation.CommandState("none")

// possible reports whether a store can hold this pair. The others are refused by the rules that checkStored holds.
func possible(p operation.Phase, c operation.CommandState) bool {
	settled := c == noCommand || operation.IsFinalCommand(c)
	switch p {
	case operation.Pending:
		return c == noCommand
	case operation.Running:
		return c != operation.Unknown
	case operation.Succeeded:
		return c == noCommand || c == operation.Done
	case operation.Canceled:
		return settled && c != operation.Unknown && c != operation.Expired
	default:
		return settled
	}
}

// at makes an operation in a phase with its command in a state.
func at(
	t *testing.T, p operation.Phase, cs operation.CommandState, k kind.Kind, variant func(*stored),
) *stored {
	t.Helper()
	s := newStored(t, operation.Step{Kind: k, MaxRetries: 1}, reboot())
	s.op.Phase = p
	if p != operation.Pending {
		s.op.StartedAt, s.op.Steps[0].State, s.op.Steps[0].StartedAt = t0, operation.StepRunning, t0
	}
	if operation.IsTerminal(p) {
		s.op.WakeAt, s.op.FinishedAt, s.current = time.Time{}, t0, false
		if p == operation.Succeeded {
			s.op.Steps = s.op.Steps[:1]
			s.op.Steps[0].State = operation.StepSucceeded
		} else {
			s.op.Steps[0].State = operation.StepFailed
		}
	}
	if cs != noCommand {
		c := &operation.Command{
			ID: "c-1", Kind: k, Attempt: 1, State: cs, ExecutorID: hostID, ExecutorRole: "host", ExecutorStateID: "s-1",
			Digest: []byte("digest of c-1"), Deadline: t0.Add(stepTimeout), SentAt: t0, BootIDBefore: "boot-1",
		}
		if cs == operation.Queued {
			c.ExecutorStateID, c.SentAt = "", time.Time{}
		}
		if operation.IsFinalCommand(cs) {
			c.FinishedAt = t0
		}
		if cs == operation.Unknown {
			s.fence = c.ID
		}
		s.commands = []*operation.Command{c}
	}
	variant(s)
	return s
}

// events are representative ones of every type, good and bad.
func events() []operation.Event {
	out := []operation.Event{
		operation.Evaluate{}, operation.CancelAsked{Actor: "somebody"},
		operation.Quarantine{Reason: "CLONE_DETECTED", Message: "two of them"},
		operation.AckedByAgent{CommandID: "c-1", AgentID: hostID}, operation.AckedByAgent{CommandID: "c-1", AgentID: siteID},
		operation.AckedByAgent{CommandID: "c-0", AgentID: hostID},
	}
	good := operation.GrantAsked{CommandID: "c-1", AgentID: hostID, StateID: "s-1", BootID: "boot-1", Seq: 1,
		Digest: []byte("digest of c-1")}
	for _, spoil := range []func(*operation.GrantAsked){
		func(*operation.GrantAsked) {},
		func(g *operation.GrantAsked) { g.CommandID = "c-0" },
		func(g *operation.GrantAsked) { g.AgentID = siteID },
		func(g *operation.GrantAsked) { g.StateID = "s-2" },
		func(g *operation.GrantAsked) { g.Seq = 0 },
		func(g *operation.GrantAsked) { g.Digest = []byte("another") },
		func(g *operation.GrantAsked) { g.BootID = "boot-2" },
		func(g *operation.GrantAsked) { g.BootID, g.SessionBootID = "boot-2", "boot-1" },
	} {
		g := good
		spoil(&g)
		out = append(out, g)
	}
	outcomes := []operation.Outcome{operation.OutcomeSucceeded, operation.OutcomeFailed, operation.OutcomeRefused,
		operation.OutcomeCanceled, operation.OutcomeUnknown}
	for _, o := range outcomes {
		for _, retryable := range []bool{false, true} {
			for _, boot := range []string{"boot-1", "boot-2"} {
				r := operation.Resulted{CommandID: "c-1", AgentID: hostID, Outcome: o, Retryable: retryable, SessionBootID: boot}
				out = append(out, r)
				r.Evidence = map[string]string{"config_digest": "sha256:1", "image_digest": "sha256:2", "boot_next": "1"}
				out = append(out, r)
			}
		}
		out = append(out, operation.Resulted{CommandID: "c-1", AgentID: siteID, Outcome: o})
	}
	for _, agent := range []string{hostID, siteID} {
		for _, state := range []string{"s-1", "s-2"} {
			for _, boot := range []string{"boot-1", "boot-2"} {
				for _, back := range []bool{false, true} {
					out = append(out, operation.SessionOpened{AgentID: agent, StateID: state, BootID: boot, OfTarget: agent == hostID,
						RolledBack: back})
				}
			}
		}
	}
	return out
}

// variants are the circumstances in which every event is brought to every state.
func variants() map[string]func(*stored) {
	later := func(d time.Duration) func(*stored) { return func(s *stored) { s.now = t0.Add(d) } }
	return map[string]func(*stored){
		"fresh":            func(*stored) {},
		"after a minute":   later(time.Minute),
		"at the deadline":  later(stepTimeout),
		"next day":         later(24 * time.Hour),
		"nobody there":     func(s *stored) { s.setAgents() },
		"host silent":      func(s *stored) { later(10 * time.Minute)(s); s.setAgents(host("s-1", false)) },
		"site takes over":  func(s *stored) { later(time.Minute)(s); s.setAgents(host("s-1", false), site("s-9")) },
		"no capability":    func(s *stored) { s.world.Candidates[0].Capabilities = nil },
		"new boot":         func(s *stored) { s.world.TargetBootID = "boot-2" },
		"old session":      func(s *stored) { s.world.StaleEpoch = true },
		"quarantined":      func(s *stored) { s.world.Machine.NodeState = fleet.Quarantined },
		"flagged":          func(s *stored) { s.world.Machine.Conditions[fleet.RMA] = true },
		"number seen":      func(s *stored) { s.lastGrant[[2]string{hostID, "s-1"}] = 5 },
		"no retries":       func(s *stored) { s.op.Steps[0].MaxRetries = 0 },
		"cancel requested": func(s *stored) { canceling(s) },
		"cancel overdue":   func(s *stored) { canceling(s); later(operation.CancelPatience)(s) },
		"claimed":          func(s *stored) { claimed(s) },
		"claimed, proven":  func(s *stored) { claimed(s); s.world.TargetBootID = "boot-2" },
		"claimed, overdue": func(s *stored) { claimed(s); later(stepTimeout)(s) },
		"retry waits":      func(s *stored) { s.op.Steps[0].RetryAt = t0.Add(time.Second) },
	}
}

// A cancel is only ever pending while a granted command runs.
func canceling(s *stored) {
	if c := s.latest(); c != nil && c.State == operation.Granted {
		s.op.CancelRequested = t0
	}
}

func claimed(s *stored) {
	if c := s.latest(); c != nil && c.Kind == kind.Reboot &&
		(c.State == operation.Granted || c.State == operation.Unknown) {
		c.ClaimedAt, c.Outcome = t0, operation.OutcomeSucceeded
	}
}

// Every event in every phase with every command state under every circumstance: handled or refused, by the rules that
// stored holds, without a panic.
func TestEveryEventEverywhere(t *testing.T) {
	n, all, circumstances := 0, events(), variants()
	kinds := []kind.Kind{kind.Reboot, kind.Repave}
	for _, p := range phases {
		for _, cs := range append(commandStates, noCommand) {
			if !possible(p, cs) {
				continue
			}
			for name, variant := range circumstances {
				for _, k := range kinds {
					for _, e := range all {
						if _, result := e.(operation.Resulted); !result && k != kind.Reboot {
							continue // only results are told apart by kind
						}
						n++
						s := at(t, p, cs, k, variant)
						s.t = named{t, name}
						s.do(e)
						s.do(e) // once more: it may come twice
					}
				}
			}
		}
	}
	t.Logf("%d cases", n)
	if n < 30_000 {
		t.Error("too few")
	}
}

// named says under which circumstance a case failed; the rest is in its message.
type named struct {
	*testing.T
	name string
}

func (n named) Fatalf(format string, args ...any) {
	n.Helper()
	n.T.Fatalf(n.name+": "+format, args...)
}

// Pairs that no store can hold must not become others by an event to a finished operation.
func TestFinishedOperationsAreDeaf(t *testing.T) {
	for _, p := range phases {
		if !operation.IsTerminal(p) {
			continue
		}
		for _, cs := range commandStates {
			for _, e := range events() {
				s := at(t, p, cs, kind.Reboot, func(*stored) {})
				d := decider.Decide(s.snapshot(e), e, s.now)
				if d.OpChanged || d.Grant || d.NewCommand != nil || d.Machine.ClearCurrent || d.Machine.Fence != "" ||
					d.Op.Phase != p {
					t.Fatalf("%T %+v in %s/%s: %+v", e, e, p, cs, d)
				}
			}
		}
	}
}

// TestEventsOfAnotherCommandMoveNothing: an event about a command other than the one that was read grants nothing and
// changes nothing but the number of the asking memory.
func TestEventsOfAnotherCommandMoveNothing(t *testing.T) {
	for _, cs := range commandStates {
		p := operation.Running
		if cs == operation.Unknown {
			p = operation.Failed
		}
		s := at(t, p, cs, kind.Reboot, func(*stored) {})
		for _, e := range []operation.Event{
			operation.AckedByAgent{CommandID: "c-0", AgentID: hostID},
			operation.Resulted{CommandID: "c-0", AgentID: hostID, Outcome: operation.OutcomeSucceeded},
			operation.Resulted{CommandID: "c-0", AgentID: hostID, Outcome: operation.OutcomeFailed},
			operation.GrantAsked{CommandID: "c-0", AgentID: hostID, StateID: "s-1", BootID: "boot-1", Seq: 1,
				Digest: []byte("digest of c-1")},
		} {
			snap := s.snapshot(operation.Evaluate{})
			d := decider.Decide(snap, e, s.now)
			_, acknowledges := e.(operation.AckedByAgent)
			if d.Changed || d.Grant || acknowledges == (d.Refusal != nil) {
				t.Errorf("%T of another command than %s: %+v", e, cs, d)
			}
		}
	}
}

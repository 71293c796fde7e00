package decider_test

import (
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
)

var writeAnswers = flag.Bool("write-answers", false,
	"write testdata/answers.txt anew, when an answer is meant to change")

// mostSituations bounds how many situations of one operation are visited.
const mostSituations = 30

// action is something that happens to an operation, with a name.
type action struct {
	name string
	do   func(s *stored) operation.Decision
}

// everyEvidence is what a command of any kind has to show.
var everyEvidence = map[string]string{
	evidence.BootNext: "1", evidence.ImageDigest: digest, evidence.EraseMethod: "sanitize", evidence.DevicesReset: "1",
	evidence.ExitCode:       "0",
	evidence.PowerOffSeenAt: "t", evidence.PowerOnSeenAt: "t", evidence.JoinedCluster: "prod", evidence.NodeReadyAt: "t",
	evidence.NodeDrained: "t", evidence.NodeSchedulable: "t", evidence.ProviderSaid: "ok",
	evidence.ConfigDigest: "sha256:1",
	evidence.BootIDBefore: "boot-1", evidence.BootIDAfter: "boot-2",
}

func later(d time.Duration) func(*stored) operation.Decision {
	return func(s *stored) operation.Decision { s.now = s.now.Add(d); return s.look() }
}

// changed looks after something in the world has changed.
func changed(change func(*stored)) func(*stored) operation.Decision {
	return func(s *stored) operation.Decision { change(s); return s.look() }
}

// ofLatest brings an event about the latest command, or about one that does not exist.
func ofLatest(event func(s *stored, c operation.Command) operation.Event) func(*stored) operation.Decision {
	return func(s *stored) operation.Decision {
		c := operation.Command{ID: "c-0", ExecutorID: hostID, ExecutorStateID: "s-1"}
		if s.latest() != nil {
			c = *s.latest()
		}
		return s.do(event(s, c))
	}
}

func asks(spoil func(*operation.GrantAsked)) func(*stored) operation.Decision {
	return ofLatest(func(s *stored, c operation.Command) operation.Event {
		e := operation.GrantAsked{
			CommandID: c.ID, AgentID: c.ExecutorID, StateID: c.ExecutorStateID, BootID: s.world.TargetBootID, Digest: c.Digest,
			Seq: s.lastGrant[[2]string{c.ExecutorID, c.ExecutorStateID}] + 1, Earlier: []uint64{c.GrantSeq},
		}
		spoil(&e)
		return e
	})
}

func says(o operation.Outcome, retryable bool, seen map[string]string, boot string) func(*stored) operation.Decision {
	return ofLatest(func(_ *stored, c operation.Command) operation.Event {
		return operation.Resulted{
			CommandID: c.ID, AgentID: c.ExecutorID, StateID: c.ExecutorStateID, Outcome: o, Retryable: retryable,
			Evidence: maps.Clone(seen), SessionBootID: boot,
		}
	})
}

func event(e operation.Event) func(*stored) operation.Decision {
	return func(s *stored) operation.Decision { return s.do(e) }
}

// live takes the agents of some roles away, or brings them back.
func live(is bool, roles ...string) func(*stored) {
	return func(s *stored) {
		s.world.Candidates = slices.Clone(s.world.Candidates)
		for i := range s.world.Candidates {
			if c := &s.world.Candidates[i]; slices.Contains(roles, c.Role) {
				c.Live, c.LastSeen = is, s.now
				s.world.TargetAgentLive = s.world.TargetAgentLive && is || is && c.AgentID == s.world.TargetAgentID
			}
		}
	}
}

// comes opens a session of the machine's own system.
func comes(boot, state string, back bool) func(*stored) operation.Decision {
	return func(s *stored) operation.Decision {
		id := s.world.TargetAgentID
		if id == "" {
			id = hostID
		}
		live(true, "host")(s)
		for i := range s.world.Candidates {
			if c := &s.world.Candidates[i]; c.Role == "host" {
				c.BootID, c.StateID = boot, state
			}
		}
		s.world.TargetBootID, s.world.TargetAgentID, s.world.TargetAgentLive = boot, id, true
		return s.do(operation.SessionOpened{AgentID: id, StateID: state, BootID: boot, OfTarget: true, RolledBack: back})
	}
}

// enters opens the session of an installer, of the same or of another than before.
func enters(id string, capabilities ...string) func(*stored) operation.Decision {
	return func(s *stored) operation.Decision {
		live(false, "host", "installer")(s)
		s.world.Candidates = append(s.world.Candidates, fleet.Candidate{
			AgentID: id, Role: "installer", StateID: "s-" + id, BootID: "boot-" + id, Live: true, LastSeen: s.now,
			OperationID: s.op.ID, Capabilities: capabilities,
		})
		s.world.Boot.InstallerAgentID, s.world.TargetBootID = id, "boot-"+id
		return s.do(operation.SessionOpened{AgentID: id, StateID: "s-" + id, BootID: "boot-" + id, Installer: true})
	}
}

func writtenComes(image string) func(*stored) operation.Decision {
	return func(s *stored) operation.Decision {
		m := metal{stored: s}
		m.world.Candidates = slices.Clone(m.world.Candidates)
		m.newSystemComes(image)
		return s.look()
	}
}

func condition(c fleet.ConditionType) func(*stored) {
	return func(s *stored) {
		s.world.Machine.Conditions = maps.Clone(s.world.Machine.Conditions)
		s.world.Machine.Conditions[c] = true
	}
}

// actions are what may happen in every situation. Those that lead far come first.
func actions() []action {
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
		{"five minutes", later(stepTimeout)},
		{"another installer comes", enters("a-installer-2", "repave", "erase", "reboot")},
		{"asks once more", asks(func(e *operation.GrantAsked) { e.Earlier = nil })},
		{"asks with an old number", asks(func(e *operation.GrantAsked) { e.Seq-- })},
		{"asks with another memory", asks(func(e *operation.GrantAsked) { e.StateID = "s-7" })},
		{"asks from another boot", asks(func(e *operation.GrantAsked) { e.SessionBootID = "boot-7" })},
		{"asks with another digest", asks(func(e *operation.GrantAsked) { e.Digest = []byte("another") })},
		{"acknowledges", ofLatest(func(_ *stored, c operation.Command) operation.Event {
			return operation.AckedByAgent{CommandID: c.ID, AgentID: c.ExecutorID}
		})},
		{"another acknowledges", ofLatest(func(_ *stored, c operation.Command) operation.Event {
			return operation.AckedByAgent{CommandID: c.ID, AgentID: "a-other"}
		})},
		{"succeeds over a new boot", says(operation.OutcomeSucceeded, false, everyEvidence, "boot-2")},
		{"refuses", says(operation.OutcomeRefused, false, nil, "")},
		{"stopped", says(operation.OutcomeCanceled, false, nil, "")},
		{"does not know", says(operation.OutcomeUnknown, false, nil, "")},
		{"does not know over a new boot", says(operation.OutcomeUnknown, false, nil, "boot-2")},
		{"cancel for a reason", event(operation.CancelAsked{Actor: "x", Why: "blocked"})},
		{"quarantine", event(operation.Quarantine{Reason: "CLONE_DETECTED", Message: "two of them"})},
		{"impostor", event(operation.Impostor{Reason: "IDENTITY_MISMATCH", Message: "another machine"})},
		{"the same boot", comes("boot-1", "s-1", false)},
		{"a new memory", comes("boot-1", "s-2", false)},
		{"a new boot and memory", comes("boot-2", "s-2", false)},
		{"an old memory", comes("boot-1", "s-1", true)},
		{"another written system comes", writtenComes("sha256:other")},
		{"the site goes", changed(live(false, "site"))},
		{"the installer goes", changed(live(false, "installer"))},
		{"all go, for two minutes", func(s *stored) operation.Decision {
			live(false, "host", "site", "installer")(s)
			return later(2 * time.Minute)(s)
		}},
		{"RMA", changed(condition(fleet.RMA))},
		{"retired", changed(condition(fleet.RetiredFlag))},
		{"in a cluster", changed(condition(fleet.InCustomerCluster))},
		{"no slot", func(s *stored) operation.Decision {
			s.op.Destructive, s.world.SlotHeld = true, false
			return asks(func(*operation.GrantAsked) {})(s)
		}},
		{"quarantined, and asks", func(s *stored) operation.Decision {
			s.world.Machine.NodeState = fleet.Quarantined
			return asks(func(*operation.GrantAsked) {})(s)
		}},
		{"an old session asks", func(s *stored) operation.Decision {
			s.world.StaleEpoch = true
			return asks(func(*operation.GrantAsked) {})(s)
		}},
		{"unfit",
			changed(func(s *stored) { s.world.Unfit = &fleet.Refusal{Reason: "DISK_RULE_NO_UNIQUE_MATCH", Message: "none"} })},
		{"no installer image", changed(func(s *stored) { s.world.Boot.InstallerReady = false })},
		{"no segments", changed(func(s *stored) { s.world.Boot.Segments = 0 })},
		{"reports a start", event(operation.Reported{Status: "started", Actor: "x"})},
		{"reports progress", event(operation.Reported{Status: "progress", Actor: "x"})},
		{"reports the end", event(operation.Reported{Status: "complete", Actor: "x"})},
		{"reports a failure", event(operation.Reported{Status: "failed", Error: "bad disk", Actor: "x"})},
	}
}

// starts are operations of every kind, on machines of every kind.
func starts(t *testing.T) map[string]func() *stored {
	out := map[string]func() *stored{}
	capable := func(steps ...operation.Step) func() *stored {
		return func() *stored {
			s := newStored(t, steps...)
			h, at := host("s-1", true), site("s-9")
			h.Capabilities = append(h.Capabilities, "join", "erase", "reset_devices", "test_hardware")
			at.Capabilities = append(at.Capabilities, "cluster", "ssh", "power", "netboot", "reboot")
			s.setAgents(h, at)
			return s
		}
	}
	for _, k := range []kind.Kind{
		kind.Reboot, kind.Netboot, kind.Repave, kind.Net, kind.WaitForAgent,
		kind.Erase, kind.ResetDevices, kind.TestHardware, kind.SSH, kind.Join, kind.Verify,
		kind.Drain,
		kind.Uncordon, kind.ProviderAction, kind.RMA,
	} {
		out[string(k)] = capable(step(k, 1), reconfig())
	}
	out["reboot bmc"] = capable(operation.Step{Kind: kind.Reboot, Mode: "bmc", MaxRetries: 1})
	out["rma return"] = capable(operation.Step{Kind: kind.RMA, Mode: "return"})
	for _, mode := range []string{
		workflow.ReportedInstall, workflow.AwaitReplacement, workflow.NothingToDrain, workflow.PowerOffNode,
		workflow.SwitchOn, workflow.SwitchOff,
		workflow.DrainNode, workflow.VerifyNode,
	} {
		out["stage "+mode] = capable(operation.Step{Kind: kind.WorkflowStage, Mode: mode, MaxRetries: 1})
	}
	for _, way := range []string{"auto", "bmc", "kexec", "bootnext", "media"} {
		out["metal "+way] = func() *stored { return newMetal(t, way, realHost("kexec", "netboot")).stored }
		out["bare metal "+way] = func() *stored {
			s := newMetal(t, way).stored
			s.world.Install = operation.Install{Counted: true, Max: 2}
			return s
		}
	}
	out["metal erase"] = func() *stored {
		s := newMetal(t, "auto", realHost("kexec")).stored
		s.op.Type, s.op.Steps[1].Kind, s.op.Steps[2].Kind = fleet.RunPlan, kind.Erase, kind.ResetDevices
		return s
	}
	out["rescue"] = func() *stored {
		s := newMetal(t, "auto", realHost("netboot")).stored
		s.op.Type, s.op.Steps = fleet.Netboot, []operation.Step{s.op.Steps[0], s.op.Steps[2]}
		return s
	}
	out["provider forgets"] = capable(operation.Step{Kind: kind.ProviderAction, Mode: workflow.ForgetAction})
	forgets := out["provider forgets"]
	out["provider forgets"] = func() *stored { s := forgets(); s.op.Type = fleet.Decommission; return s }
	return out
}

func (s *stored) copied() *stored {
	c := *s
	c.commands, c.world.Candidates = slices.Clone(s.commands), slices.Clone(s.world.Candidates)
	c.conditions, c.causes, c.lastGrant = maps.Clone(s.conditions), maps.Clone(s.causes), maps.Clone(s.lastGrant)
	return &c
}

// situation names what tells two moments of an operation apart.
func (s *stored) situation() string {
	out := fmt.Sprintf("%s step %d %s", s.op.Phase, s.op.CurrentStep, s.op.WaitReason)
	if c := s.latest(); c != nil {
		out += fmt.Sprintf(", %s %s of %s %s", c.Kind, c.State, c.ExecutorRole, c.Outcome)
		if !c.ClaimedAt.IsZero() {
			out += " claimed"
		}
	}
	if !s.op.CancelRequested.IsZero() {
		out += ", cancelling"
	}
	return out
}

// TestEveryAnswerIsAsItWas: from operations of every kind, everything that may happen is brought to every situation
// that is reached by it, and each answer is the one that testdata/answers.txt has the sum of. Every answer is held
// against the rules too. A change that is meant shows there which situations it touches.
func TestEveryAnswerIsAsItWas(t *testing.T) {
	const path = "testdata/answers.txt"
	var lines []string
	begin := starts(t)
	for _, name := range slices.Sorted(maps.Keys(begin)) {
		lines = append(lines, answers(t, name, begin[name]())...)
	}
	text := strings.Join(lines, "\n") + "\n"
	if *writeAnswers {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	was := map[string]bool{}
	for line := range strings.Lines(string(want)) {
		was[strings.TrimSpace(line)] = true
	}
	for _, line := range lines {
		if !was[line] {
			t.Errorf("answers differ in a situation: %s", line)
		}
	}
	if text != string(want) {
		t.Error("other situations are reached; if that is meant: go test ./controller/domain/operation -run EveryAnswer " +
			"-write-answers")
	}
}

// answers visits the situations of one operation, and gives a line for each.
func answers(t *testing.T, name string, first *stored) (lines []string) {
	type visit struct {
		s    *stored
		path string
	}
	queue, seen := []visit{{first, "new"}}, map[string]bool{first.situation(): true}
	for ; len(queue) > 0; queue = queue[1:] {
		at, sum := queue[0], sha256.New()
		for _, a := range actions() {
			s := at.s.copied()
			answer, err := json.Marshal(a.do(s))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(sum, "%s: %s\n", a.name, answer)
			if now := s.situation(); !seen[now] && len(seen) < mostSituations {
				seen[now] = true
				queue = append(queue, visit{s, at.path + ", " + a.name})
			}
		}
		lines = append(lines, fmt.Sprintf("%s: %s: %s: %x", name, at.path, at.s.situation(), sum.Sum(nil)[:6]))
	}
	return lines
}

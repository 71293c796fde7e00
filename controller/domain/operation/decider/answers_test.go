package decider_test

import (
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"hash"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/decider"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/hwid"
)

var writeAnswers = flag.Bool("write-answers", false,
	"write testdata/answers.txt anew, when an answer is meant to change")

// mostSituations bounds how many situations of one operation are visited, and mostEnds in how many of these it has
// ended.
const (
	mostSituations = 16
	mostEnds       = 5
)

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
	t.Parallel()
	const path, mostNamed = "testdata/answers.txt", 40
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	was, differ := map[string]bool{}, 0
	for line := range strings.Lines(string(want)) {
		was[strings.TrimSpace(line)] = true
	}
	var lines []string
	begin := starts(t)
	for _, name := range slices.Sorted(maps.Keys(begin)) {
		now := answers(t, name, begin[name]())
		lines = append(lines, now...)
		for _, line := range now {
			if *writeAnswers || was[line] {
				continue
			}
			t.Errorf("answers differ in a situation: %s", line)
			if differ++; differ == mostNamed {
				t.Fatal("and perhaps in more")
			}
		}
	}
	text := strings.Join(lines, "\n") + "\n"
	switch {
	case *writeAnswers:
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	case text != string(want):
		t.Error("other situations are reached; if that is meant: go test ./controller/domain/operation/decider -run " +
			"EveryAnswer -write-answers")
	}
}

// answers visits the situations of one operation, and returns a line for each. In the first one, two things happen one
// after the other, too.
func answers(t *testing.T, name string, first *stored) (lines []string) {
	type visit struct {
		s    *stored
		path string
	}
	first.trusts = true
	queue, seen, ends := []visit{{first, "new"}}, map[string]bool{first.situation(): true}, 0
	for ; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		sum := newAnswerSum(t)
		for _, a := range actions() {
			s := sum.after(at.s, a)
			foreseen(at.s, s, sum)
			now, over := s.situation(), operation.IsTerminal(s.op.Phase)
			if seen[now] || len(seen) == mostSituations || over && ends == mostEnds {
				continue
			}
			if over {
				ends++
			}
			seen[now] = true
			queue = append(queue, visit{s, at.path + ", " + a.name})
		}
		for _, path := range []string{"auto", "bootnext", "kexec", "bmc", "media"} {
			sum.add(path, decider.NoBootPath(at.s.world, path))
		}
		lines = append(lines, fmt.Sprintf("%s: %s: %s: %s", name, at.path, at.s.situation(), sum))
	}
	pairs := newAnswerSum(t)
	then := slices.Concat(farActions(), resultActions(), sessionActions(),
		[]action{{"the deadline", when(theDeadline, 0, event(operation.Evaluate{}))}})
	for _, a := range worldActions() {
		s := pairs.after(first, a)
		if s.op.Phase != operation.Running {
			continue
		}
		for _, b := range then {
			pairs.after(s, b)
		}
	}
	return append(lines, fmt.Sprintf("%s: two at a time: %s", name, pairs))
}

// answerSum is the sum of answers, with the names of what they answer.
type answerSum struct {
	t *testing.T
	hash.Hash
}

func newAnswerSum(t *testing.T) answerSum { return answerSum{t, sha256.New()} }

func (a answerSum) String() string { return fmt.Sprintf("%x", a.Sum(nil)[:6]) }

func (a answerSum) add(name string, answer any) {
	b, err := json.Marshal(answer)
	if err != nil {
		a.t.Fatal(err)
	}
	fmt.Fprintf(a, "%s: %s\n", name, b)
}

// after returns the operation after an action, all of whose decisions are added.
func (a answerSum) after(before *stored, what action) *stored {
	s := before.copied()
	s.told = func(_ operation.Event, d operation.Decision) {
		if !d.OpChanged {
			d.Op = operation.Operation{} // the stored one, as the harness checks
		}
		a.add(what.name, d)
	}
	what.do(s)
	s.told = nil
	return s
}

// foreseen adds the preview of an operation that has not begun, in the world after an action.
func foreseen(s, after *stored, sum answerSum) {
	if s.op.Phase != operation.Pending {
		return
	}
	ahead := s.copied()
	ahead.world = after.world
	for _, replaced := range []bool{false, true} {
		sum.add("foreseen", decider.Foresee(ahead.snapshot(operation.Evaluate{}), replaced, after.now))
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
	further(out)
	return out
}

// further adds operations that are under way, and machines about which more is known.
func further(out map[string]func() *stored) {
	all := map[string]action{}
	for _, a := range actions() {
		all[a.name] = a
	}
	add := func(name, of string, change func(*stored), happened ...string) {
		begin := out[of]
		out[name] = func() *stored {
			s := begin()
			change(s)
			for _, h := range happened {
				if all[h].do == nil {
					s.t.Fatalf("%s: there is no action %q", name, h)
				}
				all[h].do(s)
			}
			if operation.IsTerminal(s.op.Phase) {
				s.t.Fatalf("%s has ended: %s, %+v", name, s.op.Phase, s.op.Error)
			}
			return s
		}
	}
	slow := func(s *stored) {
		for i := range s.op.Steps {
			s.op.Steps[i].Timeout = 30 * time.Minute
		}
	}
	known := func(s *stored) {
		slow(s)
		s.world.Boot.IdentityLevel, s.world.Boot.IdentityTrust = "tpm", "registered"
		hosts(func(c *fleet.Candidate) {
			c.Hardware = hwid.Facts{Serial: "S1", MACs: []string{"02:00:00:00:00:01"}}.Fingerprint()
			c.ImageDigest = "sha256:01d"
		})(s)
	}
	agentless := func(s *stored) { slow(s); s.op.Steps[1].Agentless = true; s.world.Boot.IdentityLevel = "network" }
	counted := func(s *stored) { slow(s); s.world.Install = operation.Install{Counted: true, Failed: 1, Max: 3} }

	rebooted := []string{"looks", "the site applies", "asks", "succeeds", "asks", "an installer comes"}
	cycled := []string{"looks", "the site applies", "asks", "succeeds", "an installer comes"}
	able := []string{"looks", "the site applies", "asks", "succeeds", "an installer that can do all comes"}
	more := func(list []string, then ...string) []string { return append(slices.Clone(list), then...) }

	add("entering by the next boot", "metal auto", known, rebooted[:5]...)
	add("entering by the BMC", "bare metal auto", known, cycled[:3]...)
	add("entering by the BMC from a system", "metal bmc", known, "looks", "the site applies", "asks")
	add("sent in by the BMC", "bare metal auto", slow, cycled[:4]...)
	add("in the installer", "metal auto", known, rebooted...)
	add("can write", "metal auto", known, more(rebooted, "can write")...)
	add("writing", "metal auto", known, more(rebooted, "can write", "asks")...)
	add("writing, attempts count", "bare metal auto", counted, more(cycled, "can write", "asks")...)
	add("writing, the last try of an attempt", "bare metal auto", func(s *stored) {
		counted(s)
		s.op.Steps[1].MaxRetries = 0
	}, more(cycled, "can write", "asks")...)
	add("writing, the last try of the last attempt", "bare metal auto", func(s *stored) {
		slow(s)
		s.op.Steps[1].MaxRetries, s.world.Install = 0, operation.Install{Counted: true, Failed: 2, Max: 3}
	}, more(cycled, "can write", "asks")...)
	add("writing, and an erasure follows", "bare metal auto", func(s *stored) {
		erase := operation.Step{Kind: kind.Erase, State: operation.StepWaiting, Name: "erase-2", Timeout: stepTimeout}
		s.op.Steps = []operation.Step{s.op.Steps[0], s.op.Steps[1], erase, s.op.Steps[2]}
	}, more(cycled, "can write", "asks")...)
	add("written", "metal auto", known, more(rebooted, "can write", "asks", "succeeds")...)
	add("restarting", "metal auto", known, more(rebooted, "can write", "asks", "succeeds", "the site applies", "asks")...)
	add("restarting, attempts count", "bare metal auto", counted,
		more(cycled, "can write", "asks", "succeeds", "the site applies", "asks")...)
	add("restarting without an agent", "bare metal auto", agentless,
		more(able, "can write", "asks", "succeeds", "the site applies", "asks")...)
	add("restarting by the BMC without an agent", "bare metal auto", agentless,
		more(able, "can write", "asks", "succeeds", "the installer goes", "the site applies", "asks")...)
	add("turned back", "metal auto", known, more(rebooted, "fails")...)
	add("going back", "metal auto", known, more(rebooted, "fails", "the site applies", "asks")...)
	add("going back by the BMC", "metal auto", known,
		more(rebooted, "fails", "the installer goes", "the site applies", "asks")...)
	add("erasing", "metal erase", known, "looks", "the site applies", "asks", "an installer comes", "asks")
	add("needs more of the installer", "bare metal auto", func(s *stored) { s.op.Steps[1].Needs = []string{"data_disks"} },
		cycled[:4]...)
	add("needs an installer for a system without an agent", "bare metal auto", agentless, cycled[:4]...)
	add("rescue by the BMC", "rescue", hosts(func(c *fleet.Candidate) { c.Capabilities = []string{"reboot"} }))
	add("rescue restarting", "rescue", slow, "looks", "the site applies", "asks", "succeeds", "asks")
	add("reboot claimed", "reboot", known, "looks", "asks", "claims")
	add("reboot canceling", "reboot", slow, "looks", "asks", "cancel for a reason")
	add("reboot by the provider", "reboot bmc", func(s *stored) { slow(s); s.setAgents(site("s-9")) }, "looks", "asks")
	add("reboot by the BMC without an agent", "reboot bmc", func(s *stored) {
		s.world.Provider, s.world.Machine.Agentless = fleet.AgentProvider, true
		s.setAgents(bmcSite(true))
		s.world.TargetAgentID, s.world.TargetBootID, s.world.TargetAgentLive = "", "", false
	}, "looks", "asks")
	add("repave in place, then a reboot", "repave", func(s *stored) {
		s.op.Steps = append(s.op.Steps[:1], operation.Step{Kind: kind.Reboot, State: operation.StepWaiting, Name: "reboot-1",
			Timeout: stepTimeout})
	}, "looks", "asks", "succeeds", "asks")
	add("netboot, then a reboot", "netboot", func(s *stored) {
		s.op.Type = fleet.Netboot
		s.op.Steps = append(s.op.Steps[:1], operation.Step{Kind: kind.Reboot, State: operation.StepWaiting, Name: "reboot-1",
			Timeout: stepTimeout})
	}, "looks", "asks", "succeeds", "asks")
	add("of a kind that is not declared", "net", func(s *stored) {
		s.op.Steps[0].Kind = "future"
		hosts(func(c *fleet.Candidate) { c.Capabilities = []string{"future"} })(s)
	}, "looks", "asks")
	add("join with a token", "join", slow, "looks", "asks", "succeeds")
	add("a late result is awaited", "net", slow, "looks", "asks")
	add("a repeat of unknown work", "net", func(s *stored) { s.world.Machine.UnresolvedCommand = "c-77" }, "looks", "asks")
	add("needs a slot", "net", func(s *stored) { s.op.Interrupts = true }, "looks")
	add("exit from maintenance", "wait_for_agent", func(s *stored) {
		s.op.Type, s.op.Steps = fleet.ExitMaintenance, []operation.Step{s.op.Steps[0], {Kind: kind.SetPhase,
			Mode: string(fleet.Ready), State: operation.StepWaiting, Name: "set_phase-1", Timeout: stepTimeout}}
	})
	add("install that is reported", "stage "+workflow.ReportedInstall, counted, "looks")
	add("the last install that is reported", "stage "+workflow.ReportedInstall, func(s *stored) {
		s.world.Install = operation.Install{Counted: true, Failed: 2, Max: 3}
	}, "looks")
	for flow, stages := range map[workflow.Kind][]string{
		workflow.Decommission: {workflow.DisableNode, workflow.ForceRelease, workflow.ValidateClean, workflow.RetireNode},
		workflow.Onboarding:   {workflow.ApproveNode, workflow.ResolvePower, workflow.VerifyNode},
	} {
		for _, stage := range stages {
			add("stage "+stage+" that is built", "stage "+workflow.DrainNode, func(s *stored) {
				s.op.Steps[0].Mode, s.world.Stage.Kind, s.world.Stage.Mode = stage, flow, workflow.StorageCleanup
				s.world.Stage.Unhealthy = []string{"inventory: it has sent none"}
			})
		}
	}
	for _, k := range []string{"net", "reboot", "repave", "verify", "drain", "provider_action", "test_hardware"} {
		add(k+" alone", k, func(s *stored) { s.op.Steps = s.op.Steps[:1] }, "looks", "asks")
	}
	add("join waits for its host", "join", func(*stored) {}, "looks", "asks", "the host goes", "half a minute", "succeeds")
	add("away for a replacement", "stage "+workflow.AwaitReplacement, known, "looks")
	add("drain of a node in a cluster", "stage "+workflow.DrainNode, func(s *stored) {
		condition(fleet.InCustomerCluster)(s)
		s.world.Stage.ClusterKnown = true
		everyAgent(func(c *fleet.Candidate) { c.Capabilities = append(slices.Clone(c.Capabilities), "cluster") })(s)
	}, "looks")
	add("a password is changed", "stage "+workflow.SwitchOff, func(s *stored) {
		s.op.Steps[0].Mode, s.world.Provider = workflow.RotateBMCPassword, fleet.AgentProvider
		everyAgent(func(c *fleet.Candidate) {
			c.Capabilities = append(slices.Clone(c.Capabilities), fleet.ChangesBMCPasswords, "provider:agent")
		})(s)
	})
	add("switched by MAAS", "stage "+workflow.SwitchOff, func(s *stored) {
		s.world.Provider = workflow.ProviderMAAS
		everyAgent(func(c *fleet.Candidate) { c.Capabilities = append(slices.Clone(c.Capabilities), "provider:maas") })(s)
	})
	for _, mode := range []string{"deploy", "release", "power_query"} {
		add("provider "+mode, "provider_action", func(s *stored) {
			s.op.Type, s.op.Steps[0].Mode, s.world.Provider = fleet.Reimage, mode, workflow.ProviderMAAS
			everyAgent(func(c *fleet.Candidate) { c.Capabilities = append(slices.Clone(c.Capabilities), "provider:maas") })(s)
		}, "looks")
	}
}

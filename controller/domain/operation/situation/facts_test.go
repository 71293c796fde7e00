package situation_test

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
	"github.com/ingot-metal/ingot/controller/domain/operation/situation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/hwid"
)

var writeFacts = flag.Bool("write-facts", false, "write testdata/facts.txt anew, when a fact is meant to change")

// moment is all that a situation is made of.
type moment struct {
	op  operation.Operation
	cmd *operation.Command
	w   operation.World
	now time.Time
}

const ours = "op-1"

// newMoment returns a moment in which the second of three steps runs, a network boot before it and a reboot after it.
// The machine has an agent of its own, and a site's agent that reaches its BMC.
func newMoment(step operation.Step, command kind.Kind, role string) *moment {
	step.Name, step.State, step.StartedAt, step.Timeout = "second", operation.StepRunning, t0, 30*time.Minute
	m := &moment{
		now: t0.Add(time.Minute),
		op: operation.Operation{
			ID: ours, Type: fleet.RunPlan, Phase: operation.Running, CurrentStep: 1, Evidence: map[string]string{},
			Steps: []operation.Step{{Name: "first", Kind: kind.Netboot}, step, {Name: "third", Kind: kind.Reboot}},
		},
		w: operation.World{
			TargetAgentID: "a-host", TargetBootID: "boot-1", TargetAgentLive: true, Provider: fleet.AgentProvider,
			Machine: fleet.Facts{Conditions: map[fleet.ConditionType]bool{}},
			Boot:    operation.Boot{Segments: 1, InstallerReady: true},
			Candidates: []fleet.Candidate{
				{AgentID: "a-host", Role: "host", BootID: "boot-1", Live: true, LastSeen: t0,
					Capabilities: []string{"reboot", "kexec", "reconfig", "join"}},
				{AgentID: "a-site", Role: "site", Live: true, LastSeen: t0,
					Capabilities: []string{"provider:agent", "power", "cluster", "ssh"}},
			},
		},
	}
	if command != "" {
		m.cmd = &operation.Command{
			ID: "c-1", StepIdx: 1, Kind: command, State: operation.Granted, BootIDBefore: "boot-1", GrantedAt: t0,
			Deadline: t0.Add(5 * time.Minute), Evidence: map[string]string{},
			ExecutorRole: role, ExecutorID: map[string]string{"host": "a-host", "site": "a-site", "installer": "a-inst"}[role],
		}
	}
	return m
}

// agent changes the agents of a role.
func agent(role string, change func(*fleet.Candidate)) func(*moment) {
	return func(m *moment) {
		for i := range m.w.Candidates {
			if c := &m.w.Candidates[i]; c.Role == role {
				change(c)
			}
		}
	}
}

func comes(c fleet.Candidate) func(*moment) {
	return func(m *moment) {
		c.Live, c.LastSeen = true, t0.Add(30*time.Second)
		m.w.Candidates = append(m.w.Candidates, c)
	}
}

func command(change func(*operation.Command)) func(*moment) {
	return func(m *moment) {
		if m.cmd != nil {
			change(m.cmd)
		}
	}
}

func later(d time.Duration) func(*moment) { return func(m *moment) { m.now = t0.Add(d) } }

func flagged(c fleet.ConditionType) func(*moment) {
	return func(m *moment) { m.w.Machine.Conditions[c] = true }
}

func provided(provider string) func(*moment) {
	return func(m *moment) {
		m.w.Provider = provider
		agent("site", func(c *fleet.Candidate) { c.Capabilities = append(c.Capabilities, "provider:"+provider) })(m)
	}
}

func proof(of string) func(*moment) { return func(m *moment) { m.op.Evidence[of] = "sha256:1" } }

// noted keeps which system the machine had, with its command and with its step.
func noted(agentID, image, hardware string) func(*moment) {
	return func(m *moment) {
		of := map[string]string{evidence.HostAgentID: agentID, evidence.HostBootID: "boot-1"}
		if image != "" {
			of[evidence.HostImageDigest] = image
		}
		if hardware != "" {
			of[evidence.HostHardware] = hwid.Facts{Serial: hardware}.Fingerprint()
		}
		command(func(c *operation.Command) { maps.Copy(c.Evidence, of) })(m)
		s := &m.op.Steps[1]
		s.Evidence = maps.Clone(s.Evidence)
		if s.Evidence == nil {
			s.Evidence = map[string]string{}
		}
		maps.Copy(s.Evidence, of)
	}
}

type change struct {
	name string
	do   func(*moment)
}

// changes are the circumstances of a moment, each alone and each with each other.
func changes() []change {
	return slices.Concat(agentChanges(), workChanges(), timeChanges())
}

func agentChanges() []change {
	return []change{
		{"the host is in another boot", agent("host", func(c *fleet.Candidate) { c.BootID = "boot-2" })},
		{"the host has no boot", agent("host", func(c *fleet.Candidate) { c.BootID = "" })},
		{"the host is silent", agent("host", func(c *fleet.Candidate) { c.Live = false })},
		{"the host never had a session", agent("host", func(c *fleet.Candidate) { c.Live, c.LastSeen = false, time.Time{} })},
		{"the host was seen before the grant", agent("host", func(c *fleet.Candidate) { c.LastSeen = t0.Add(-1) })},
		{"the host can do nothing", agent("host", func(c *fleet.Candidate) { c.Capabilities = nil })},
		{"the host can do the work", agent("host", func(c *fleet.Candidate) {
			c.Capabilities = []string{"repave", "erase", "netboot", "reset_devices"}
		})},
		{"the host is simulated", agent("host", func(c *fleet.Candidate) { c.Simulated = true })},
		{"the host is another's", agent("host", func(c *fleet.Candidate) { c.AgentID = "a-another" })},
		{"the host is new", agent("host", func(c *fleet.Candidate) { c.OperationID = ours })},
		{"the host has an image", agent("host", func(c *fleet.Candidate) { c.ImageDigest = "SHA256:1"[7:] })},
		{"the host has another image", agent("host", func(c *fleet.Candidate) { c.ImageDigest = "sha256:2" })},
		{"the host has hardware", agent("host", func(c *fleet.Candidate) {
			c.Hardware = hwid.Facts{Serial: "S1", Chassis: "x"}.Fingerprint()
		})},
		{"the host is gone", func(m *moment) { m.w.Candidates = m.w.Candidates[1:] }},
		{"the site is silent", agent("site", func(c *fleet.Candidate) { c.Live = false })},
		{"the site can do nothing", agent("site", func(c *fleet.Candidate) { c.Capabilities = []string{"provider:agent"} })},
		{"an installer comes", comes(fleet.Candidate{AgentID: "a-inst", Role: "installer", OperationID: ours,
			BootID: "boot-3"})},
		{"an installer of before comes", comes(fleet.Candidate{AgentID: "a-inst", Role: "installer", OperationID: ours,
			BootID: "boot-1"})},
		{"another's installer comes", comes(fleet.Candidate{AgentID: "a-inst", Role: "installer", OperationID: "op-9",
			BootID: "boot-3"})},
		{"a second host comes", comes(fleet.Candidate{AgentID: "a-host-2", Role: "host", OperationID: ours,
			BootID: "boot-4"})},
		{"no agent is the machine's", func(m *moment) { m.w.TargetAgentID, m.w.TargetAgentLive = "", false }},
		{"driven by MAAS", provided(workflow.ProviderMAAS)},
		{"driven by another provider", provided("fake")},
		{"its own system is noted", noted("a-host", "", "")},
		{"its image is noted", noted("a-host", "sha256:1", "S1")},
		{"another system is noted", noted("a-old", "sha256:2", "S2")},
		{"phoned home", func(m *moment) {
			m.w.Boot.PhonedHome = map[string]string{evidence.PhonedHomeAt: "t",
				evidence.InstanceID: evidence.InstanceOf(ours)}
		}},
		{"another instance phoned home", func(m *moment) {
			m.w.Boot.PhonedHome = map[string]string{evidence.PhonedHomeAt: "t", evidence.InstanceID: "ingot-op-9"}
		}},
		{"no time of the call", func(m *moment) {
			m.w.Boot.PhonedHome = map[string]string{evidence.InstanceID: evidence.InstanceOf(ours)}
		}},
	}
}

func workChanges() []change {
	step := func(do func(s *operation.Step)) func(*moment) { return func(m *moment) { do(&m.op.Steps[1]) } }
	mode := func(mode string) func(*moment) { return step(func(s *operation.Step) { s.Mode = mode }) }
	state := func(state operation.CommandState, o operation.Outcome) func(*moment) {
		return command(func(c *operation.Command) {
			c.State, c.Outcome = state, o
			if operation.IsFinalCommand(state) {
				c.FinishedAt = t0.Add(20 * time.Second)
			}
		})
	}
	return []change{
		{"refused", step(func(s *operation.Step) {
			s.Evidence = maps.Clone(s.Evidence)
			if s.Evidence == nil {
				s.Evidence = map[string]string{}
			}
			s.Evidence[evidence.Refused] = "X"
		})},
		{"by next boot", mode("bootnext")}, {"by kexec", mode("kexec")}, {"by the BMC", mode("bmc")},
		{"by media", mode("media")}, {"auto", mode("auto")}, {"from the disk", mode("DISK")},
		{"without an agent", step(func(s *operation.Step) { s.Agentless = true })},
		{"next boot is set", proof(evidence.BootNext)},
		{"an installer wrote", proof(evidence.Installer)}, {"an image was written", proof(evidence.ImageDigest)},
		{"written", func(m *moment) { proof(evidence.Installer)(m); proof(evidence.ImageDigest)(m) }},
		{"a step later", func(m *moment) { m.op.CurrentStep = 2 }},
		{"its next step", func(m *moment) {
			m.op.CurrentStep = 2
			command(func(c *operation.Command) { c.StepIdx = 2 })(m)
		}},
		{"the first step", func(m *moment) { m.op.CurrentStep = 0 }},
		{"past the last step", func(m *moment) { m.op.CurrentStep = 3 }},
		{"first boots from the disk", func(m *moment) { m.op.Steps[0].Mode = "DISK" }},
		{"first is a configuration", func(m *moment) { m.op.Steps[0].Kind = kind.Net }},
		{"first is a reboot", func(m *moment) { m.op.Steps[0].Kind = kind.Reboot }},
		{"first writes", func(m *moment) { m.op.Steps[0].Kind, m.op.Steps[0].Agentless = kind.Repave, true }},
		{"third writes", func(m *moment) { m.op.Steps[2].Kind = kind.Repave }},
		{"a network boot", func(m *moment) { m.op.Type = fleet.Netboot }},
		{"a decommission", func(m *moment) { m.op.Type = fleet.Decommission }},
		{"in full", func(m *moment) { m.w.Stage.Mode = workflow.FullDecommission }},
		{"forgets", mode(workflow.ForgetAction)},
		{"drains", mode(workflow.DrainNode)},
		{"RMA", flagged(fleet.RMA)}, {"retired", flagged(fleet.RetiredFlag)},
		{"no segments", func(m *moment) { m.w.Boot.Segments = 0 }},
		{"destructive", func(m *moment) { m.op.Destructive = true }},
		{"a slot is held", func(m *moment) { m.w.SlotHeld = true }},
		{"sent", state(operation.Sent, "")},
		{"has succeeded", state(operation.Done, operation.OutcomeSucceeded)},
		{"has failed", state(operation.Done, operation.OutcomeFailed)},
		{"claimed", command(func(c *operation.Command) { c.ClaimedAt = t0.Add(1) })},
		{"in another boot before", command(func(c *operation.Command) { c.BootIDBefore = "boot-2" })},
		{"canceling", func(m *moment) { m.op.CancelRequested = t0 }},
		{"ended", func(m *moment) { m.op.Phase = operation.Failed }},
	}
}

func timeChanges() []change {
	return []change{
		{"before the end of a cancel", later(30*time.Second - 1)}, {"at the end of a cancel", later(30 * time.Second)},
		{"before the deadline", later(5*time.Minute - 1)}, {"at the deadline", later(5 * time.Minute)},
		{"before the token is old", later(5*time.Minute + 20*time.Second - 1)},
		{"as the token is old", later(5*time.Minute + 20*time.Second)},
		{"agents come back", func(m *moment) { m.w.CaughtUpAt = t0.Add(time.Hour) }},
		{"never granted", command(func(c *operation.Command) { c.GrantedAt = time.Time{} })},
		{"is tried again", func(m *moment) { m.op.Steps[1].RetryAt = t0.Add(10 * time.Second) }},
		{"was tried again", func(m *moment) { m.op.Steps[1].RetryAt = t0.Add(20 * time.Second) }},
		{"waits for its retry", func(m *moment) { m.op.Steps[1].RetryAt = t0.Add(20*time.Second + 1) }},
	}
}

// factsAt returns all that a situation answers.
func factsAt(m *moment) []any {
	s := situation.Look(&m.op, m.cmd, &m.w, m.now)
	of := func(c *fleet.Candidate) string {
		if c == nil {
			return ""
		}
		return c.AgentID + " " + c.BootID
	}
	step := func(s *operation.Step) string {
		if s == nil {
			return ""
		}
		return s.Name
	}
	out := []any{
		s.Step.Name, s.StepKind.Kind, s.CommandKind.Kind, of(s.Host), of(s.Installer),
		s.Over, s.Canceling, s.Settled, s.Granted, s.Claimed, s.OfStep, s.ByHost, s.ByInstaller, s.BySite,
		s.TurnedBack, s.Entering, s.CyclesPower, s.Boots, s.Blocked, s.Forgets, s.LacksSlot,
		s.Limit(), s.SoonOr(s.Limit()), s.SoonOr(m.now.Add(time.Second)), s.TriedPath(), s.NextPath(),
		s.ThroughInstaller(), step(s.InstallerStep(0)), step(s.InstallerStep(1)), step(s.InstallerStep(2)),
		of(s.Site("power")), of(s.Site("provider_action")), s.MayCome("host"), s.MayCome("site"), s.MayCome("installer"),
		of(s.Route()), of(s.RouteInCluster()), s.ClusterKind(), s.Installed(), s.InPlace(kind.Repave),
		s.InPlace(kind.Erase), s.AwaitsPhoneHome(), s.RebootSeen(), s.HostNow(), s.Target().AgentID,
	}
	for _, path := range []string{kind.PathBootNext, kind.PathKexec, kind.PathBMC, operation.PathMedia, "auto"} {
		out = append(out, s.PathNow(path))
	}
	if m.op.CurrentStep < len(m.op.Steps) {
		out = append(out, s.Agentless(), s.NewSystem(), s.NewSystem().Proof())
	}
	for _, a := range []situation.Arrival{s.Arrived(), s.Strayed()} {
		out = append(out, a, a.None(), a.Proof())
	}
	if m.cmd != nil {
		out = append(out, s.Past(m.cmd.Deadline), s.Outlived(), s.GivenUpAt(), s.Due())
		if s.Host != nil {
			out = append(out, s.HostIsBefore())
		}
	}
	return out
}

// factSum returns the sum of the facts of a moment after some changes, and adds to it.
type factSum struct {
	t   *testing.T
	sum []byte
}

func (f *factSum) add(name string, m *moment) {
	b, err := json.Marshal(factsAt(m))
	if err != nil {
		f.t.Fatal(err)
	}
	sum := sha256.Sum256(slices.Concat(f.sum, []byte(name), b))
	f.sum = sum[:]
}

// TestEveryFactIsAsItWas: of steps and commands of every kind, under each circumstance and under each two of them, the
// facts of the situation are those that testdata/facts.txt has the sums of.
func TestEveryFactIsAsItWas(t *testing.T) {
	t.Parallel()
	const path = "testdata/facts.txt"
	steps := []operation.Step{
		{Kind: kind.Reboot}, {Kind: kind.Netboot}, {Kind: kind.Repave}, {Kind: kind.Erase}, {Kind: kind.ResetDevices},
		{Kind: kind.Join}, {Kind: kind.Verify}, {Kind: kind.Net}, {Kind: kind.SSH}, {Kind: kind.WaitForAgent},
		{Kind: kind.ProviderAction, Mode: workflow.ForgetAction}, {Kind: kind.WorkflowStage, Mode: workflow.DrainNode},
	}
	commands := []struct {
		kind  kind.Kind
		roles []string
	}{
		{"", []string{""}}, {kind.Reboot, []string{"host", "site", "installer"}}, {kind.Power, []string{"site"}},
		{kind.Kexec, []string{"host"}}, {kind.Repave, []string{"installer", "host"}},
		{kind.Netboot, []string{"host", "site"}},
		{kind.Preflight, []string{"installer"}}, {kind.JoinToken, []string{"site"}}, {kind.Net, []string{"host"}},
	}
	var lines []string
	all := changes()
	for _, s := range steps {
		for _, c := range commands {
			for _, role := range c.roles {
				f := &factSum{t: t}
				f.add("", newMoment(s, c.kind, role))
				for i, a := range all {
					m := newMoment(s, c.kind, role)
					a.do(m)
					f.add(a.name, m)
					if s.Kind != kind.Repave && s.Kind != kind.Reboot && s.Kind != c.kind {
						continue // one circumstance at a time
					}
					for _, b := range all[i+1:] {
						m := newMoment(s, c.kind, role)
						a.do(m)
						b.do(m)
						f.add(a.name+", "+b.name, m)
					}
				}
				lines = append(lines, fmt.Sprintf("%s %s, %s of %s: %x", s.Kind, s.Mode, c.kind, role, f.sum[:6]))
			}
		}
	}
	text := strings.Join(lines, "\n") + "\n"
	if *writeFacts {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if !strings.Contains(string(want), line+"\n") {
			t.Errorf("facts differ: %s; if that is meant: go test ./controller/domain/operation/situation -write-facts", line)
		}
	}
	if !t.Failed() && text != string(want) {
		t.Error("other situations are tested than are recorded")
	}
}

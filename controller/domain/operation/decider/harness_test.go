package decider_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/decider"
)

// tb is what testing.T and rapid.T have in common.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	hostID, siteID = "a-host", "a-site"
	stepTimeout    = 5 * time.Minute
)

// stored is what a store would hold: it feeds Decide and applies its answers, and holds every answer against the rules.
type stored struct {
	t        tb
	now      time.Time
	op       operation.Operation
	commands []*operation.Command
	world    operation.World
	// current says that the machine still points to the operation; fence is its unresolved command.
	current    bool
	fence      string
	phase      fleet.Phase
	conditions map[fleet.ConditionType]bool
	causes     map[fleet.Cause]string // with their subjects
	lastGrant  map[[2]string]uint64
	// revision of the site's document.
	revision int64
	// trusts leaves out whether a decision changes its snapshot, which costs half of the time. Other tests hold that.
	trusts bool
	// told takes each decision; nil for none.
	told func(operation.Event, operation.Decision)
}

func newStored(t tb, steps ...operation.Step) *stored {
	for i := range steps {
		steps[i].State = operation.StepWaiting
		if steps[i].Timeout == 0 {
			steps[i].Timeout = stepTimeout
		}
		if steps[i].Name == "" {
			steps[i].Name = fmt.Sprintf("%s-%d", steps[i].Kind, i)
		}
	}
	s := &stored{
		t: t, now: t0, current: true, phase: fleet.Ready, conditions: map[fleet.ConditionType]bool{},
		causes: map[fleet.Cause]string{}, lastGrant: map[[2]string]uint64{},
		op: operation.Operation{
			ID: "op-1", MachineID: "m-1", Type: fleet.RunPlan, Phase: operation.Pending, WakeAt: t0, Version: 1, CreatedAt: t0,
			Steps: steps,
		},
		world: operation.World{
			Machine:  fleet.Facts{Phase: fleet.Ready, NodeState: fleet.Active, Conditions: map[fleet.ConditionType]bool{}},
			Provider: "fake", TargetBootID: "boot-1", TargetAgentID: hostID, TargetAgentLive: true,
		},
	}
	s.setAgents(host("s-1", true))
	return s
}

func host(stateID string, live bool) fleet.Candidate {
	return fleet.Candidate{AgentID: hostID, Role: "host", StateID: stateID, Live: live, LastSeen: t0,
		Capabilities: []string{"reboot", "netboot", "repave", "reconfig"}}
}

func site(stateID string) fleet.Candidate {
	return fleet.Candidate{AgentID: siteID, Role: "site", StateID: stateID, Live: true, LastSeen: t0,
		Capabilities: []string{"provider:fake"}}
}

func (s *stored) setAgents(c ...fleet.Candidate) { s.world.Candidates = c }

func reboot() operation.Step   { return operation.Step{Kind: kind.Reboot, MaxRetries: 2} }
func reconfig() operation.Step { return operation.Step{Kind: kind.Net} }
func setPhase(p fleet.Phase) operation.Step {
	return operation.Step{Kind: kind.SetPhase, Mode: string(p)}
}

// latest is the newest command, nil before the first.
func (s *stored) latest() *operation.Command {
	if len(s.commands) == 0 {
		return nil
	}
	return s.commands[len(s.commands)-1]
}

func (s *stored) command(id string) *operation.Command {
	for _, c := range s.commands {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// do brings an event to the operation.
func (s *stored) do(e operation.Event) operation.Decision {
	s.t.Helper()
	snap := s.snapshot(e)
	before := snap
	if !s.trusts {
		before = deepCopy(snap)
	}
	d := decider.Decide(snap, e, s.now)
	if !s.trusts && !reflect.DeepEqual(snap, before) {
		s.t.Fatalf("%T changed its snapshot:\n%s\n%s", e, dump(before), dump(snap))
	}
	if s.told != nil {
		s.told(e, d)
	}
	s.check(snap, e, d)
	s.apply(d)
	s.checkStored(e)
	return d
}

// snapshot is what the store would load for an event.
func (s *stored) snapshot(e operation.Event) operation.Snapshot {
	snap := operation.Snapshot{Op: s.op, World: s.world, Command: s.latest()}
	switch e := e.(type) {
	case operation.AckedByAgent:
		snap.Command = s.command(e.CommandID)
	case operation.Resulted:
		snap.Command = s.command(e.CommandID)
	case operation.GrantAsked:
		snap.Command = s.command(e.CommandID)
		key := [2]string{e.AgentID, e.StateID}
		switch {
		case s.world.StaleEpoch:
		case e.Seq <= s.lastGrant[key]:
			snap.World.LastGrantSeq = e.Seq
		default:
			s.lastGrant[key] = e.Seq
		}
	}
	snap.World.Candidates = slices.Clone(snap.World.Candidates)
	for i := range snap.World.Candidates {
		if c := &snap.World.Candidates[i]; c.Role == "host" && c.AgentID == s.world.TargetAgentID && c.BootID == "" {
			c.BootID = s.world.TargetBootID
		}
	}
	snap.World.NewBootToken = fmt.Sprintf("token-%d", s.revision+1)
	snap.World.NewCommandID = fmt.Sprintf("c-%d", len(s.commands)+1)
	for _, c := range s.world.Candidates {
		if snap.Command != nil && c.AgentID == snap.Command.ExecutorID {
			snap.World.ExecutorLive, snap.World.ExecutorSilentFrom = c.Live, c.SilentFrom()
		}
	}
	return snap
}

func (s *stored) apply(d operation.Decision) {
	if d.OpChanged {
		s.op = d.Op
		s.op.Version++
	}
	for _, c := range d.Commands {
		if c == d.NewCommand {
			c.Digest = []byte("digest of " + c.ID)
			s.commands = append(s.commands, c)
			continue
		}
		for i := range s.commands {
			if s.commands[i].ID == c.ID {
				s.commands[i] = c
			}
		}
	}
	m := d.Machine
	if a := m.Assign; a != nil {
		s.revision++
		s.world.Boot.Mode, s.world.Boot.OperationID, s.world.Boot.Revision = a.Mode, a.OperationID, s.revision
		s.world.Boot.InstallerAgentID = ""
	}
	if m.SetPhase != "" {
		s.phase = m.SetPhase
	}
	s.current = s.current && !m.ClearCurrent
	if m.Fence != "" {
		s.fence = m.Fence
	}
	if m.Unfence != "" && s.fence == m.Unfence {
		s.fence = ""
	}
	for _, c := range m.Conditions {
		s.conditions[c.Type] = c.Status
	}
	s.follow(d.Machine)
}

// check holds one answer against the rules that need what was before.
func (s *stored) check(before operation.Snapshot, e operation.Event, d operation.Decision) {
	s.t.Helper()
	bad := func(format string, args ...any) {
		s.t.Helper()
		s.t.Fatalf("%T %+v in %s with %s: %s", e, e, before.Op.Phase, dump(before.Command), fmt.Sprintf(format, args...))
	}
	wasOver, over := operation.IsTerminal(before.Op.Phase), operation.IsTerminal(d.Op.Phase)
	if wasOver && (d.OpChanged || d.NewCommand != nil || d.Machine.ClearCurrent || d.Machine.SetPhase != "" ||
		d.Machine.Fence != "" || d.Grant) {
		bad("a finished operation changes: %+v", d)
	}
	if !d.OpChanged && !reflect.DeepEqual(d.Op, before.Op) {
		bad("the operation differs and OpChanged is false")
	}
	if changes := d.OpChanged || len(d.Commands) > 0; changes != d.Changed {
		bad("Changed is %t", d.Changed)
	}
	if over != wasOver != d.Machine.ClearCurrent {
		bad("over: %t, was over: %t, ClearCurrent: %t", over, wasOver, d.Machine.ClearCurrent)
	}
	if !reaches(operation.PhaseTable, before.Op.Phase, d.Op.Phase) {
		bad("no way from %s to %s", before.Op.Phase, d.Op.Phase)
	}
	for i, st := range d.Op.Steps {
		if !reaches(operation.StepTable, before.Op.Steps[i].State, st.State) {
			bad("step %d: no way from %s to %s", i, before.Op.Steps[i].State, st.State)
		}
	}
	s.checkCommands(before, d, bad)
	s.checkMachine(before, d, bad)
	if d.Grant {
		s.checkGrant(before, e, bad)
	}
	if over && !wasOver {
		checkEnd(d, bad)
	}
}

func (s *stored) checkCommands(before operation.Snapshot, d operation.Decision, bad func(string, ...any)) {
	s.t.Helper()
	for _, c := range d.Commands {
		was := s.command(c.ID)
		switch {
		case c == d.NewCommand && was != nil:
			bad("new command %s exists", c.ID)
		case c != d.NewCommand && was == nil:
			bad("changed command %s does not exist", c.ID)
		case was != nil && !reaches(operation.CommandTable, was.State, c.State):
			bad("command %s: no way from %s to %s", c.ID, was.State, c.State)
		case c.State == operation.Unknown && !c.GrantedAt.IsZero() && c.Reason == "":
			bad("command %s is unknown for no reason", c.ID)
		case operation.IsFinalCommand(c.State) == c.FinishedAt.IsZero():
			bad("command %s is %s and finished at %v", c.ID, c.State, c.FinishedAt)
		}
	}
	n := d.NewCommand
	if n == nil {
		return
	}
	if n.StepIdx != d.Op.CurrentStep || d.Op.Phase != operation.Running ||
		d.Op.Steps[n.StepIdx].State != operation.StepRunning {
		bad("new command for step %d while the operation is %s at step %d", n.StepIdx, d.Op.Phase, d.Op.CurrentStep)
	}
	for _, old := range s.commands {
		for _, c := range d.Commands {
			if c.ID == old.ID {
				old = c
			}
		}
		switch {
		case !old.Settled() || old.State == operation.Unknown:
			bad("attempts overlap: %s is %s when %s is made", old.ID, old.State, n.ID)
		case old.StepIdx == n.StepIdx && old.Outcome == operation.OutcomeSucceeded &&
			old.Kind == s.op.Steps[old.StepIdx].Kind:
			bad("attempt %s follows the success of %s", n.ID, old.ID)
		case old.StepIdx == n.StepIdx && old.Attempt >= n.Attempt:
			bad("attempt %d follows attempt %d", n.Attempt, old.Attempt)
		}
	}
}

func (s *stored) checkMachine(before operation.Snapshot, d operation.Decision, bad func(string, ...any)) {
	s.t.Helper()
	fence, unfence := "", ""
	for _, c := range d.Commands {
		was := s.command(c.ID)
		if c.State == operation.Unknown && (was == nil || was.State != operation.Unknown) {
			fence = c.ID
		}
		if was != nil && was.State == operation.Unknown && c.State == operation.Done {
			unfence = c.ID
		}
	}
	// A repeat of the same work, or its own unknown end, replaces the unresolved command.
	again := before.World.Machine.UnresolvedCommand
	if again != "" && (fence != "" || d.Op.Phase == operation.Succeeded && before.Op.Phase != operation.Succeeded) {
		unfence = again
	}
	if d.Machine.Fence != fence || d.Machine.Unfence != unfence {
		bad("fence %q, want %q; unfence %q, want %q", d.Machine.Fence, fence, d.Machine.Unfence, unfence)
	}
	var phase fleet.Phase
	for i, st := range d.Op.Steps {
		if st.Kind == kind.SetPhase && st.State == operation.StepSucceeded &&
			before.Op.Steps[i].State != operation.StepSucceeded {
			phase = fleet.Phase(st.Mode)
		}
	}
	if d.Machine.SetPhase != phase {
		bad("sets phase %q, want %q: only a set_phase step moves it", d.Machine.SetPhase, phase)
	}
}

func (s *stored) checkGrant(before operation.Snapshot, e operation.Event, bad func(string, ...any)) {
	s.t.Helper()
	ask, ok := e.(operation.GrantAsked)
	c := before.Command
	live := []operation.CommandState{operation.Sent, operation.Acked, operation.Granted}
	switch {
	case !ok:
		bad("a grant that nobody asked for")
	case c == nil || !slices.Contains(live, c.State) || c.ID != s.latest().ID:
		bad("granted a command that is not live")
	case c.ExecutorID != ask.AgentID || c.ExecutorStateID != ask.StateID || string(c.Digest) != string(ask.Digest):
		bad("granted to another executor, memory or digest")
	case before.World.StaleEpoch || !before.Op.CancelRequested.IsZero(),
		!s.now.Before(c.Deadline) && (c.State != operation.Granted || !s.now.Before(before.World.CaughtUpAt)):
		bad("granted to an old session, a cancelled operation or after the deadline")
	}
}

func checkEnd(d operation.Decision, bad func(string, ...any)) {
	changed := map[fleet.ConditionType]bool{}
	for _, c := range d.Machine.Conditions {
		changed[c.Type] = c.Status
	}
	code := ""
	if d.Op.Error != nil {
		code = d.Op.Error.Code
	}
	switch d.Op.Phase {
	case operation.Succeeded:
		for _, st := range d.Op.Steps {
			if st.State != operation.StepSucceeded {
				bad("succeeded with step %s %s", st.Name, st.State)
			}
		}
		if code != "" {
			bad("succeeded with error %s", code)
		}
	case operation.Failed:
		if r := d.Machine.Raise; r == nil || r.Cause == "" || r.Reason != code || baremetalv1.Reason_value[code] == 0 {
			bad("failed with code %q and leaves %+v", code, r)
		}
		if st := d.Op.Steps[d.Op.CurrentStep]; st.State != operation.StepFailed || st.FinishedAt.IsZero() ||
			st.Message == "" {
			bad("failed with step %+v", st)
		}
	case operation.Canceled:
		if !changed[fleet.OperationCanceled] || d.Machine.Raise != nil || code != "CANCELED_BY_REQUEST" {
			bad("canceled with code %q and conditions %v", code, changed)
		}
	}
}

// checkStored holds what is stored now against the rules that hold at every moment.
func (s *stored) checkStored(e operation.Event) {
	s.t.Helper()
	op := s.op
	over := operation.IsTerminal(op.Phase)
	if over != op.WakeAt.IsZero() || over == op.FinishedAt.IsZero() || over == s.current || over && op.WaitReason != "" {
		s.t.Fatalf("after %T: %s, wakes at %v, finished at %v, current %t, waits for %q", e, op.Phase, op.WakeAt,
			op.FinishedAt, s.current, op.WaitReason)
	}
	unknown := ""
	for _, c := range s.commands {
		if c.State == operation.Unknown {
			unknown = c.ID
		}
		if !c.Settled() && (over || c.ID != s.latest().ID) {
			s.t.Fatalf("after %T: %s is %s, the operation %s", e, c.ID, c.State, op.Phase)
		}
	}
	if s.fence != unknown {
		s.t.Fatalf("after %T: fence %q, unknown command %q", e, s.fence, unknown)
	}
	for i, st := range op.Steps {
		switch {
		case i < op.CurrentStep && st.State != operation.StepSucceeded,
			i > op.CurrentStep && st.State != operation.StepWaiting,
			i == op.CurrentStep && op.Phase == operation.Running && st.State != operation.StepRunning:
			s.t.Fatalf("after %T: %s at step %d, step %d is %s", e, op.Phase, op.CurrentStep, i, st.State)
		}
	}
}

// reaches reports whether a table has a way, of any length, from one state to another.
func reaches[S comparable](table map[S][]S, from, to S) bool {
	if from == to {
		return true
	}
	for _, next := range table[from] {
		if reaches(table, next, to) {
			return true
		}
	}
	return false
}

func dump(v any) string {
	if snap, ok := v.(operation.Snapshot); ok {
		return fmt.Sprintf("%+v %+v %v %+v", snap.Op, snap.Op.Error, dump(snap.Command), snap.World)
	}
	if c, ok := v.(*operation.Command); ok {
		if c == nil {
			return "no command"
		}
		return fmt.Sprintf("%+v", *c)
	}
	return fmt.Sprintf("%+v", v)
}

func deepCopy(s operation.Snapshot) operation.Snapshot {
	s.Op.Steps = slices.Clone(s.Op.Steps)
	for i := range s.Op.Steps {
		s.Op.Steps[i].Evidence = maps.Clone(s.Op.Steps[i].Evidence)
	}
	s.Op.Evidence = maps.Clone(s.Op.Evidence)
	if s.Op.Error != nil {
		e := *s.Op.Error
		s.Op.Error = &e
	}
	if s.Command != nil {
		c := *s.Command
		c.Evidence, c.Digest = maps.Clone(c.Evidence), slices.Clone(c.Digest)
		s.Command = &c
	}
	s.World.Candidates = slices.Clone(s.World.Candidates)
	return s
}

// Shorthands for what agents do.

func (s *stored) look() operation.Decision { return s.do(operation.Evaluate{}) }

func (s *stored) ask(c *operation.Command, bootID string) operation.Decision {
	key := [2]string{c.ExecutorID, c.ExecutorStateID}
	return s.do(operation.GrantAsked{
		CommandID: c.ID, AgentID: c.ExecutorID, StateID: c.ExecutorStateID, BootID: bootID, Seq: s.lastGrant[key] + 1,
		Digest:  c.Digest,
		Earlier: []uint64{c.GrantSeq},
	})
}

func (s *stored) result(c *operation.Command, o operation.Outcome, evidence map[string]string) operation.Decision {
	return s.do(operation.Resulted{CommandID: c.ID, AgentID: c.ExecutorID, StateID: c.ExecutorStateID, Outcome: o,
		Evidence: evidence})
}

// started gives an operation whose first command is with its executor.
func started(t *testing.T, steps ...operation.Step) *stored {
	t.Helper()
	s := newStored(t, steps...)
	s.look()
	if c := s.latest(); c == nil || c.State != operation.Sent {
		t.Fatalf("the first look made %s", dump(c))
	}
	return s
}

// granted is started with the command granted.
func granted(t *testing.T, steps ...operation.Step) *stored {
	t.Helper()
	s := started(t, steps...)
	if d := s.ask(s.latest(), s.world.TargetBootID); !d.Grant {
		t.Fatalf("no grant: %+v", d.Refusal)
	}
	return s
}

func (s *stored) ended(phase operation.Phase, code string) {
	s.t.Helper()
	got := ""
	if s.op.Error != nil {
		got = s.op.Error.Code
	}
	if s.op.Phase != phase || got != code {
		s.t.Fatalf("the operation is %s %q, want %s %q", s.op.Phase, got, phase, code)
	}
}

// follow keeps the causes of NeedsIntervention as the store does.
func (s *stored) follow(m operation.MachineChange) {
	for c, subject := range s.causes {
		if fleet.Cured(c, subject, m.Happened) {
			delete(s.causes, c)
		}
	}
	if m.Raise != nil {
		s.causes[m.Raise.Cause] = m.Raise.Subject
	}
	s.conditions[fleet.NeedsIntervention] = len(s.causes) > 0
}

func (s *stored) raise(c fleet.Cause, subject string) {
	s.causes[c] = subject
	s.conditions[fleet.NeedsIntervention] = true
}

// BenchmarkDecide decides on each event of a reboot and of a configuration by the machine's own agent.
func BenchmarkDecide(b *testing.B) {
	type moment struct {
		snap operation.Snapshot
		e    operation.Event
		now  time.Time
	}
	var list []moment
	s := newStored(b, reboot(), reconfig())
	brings := func(e operation.Event) {
		seen := maps.Clone(s.lastGrant)
		list = append(list, moment{deepCopy(s.snapshot(e)), e, s.now})
		s.lastGrant = seen
		s.do(e)
		s.now = s.now.Add(time.Second)
	}
	executes := func(seen map[string]string) {
		c := s.latest()
		key := [2]string{c.ExecutorID, c.ExecutorStateID}
		brings(operation.AckedByAgent{CommandID: c.ID, AgentID: c.ExecutorID})
		brings(operation.GrantAsked{CommandID: c.ID, AgentID: c.ExecutorID, StateID: c.ExecutorStateID,
			BootID: s.world.TargetBootID, Seq: s.lastGrant[key] + 1, Digest: c.Digest})
		brings(operation.Evaluate{})
		brings(operation.Resulted{CommandID: c.ID, AgentID: c.ExecutorID, StateID: c.ExecutorStateID,
			Outcome: operation.OutcomeSucceeded, Evidence: seen})
	}
	brings(operation.Evaluate{})
	executes(nil)
	s.world.TargetBootID = "boot-2"
	brings(operation.SessionOpened{AgentID: hostID, StateID: "s-1", BootID: "boot-2", OfTarget: true})
	executes(map[string]string{"config_digest": "sha256:1"})
	s.ended(operation.Succeeded, "")
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		m := &list[i%len(list)]
		decider.Decide(m.snap, m.e, m.now)
	}
}

package harness

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// States of a command that nothing but a late result, proof or an operator moves any more.
var settled = []string{"DONE", "CANCELED", "EXPIRED", "UNKNOWN"}

// History is everything that happened to one machine: what the API says, and what the world saw.
type History struct {
	Machine    *baremetalv1.Machine
	Operations []*baremetalv1.Operation // oldest first
	Commands   []*baremetalv1.Command   // oldest first
	Journal    []sim.EffectRecord
	// Pending counts effects that the world has accepted and that are still to come.
	Pending int
}

// History reads it. A machine whose world is shared sees its own part of the journal only.
func (m *Machine) History() History {
	m.t.Helper()
	var h History
	// The parts are read one after the other; they belong together if the machine has not changed meanwhile.
	testkit.Eventually(m.t, time.Minute, func() bool {
		h = History{Machine: m.c.Machine(m.ID), Operations: m.c.OperationsOf(m.ID), Commands: m.c.Commands(m.ID)}
		return m.c.Machine(m.ID).GetVersion() == h.Machine.GetVersion()
	}, "machine %s never stands still", m.ID)
	slices.Reverse(h.Operations)
	slices.SortStableFunc(h.Commands, func(a, b *baremetalv1.Command) int {
		return a.GetCreatedAt().AsTime().Compare(b.GetCreatedAt().AsTime())
	})
	for _, r := range m.Journal() {
		if r.MachineID == m.o.SimID || r.MachineID == m.ID {
			h.Journal = append(h.Journal, r)
		}
	}
	st, err := m.World.State(m.o.SimID)
	if err != nil {
		m.t.Fatalf("read world: %v", err)
	}
	h.Pending = len(st.Pending)
	return h
}

// WaitQuiet waits until no operation is active and no accepted effect is still to come.
func (m *Machine) WaitQuiet(limit time.Duration) History {
	m.t.Helper()
	var h History
	testkit.Eventually(m.t, limit, func() bool {
		h = m.History()
		return h.Machine.GetStatus().GetActiveOperationId() == "" && h.Pending == 0
	}, "machine %s does not come to rest: %v", m.ID, lazy(func() string { return h.String() }))
	return h
}

// Problems gives every contradiction: against what the controller promises, and between what it says and what the world
// saw. It expects a machine at rest.
func (h History) Problems() []string {
	p := &problems{h: h, effects: map[string][]sim.EffectRecord{}, asked: map[string][]sim.EffectRecord{}}
	for _, r := range h.Journal {
		switch r.Stage {
		case sim.StageEffect:
			p.effects[r.CommandID] = append(p.effects[r.CommandID], r)
		case sim.StageAsked:
			p.asked[r.CommandID] = append(p.asked[r.CommandID], r)
		}
	}
	p.operations()
	p.fence()
	for i, c := range h.Commands {
		p.command(c)
		if i > 0 {
			p.follows(h.Commands[i-1], c)
		}
	}
	p.strangers()
	return p.found
}

type problems struct {
	h              History
	effects, asked map[string][]sim.EffectRecord
	found          []string
}

func (p *problems) add(format string, args ...any) {
	p.found = append(p.found, fmt.Sprintf(format, args...))
}

// operations: each has ended, none overlaps another, and the machine points to none.
func (p *problems) operations() {
	if id := p.h.Machine.GetStatus().GetActiveOperationId(); id != "" {
		p.add("the machine points to operation %s", id)
	}
	for i, o := range p.h.Operations {
		if !Ended(o) {
			p.add("operation %s is %s", o.GetOperationId(), o.GetPhase())
		}
		if i > 0 && o.GetCreatedAt().AsTime().Before(p.h.Operations[i-1].GetFinishedAt().AsTime()) {
			p.add("operation %s began before %s ended", o.GetOperationId(), p.h.Operations[i-1].GetOperationId())
		}
		if (o.GetPhase() == baremetalv1.Operation_FAILED) != (o.GetError() != nil && o.GetPhase() != baremetalv1.Operation_CANCELED) {
			p.add("operation %s is %s with error %v", o.GetOperationId(), o.GetPhase(), o.GetError())
		}
		if o.GetPhase() == baremetalv1.Operation_SUCCEEDED {
			p.succeeded(o)
		}
	}
}

// fence: the machine names an unresolved command exactly when there is one.
func (p *problems) fence() {
	fenced := p.h.Machine.GetStatus().GetUnresolvedCommandId()
	var open []string
	for _, c := range p.h.Commands {
		if c.GetState() == "UNKNOWN" {
			open = append(open, c.GetCommandId())
		}
	}
	switch {
	case fenced == "" && len(open) > 0:
		p.add("commands %v are unresolved and the machine is not fenced", open)
	case fenced != "" && (len(open) != 1 || open[0] != fenced):
		p.add("the machine is fenced over %s, unresolved are %v", fenced, open)
	}
}

// command: settled, at most one effect of a kind, and none without a grant, before it, or after the end.
func (p *problems) command(c *baremetalv1.Command) {
	id := c.GetCommandId()
	if !slices.Contains(settled, c.GetState()) {
		p.add("command %s is still %s", id, c.GetState())
	}
	effects := p.effects[id]
	byKind := map[sim.Kind]int{}
	for _, e := range effects {
		byKind[e.Kind]++
	}
	for kind, n := range byKind {
		if n > 1 {
			p.add("command %s had %d effects of kind %s", id, n, kind)
		}
	}
	touched := slices.Concat(p.asked[id], effects)
	if len(touched) > 0 && c.GetGrantedAt() == nil {
		p.add("command %s (%s) touched the world without a grant: %v", id, c.GetState(), touched[0])
	}
	for _, e := range touched {
		if c.GetGrantedAt() != nil && e.At.Before(c.GetGrantedAt().AsTime().Add(-clockSlack)) {
			p.add("command %s touched the world %v before its grant", id, c.GetGrantedAt().AsTime().Sub(e.At))
		}
		// What was settled later than its operation ended may have acted in between; that is what the fence is for.
		if c.GetState() == "DONE" && c.GetSettledBy() == "" && e.At.After(c.GetFinishedAt().AsTime().Add(clockSlack)) {
			p.add("command %s acted (%s %s) %v after its result", id, e.Stage, e.Kind, e.At.Sub(c.GetFinishedAt().AsTime()))
		}
	}
}

// clockSlack covers the rounding of stored times to microseconds.
const clockSlack = time.Millisecond

// follows: attempts do not overlap, in the database or in the world, and none comes after a success.
func (p *problems) follows(a, b *baremetalv1.Command) {
	if b.GetCreatedAt().AsTime().Before(a.GetFinishedAt().AsTime()) {
		p.add("command %s was made before %s was settled", b.GetCommandId(), a.GetCommandId())
	}
	sameStep := a.GetOperationId() == b.GetOperationId() && a.GetStep() == b.GetStep()
	if sameStep && a.GetOutcome() == "SUCCEEDED" {
		p.add("attempt %d of step %s follows a success", b.GetAttempt(), b.GetStep())
	}
	if sameStep && a.GetState() == "UNKNOWN" {
		p.add("attempt %d of step %s follows one whose outcome is unknown", b.GetAttempt(), b.GetStep())
	}
	first := slices.MinFunc(append(p.asked[b.GetCommandId()], sim.EffectRecord{At: endOfTime}), byTime)
	for _, e := range p.effects[a.GetCommandId()] {
		if e.At.After(first.At) && a.GetSettledBy() == "" {
			p.add("command %s acted after %s had begun to", a.GetCommandId(), b.GetCommandId())
		}
	}
}

var endOfTime = time.Now().AddDate(100, 0, 0)

func byTime(a, b sim.EffectRecord) int { return a.At.Compare(b.At) }

// effectOf is the one kind of effect that a successful command of a kind has had.
var effectOf = map[string]sim.Kind{"reboot": sim.KindReboot, "repave": sim.KindRepave}

// succeeded: each step that cannot be true without an effect has had exactly one, by its last command.
func (p *problems) succeeded(o *baremetalv1.Operation) {
	last := map[string]*baremetalv1.Command{}
	for _, c := range p.h.Commands {
		if c.GetOperationId() == o.GetOperationId() {
			last[c.GetStep()] = c
		}
	}
	for step, c := range last {
		if c.GetState() != "DONE" || c.GetOutcome() != "SUCCEEDED" {
			p.add("operation %s succeeded with step %s %s %s", o.GetOperationId(), step, c.GetState(), c.GetOutcome())
		}
		kind, ok := effectOf[c.GetKind()]
		if n := sim.CountByCommand(p.h.Journal, kind)[c.GetCommandId()]; ok && n != 1 {
			p.add("operation %s succeeded and command %s of step %s had %d effects", o.GetOperationId(), c.GetCommandId(), step, n)
		}
		if c.GetKind() == "repave" && !p.verified(c.GetCommandId()) {
			p.add("operation %s succeeded over a disk that was not written to its end by %s", o.GetOperationId(), c.GetCommandId())
		}
	}
}

func (p *problems) verified(commandID string) bool {
	return slices.ContainsFunc(p.h.Journal, func(r sim.EffectRecord) bool {
		// A late write is one piece: it is on the disk or it is not.
		return r.CommandID == commandID && (r.Stage == sim.StageVerified || r.Fault == sim.Late)
	})
}

// strangers: nothing acts but commands, their rollbacks, what the agent restores at its start, and the test itself.
func (p *problems) strangers() {
	known := map[string]bool{"restore-at-start": true}
	for _, c := range p.h.Commands {
		known[c.GetCommandId()] = true
		known[c.GetCommandId()+"-rollback"] = true
	}
	for _, id := range slices.Sorted(maps.Keys(p.effects)) {
		if !known[id] && !isOurs(id) {
			p.add("effects of command %q, which the controller does not know", id)
		}
	}
}

// Outside marks effects that a test causes itself.
const Outside = "outside"

func isOurs(id string) bool { return id == Outside }

// Changed gives the operations that were finished in h and are different in later.
func (h History) Changed(later History) []string {
	now := map[string]*baremetalv1.Operation{}
	for _, o := range later.Operations {
		now[o.GetOperationId()] = o
	}
	var out []string
	for _, o := range h.Operations {
		if Ended(o) && !proto.Equal(o, now[o.GetOperationId()]) {
			out = append(out, fmt.Sprintf("finished operation changed from %v to %v", o, now[o.GetOperationId()]))
		}
	}
	return out
}

// String is for the log of a failed test.
func (h History) String() string {
	s := h.Machine.GetStatus()
	out := fmt.Sprintf("machine %s: phase %s, active %q, unresolved %q, pending effects %d\n",
		h.Machine.GetMachineId(), s.GetPhase(), s.GetActiveOperationId(), s.GetUnresolvedCommandId(), h.Pending)
	for _, o := range h.Operations {
		out += fmt.Sprintf("  operation %s %s %s stage=%s wait=%s next=%s error=%v %s–%s\n", o.GetOperationId(), o.GetType(), o.GetPhase(),
			o.GetCurrentStage(), o.GetWaitReason(), clockOf(o.GetNextLookAt()), o.GetError(), clockOf(o.GetCreatedAt()), clockOf(o.GetFinishedAt()))
	}
	for _, c := range h.Commands {
		out += fmt.Sprintf("  command %s of %s %s/%d %s %s by %s settled_by=%q created=%s sent=%s acked=%s granted=%s deadline=%s finished=%s %s\n",
			c.GetCommandId(), c.GetOperationId(), c.GetStep(), c.GetAttempt(), c.GetState(), c.GetOutcome(), c.GetExecutorAgentId(),
			c.GetSettledBy(), clockOf(c.GetCreatedAt()), clockOf(c.GetSentAt()), clockOf(c.GetAckedAt()), clockOf(c.GetGrantedAt()),
			clockOf(c.GetDeadline()), clockOf(c.GetFinishedAt()), c.GetMessage())
	}
	for _, r := range slices.SortedStableFunc(slices.Values(h.Journal), byTime) {
		out += fmt.Sprintf("  world %s %s %s %s %s %s\n", r.At.Format(clockFormat), r.Stage, r.Kind, r.CommandID, cmp.Or(string(r.Fault), "-"), r.Detail)
	}
	return out
}

const clockFormat = "15:04:05.000"

type stamped interface{ AsTime() time.Time }

func clockOf(t stamped) string {
	at := t.AsTime()
	if at.Unix() == 0 {
		return "-"
	}
	return at.UTC().Format(clockFormat)
}

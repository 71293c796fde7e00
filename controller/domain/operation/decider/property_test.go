package decider_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// agent is an executor as it should be: it starts a command only on a grant and once per memory. What it forgets, it
// would do again; the controller must not let it.
type agent struct {
	id, role string
	live     bool
	boot     string
	memory   memory
	copies   []memory
}

// memory is what an agent keeps on its disk.
type memory struct {
	state   string
	seq     uint64
	results map[string]operation.Resulted // by command: started, with the result to come
	asked   []uint64
}

// copy gives a memory of its own.
func (m memory) copy() memory {
	m.results, m.asked = maps.Clone(m.results), slices.Clone(m.asked)
	return m
}

// play is a random history of one operation, with the side effects counted outside of the agents.
type play struct {
	*stored
	agents  map[string]*agent
	effects map[string]int
	boots   int
	states  int
	// sent is what was ever said to the controller: any of it may arrive again.
	sent []operation.Event
}

func newPlay(t *rapid.T) *play {
	k := rapid.SampledFrom([]kind.Kind{kind.Reboot, kind.Reboot, kind.Net,
		kind.Netboot})
	var steps []operation.Step
	for range rapid.IntRange(1, 3).Draw(t, "steps") {
		steps = append(steps, operation.Step{Kind: k.Draw(t, "kind"), MaxRetries: rapid.IntRange(0, 2).Draw(t, "retries")})
	}
	if rapid.Bool().Draw(t, "waits") {
		steps = append(steps, operation.Step{Kind: kind.WaitForAgent})
	}
	p := &play{stored: newStored(t, steps...), effects: map[string]int{}, agents: map[string]*agent{}}
	for id, role := range map[string]string{hostID: "host", siteID: "site"} {
		p.agents[id] = &agent{id: id, role: role, live: true, boot: "boot-1", memory: p.freshMemory()}
	}
	p.agents[siteID].boot = "boot-of-site"
	p.refresh()
	return p
}

func (p *play) freshMemory() memory {
	p.states++
	return memory{state: fmt.Sprintf("s-%d", p.states), results: map[string]operation.Resulted{}}
}

// refresh shows the agents to the controller.
func (p *play) refresh() {
	var c []fleet.Candidate
	for _, id := range []string{hostID, siteID} {
		a := p.agents[id]
		cand := host(a.memory.state, a.live)
		if a.role == "site" {
			cand = site(a.memory.state)
			cand.Live = a.live
		}
		cand.LastSeen = t0
		if a.live {
			cand.LastSeen = p.now
		}
		c = append(c, cand)
	}
	p.setAgents(c...)
	p.world.TargetAgentLive = p.agents[hostID].live
}

// say brings an event that may arrive again later.
func (p *play) say(e operation.Event) operation.Decision {
	p.sent = append(p.sent, e)
	return p.do(e)
}

func (p *play) anyAgent(t *rapid.T) *agent {
	return p.agents[rapid.SampledFrom([]string{hostID, siteID}).Draw(t, "agent")]
}

// held draws a command that this agent was given, nil if there is none.
func (p *play) held(t *rapid.T, a *agent) *operation.Command {
	var mine []*operation.Command
	for _, c := range p.commands {
		if c.ExecutorID == a.id && c.State != operation.Queued {
			mine = append(mine, c)
		}
	}
	if len(mine) == 0 {
		return nil
	}
	return rapid.SampledFrom(mine).Draw(t, "command")
}

// grant asks for leave, and acts on it unless the answer is lost.
func (p *play) grant(t *rapid.T) {
	a := p.anyAgent(t)
	c := p.held(t, a)
	if c == nil || !a.live {
		return
	}
	if _, known := a.memory.results[c.ID]; known {
		return // a known command is answered from memory
	}
	a.memory.seq++
	e := operation.GrantAsked{CommandID: c.ID, AgentID: a.id, StateID: a.memory.state, BootID: a.boot, Seq: a.memory.seq,
		Digest: c.Digest, Earlier: a.memory.asked}
	a.memory.asked = append(a.memory.asked, e.Seq)
	if d := p.do(e); d.Grant && !rapid.Bool().Draw(t, "answer lost") {
		p.act(t, a, c)
	}
}

// act is the side effect, followed by what the executor will say about it.
func (p *play) act(t *rapid.T, a *agent, c *operation.Command) {
	p.effects[c.ID]++
	if p.effects[c.ID] > 1 {
		t.Fatalf("command %s acted %d times", c.ID, p.effects[c.ID])
	}
	r := operation.Resulted{CommandID: c.ID, AgentID: a.id, StateID: a.memory.state, Outcome: operation.OutcomeSucceeded}
	switch rapid.SampledFrom([]string{"done", "done", "claimed", "failed", "unknown", "canceled"}).Draw(t, "end") {
	case "done":
		r.Evidence = map[string]string{evidence.ConfigDigest: "sha256:1", evidence.BootNext: "1"}
		if c.Kind == kind.Reboot {
			p.newBoot()
		}
	case "failed":
		r.Outcome, r.Retryable = operation.OutcomeFailed, true
	case "unknown":
		r.Outcome = operation.OutcomeUnknown
	case "canceled":
		r.Outcome = operation.OutcomeCanceled
	}
	a.memory.results[c.ID] = r
}

func (p *play) newBoot() {
	p.boots++
	p.agents[hostID].boot = fmt.Sprintf("boot-%d", p.boots+1)
}

// report sends a result that an agent holds.
func (p *play) report(t *rapid.T) {
	a := p.anyAgent(t)
	c := p.held(t, a)
	if c == nil || !a.live {
		return
	}
	if r, ok := a.memory.results[c.ID]; ok {
		r.SessionBootID = a.boot
		p.say(r)
	}
}

// session lets an agent come back, with the memory that it has now.
func (p *play) session(a *agent) {
	a.live = true
	key := [2]string{a.id, a.memory.state}
	if a.role == "host" {
		p.world.TargetBootID = a.boot
	}
	p.refresh()
	p.do(operation.SessionOpened{AgentID: a.id, StateID: a.memory.state, BootID: a.boot, OfTarget: a.role == "host",
		RolledBack: a.memory.seq < p.lastGrant[key]})
}

// pass moves the clock, and lets the sweeper look if that is due.
func (p *play) pass(d time.Duration) {
	p.now = p.now.Add(d)
	p.refresh()
	if !p.op.WakeAt.IsZero() && !p.op.WakeAt.After(p.now) {
		p.look()
	}
}

func (p *play) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"time": func(t *rapid.T) { p.pass(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second) },
		"long time": func(t *rapid.T) {
			p.now = p.now.Add(time.Duration(rapid.IntRange(1, 48).Draw(t, "hours")) * time.Hour)
			p.refresh()
		},
		"look": func(*rapid.T) { p.look() },
		"ack": func(t *rapid.T) {
			a := p.anyAgent(t)
			if c := p.held(t, a); c != nil {
				p.say(operation.AckedByAgent{CommandID: c.ID, AgentID: a.id})
			}
		},
		"grant":   p.grant,
		"grant 2": p.grant,
		"report":  p.report,
		"silence": func(t *rapid.T) { p.anyAgent(t).live = false; p.refresh() },
		"session": func(t *rapid.T) { p.session(p.anyAgent(t)) },
		"forget":  func(t *rapid.T) { a := p.anyAgent(t); a.memory = p.freshMemory(); a.live = false; p.refresh() },
		"copy":    func(t *rapid.T) { a := p.anyAgent(t); a.copies = append(a.copies, a.memory.copy()) },
		"roll back": func(t *rapid.T) {
			a := p.anyAgent(t)
			if len(a.copies) > 0 {
				a.memory = rapid.SampledFrom(a.copies).Draw(t, "copy").copy()
				p.refresh()
			}
		},
		"reboot by itself": func(t *rapid.T) { p.newBoot(); p.agents[hostID].live = false; p.refresh() },
		"cancel":           func(*rapid.T) { p.do(operation.CancelAsked{Actor: "x"}) },
		"again": func(t *rapid.T) {
			if len(p.sent) > 0 {
				p.do(rapid.SampledFrom(p.sent).Draw(t, "event"))
			}
		},
		"stranger": func(t *rapid.T) {
			if c := p.latest(); c != nil {
				p.do(operation.Resulted{CommandID: c.ID, AgentID: "a-stranger", Outcome: operation.OutcomeSucceeded})
				p.do(operation.GrantAsked{CommandID: c.ID, AgentID: "a-stranger", StateID: c.ExecutorStateID, Seq: 1 << 40,
					Digest: c.Digest})
			}
		},
		"": func(t *rapid.T) { p.holds(t) },
	}
}

// holds is what must be true of the history at every moment, besides what stored holds after every event.
func (p *play) holds(t *rapid.T) {
	for id := range p.effects {
		if c := p.command(id); c.GrantedAt.IsZero() {
			t.Fatalf("%s acted and was never granted", id)
		}
	}
	for _, c := range p.commands {
		if c.State == operation.CommandCanceled || c.State == operation.Expired {
			if p.effects[c.ID] > 0 {
				t.Fatalf("%s is %s and has acted", c.ID, c.State)
			}
		}
	}
	if p.op.Phase != operation.Succeeded {
		return
	}
	for i, st := range p.op.Steps {
		done := 0
		for _, c := range p.commands {
			if c.StepIdx == i && c.Outcome == operation.OutcomeSucceeded && c.State == operation.Done {
				done++
			}
			if c.StepIdx == i && c.Kind == kind.Reboot && c.State == operation.Done &&
				c.Outcome == operation.OutcomeSucceeded && p.boots == 0 {
				t.Fatalf("%s counts as done and nothing ever booted", c.ID)
			}
		}
		if st.Kind != kind.WaitForAgent && done != 1 {
			t.Fatalf("step %s succeeded by %d commands", st.Name, done)
		}
	}
}

// longest is the longest that an operation can take when somebody looks at it in time: each attempt waits for an
// executor, for its grant, and for its result.
func (p *play) longest() time.Duration {
	sum := 2 * time.Minute
	for _, st := range p.op.Steps {
		sum += time.Duration(st.MaxRetries+1) * (3*st.Timeout + time.Minute)
	}
	return sum
}

func TestAnyHistory(t *testing.T) {
	manyChecks(t)
	rapid.Check(t, func(t *rapid.T) {
		p := newPlay(t)
		actions := p.actions()
		t.Repeat(actions)
		// From here on somebody looks in time, and agents forget and come back whenever they like.
		nasty := rapid.Bool().Draw(t, "nasty")
		for end := p.now.Add(p.longest()); !operation.IsTerminal(p.op.Phase); p.pass(10 * time.Second) {
			if p.now.After(end) {
				t.Fatalf("after %v the operation is still %s, waits for %q", p.longest(), p.op.Phase, p.op.WaitReason)
			}
			if nasty {
				p.agents[hostID].memory = p.freshMemory()
				p.session(p.agents[hostID])
			}
		}
		p.holds(t)
		t.Repeat(actions) // and now it is deaf
	})
}

// manyChecks asks rapid for more than its default, unless somebody has asked for another number.
func manyChecks(t *testing.T) {
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("1000"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Value.Set(f.DefValue) }) // it was a valid value before
	}
}

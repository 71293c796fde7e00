package rollout_test

import (
	"time"

	"pgregory.net/rapid"

	"github.com/ingot-metal/ingot/controller/domain/rollout"
)

// play is a rollout over machines that are nothing but their states, as a store would keep them.
type play struct {
	t     *rapid.T
	spec  rollout.Spec
	order []rollout.Machine
	wave  map[string]int
	state map[string]string // pending, running, succeeded, failed, skipped, canceled
	w     rollout.World
	clock time.Time
	// closedAt are the touched and running machines when a gate closed, -1 before.
	touchedAtClose int
	failing        int
	d              rollout.Decision
}

func newPlay(t *rapid.T) *play {
	draw := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, name) }
	p := &play{
		t: t, clock: now, touchedAtClose: -1, wave: map[string]int{}, state: map[string]string{},
		failing: draw("failing percent", 0, 60),
		spec: rollout.Spec{
			Canary: draw("canary", 0, 3), MaxInFlight: draw("in flight", 0, 6), MaxPerDomain: draw("per domain", 0, 3),
			WaveGate:  rollout.Gate{Failures: draw("wave failures", 0, 3), Percent: draw("wave percent", 0, 100)},
			TotalGate: rollout.Gate{Failures: draw("failures", 0, 5)}, Soak: time.Duration(draw("soak", 0, 2)) * time.Minute,
			CancelOnGate: rapid.Bool().Draw(t, "cancel on gate"),
		},
	}
	if rapid.Bool().Draw(t, "halves") {
		p.spec.Percents = []int{50, 100}
	}
	var domains []string
	for range draw("machines", 1, 25) {
		domains = append(domains, rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(t, "domain"))
	}
	p.order = rollout.Order(machines(domains...))
	rest := p.order
	sizes := rollout.Waves(p.spec, len(p.order))
	for i, n := range sizes {
		for _, m := range rest[:n] {
			p.wave[m.ID], p.state[m.ID] = i+1, "pending"
		}
		rest = rest[n:]
	}
	if len(rest) > 0 {
		t.Fatalf("%d machines are in no wave", len(rest))
	}
	p.w = rollout.World{State: rollout.Running, Waves: len(sizes)}
	return p
}

func (p *play) tally(wave int) rollout.Tally {
	var t rollout.Tally
	for id, s := range p.state {
		if wave > 0 && p.wave[id] != wave {
			continue
		}
		one := rollout.Tally{Machines: 1}
		switch s {
		case "pending":
			one.Pending = 1
		case "running":
			one.Running = 1
		case "succeeded":
			one.Succeeded = 1
		case "failed":
			one.Failed = 1
		case "skipped":
			one.Skipped = 1
		case "canceled":
			one.Canceled = 1
		}
		t = t.Add(one)
	}
	return t
}

// look reads the stored state, decides, and stores.
func (p *play) look() {
	p.w.Total, p.w.InWave, p.w.InDomain, p.w.Pending = p.tally(0), rollout.Tally{}, map[string]int{}, nil
	if p.w.Wave > 0 {
		p.w.InWave = p.tally(p.w.Wave)
	}
	for _, m := range p.order {
		switch {
		case p.state[m.ID] == "running":
			p.w.InDomain[m.Domain]++
		case p.state[m.ID] == "pending" && p.wave[m.ID] == p.w.Wave:
			p.w.Pending = append(p.w.Pending, m)
		}
	}
	p.w.FleetFrozen = rapid.IntRange(0, 19).Draw(p.t, "frozen") == 0
	d := rollout.Decide(p.spec, p.w, p.clock)
	for _, id := range d.Start {
		if p.state[id] != "pending" || p.wave[id] != p.w.Wave {
			p.t.Fatalf("%s is started in wave %d and is %s in wave %d", id, p.w.Wave, p.state[id], p.wave[id])
		}
		p.state[id] = "running"
	}
	if d.CancelPending {
		for id, s := range p.state {
			if s == "pending" {
				p.state[id] = "canceled"
			}
		}
	}
	if d.Cause == rollout.ByGate && p.touchedAtClose < 0 {
		p.touchedAtClose = p.touched()
	}
	p.d = d
	p.w.State, p.w.Cause, p.w.Wave, p.w.SoakUntil, p.w.Acked, p.w.AckedWave = d.State, d.Cause, d.Wave, d.SoakUntil,
		d.Acked, d.AckedWave
}

func (p *play) touched() int {
	t := p.tally(0)
	return t.Running + t.Succeeded + t.Failed
}

// check holds the promises after a look, counted anew.
func (p *play) check() {
	running, domains := 0, map[string]int{}
	for _, m := range p.order {
		if p.state[m.ID] == "running" {
			running++
			domains[m.Domain]++
		}
	}
	if p.spec.MaxInFlight > 0 && running > p.spec.MaxInFlight {
		p.t.Fatalf("%d in flight of %d", running, p.spec.MaxInFlight)
	}
	for d, n := range domains {
		if p.spec.MaxPerDomain > 0 && n > p.spec.MaxPerDomain {
			p.t.Fatalf("%d in domain %q of %d", n, d, p.spec.MaxPerDomain)
		}
	}
	if p.touchedAtClose >= 0 && p.touched() > p.touchedAtClose {
		p.t.Fatalf("%d were touched when the gate closed, now %d are", p.touchedAtClose, p.touched())
	}
	t := p.tally(0)
	if g := p.spec.TotalGate.Failures; g > 0 && p.spec.MaxInFlight > 0 && t.Failed-p.w.Acked > g-1+p.spec.MaxInFlight {
		p.t.Fatalf("%d failed under a gate of %d with %d in flight", t.Failed, g, p.spec.MaxInFlight)
	}
	// It ends, goes on at once, or waits for a named event that will be reported.
	switch {
	case p.d.State.Ended():
	case p.d.Wait == "" && p.d.Next.IsZero():
		p.t.Fatalf("waits for nothing: %+v", p.d)
	case p.d.Wait != "" && p.d.Next.IsZero() && p.d.State != rollout.Paused:
		p.t.Fatalf("nobody will look again: %+v", p.d)
	}
}

// happens lets operations end, persons act, and time pass.
func (p *play) happens() {
	for _, m := range p.order {
		if p.state[m.ID] != "running" || rapid.IntRange(0, 2).Draw(p.t, "goes on") == 0 {
			continue
		}
		p.state[m.ID] = "succeeded"
		if luck := rapid.IntRange(0, 99).Draw(p.t, "luck"); luck < p.failing {
			p.state[m.ID] = "failed"
		} else if luck == 99 {
			p.state[m.ID] = "skipped"
		}
	}
	if p.w.State == rollout.Paused && p.d.Next.IsZero() || rapid.IntRange(0, 19).Draw(p.t, "person") == 0 {
		p.act(rapid.SampledFrom([]rollout.Action{rollout.Pause, rollout.Resume, rollout.Resume, rollout.Cancel}).Draw(p.t,
			"action"))
	}
	p.clock = p.clock.Add(time.Duration(rapid.IntRange(1, 60).Draw(p.t, "seconds")) * time.Second)
}

func (p *play) act(a rollout.Action) {
	o := rollout.Act(p.w.State, a)
	if o.Refused != "" || o.To == p.w.State {
		return
	}
	p.w.State = o.To
	switch a {
	case rollout.Resume:
		p.w.Cause, p.w.Acked, p.w.AckedWave, p.touchedAtClose = "", p.tally(0).Failed, p.tally(p.w.Wave).Failed, -1
	case rollout.Pause, rollout.Cancel:
		p.w.Cause = rollout.Operator
	case rollout.Approve:
	}
}

// final: nothing is left over, and the state matches the results.
func (p *play) final() {
	t := p.tally(0)
	if t.Pending+t.Running > 0 {
		p.t.Fatalf("it has ended %s with %+v", p.w.State, t)
	}
	if p.w.State == rollout.Succeeded && t.Succeeded < t.Machines {
		p.t.Fatalf("it has succeeded with %+v", t)
	}
	if p.w.State == rollout.CompletedWithFailures && t.Succeeded == t.Machines {
		p.t.Fatalf("it has ended with failures, and has none: %+v", t)
	}
	// The same look again decides the same.
	if d := rollout.Decide(p.spec, p.w, p.clock); d.State != p.w.State || len(d.Start) > 0 || !d.Next.IsZero() {
		p.t.Fatalf("an ended rollout moves: %+v", d)
	}
}

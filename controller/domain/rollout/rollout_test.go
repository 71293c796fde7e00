package rollout_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ingot-metal/ingot/controller/domain/budget"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/rollout"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func machines(domains ...string) []rollout.Machine {
	var out []rollout.Machine
	for i, d := range domains {
		out = append(out, rollout.Machine{ID: fmt.Sprintf("m-%02d", i+1), Domain: d})
	}
	return out
}

func TestOrderIsStableAndGoesOverDomains(t *testing.T) {
	all := machines("a", "a", "a", "b", "b", "")
	want := []string{"m-06", "m-01", "m-04", "m-02", "m-05", "m-03"}
	for seed := range uint64(20) {
		shuffled := slices.Clone(all)
		rng := rand.New(rand.NewPCG(seed, 1))
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		var got []string
		for _, m := range rollout.Order(shuffled) {
			got = append(got, m.ID)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: %v, want %v", seed, got, want)
		}
	}
}

func TestWaves(t *testing.T) {
	for name, c := range map[string]struct {
		spec rollout.Spec
		n    int
		want []int
	}{
		"one wave":                        {rollout.Spec{}, 7, []int{7}},
		"no machines":                     {rollout.Spec{Canary: 1}, 0, nil},
		"a canary":                        {rollout.Spec{Canary: 2}, 7, []int{2, 5}},
		"a canary larger than all":        {rollout.Spec{Canary: 9}, 7, []int{7}},
		"percentages are of all":          {rollout.Spec{Canary: 1, Percents: []int{10, 50, 100}}, 100, []int{1, 9, 40, 50}},
		"the last one is understood":      {rollout.Spec{Percents: []int{25}}, 8, []int{2, 6}},
		"they are rounded up":             {rollout.Spec{Percents: []int{1, 50}}, 3, []int{1, 1, 1}},
		"empty waves are left out":        {rollout.Spec{Canary: 5, Percents: []int{10, 20, 30}}, 10, []int{5, 5}},
		"a canary that is the percentage": {rollout.Spec{Canary: 1, Percents: []int{10}}, 10, []int{1, 9}},
	} {
		if got := rollout.Waves(c.spec, c.n); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestEveryActionInEveryState is the table as people read it: the next state, or why not.
func TestEveryActionInEveryState(t *testing.T) {
	want := map[rollout.State]string{ // approve, pause, resume, cancel
		rollout.AwaitingApproval:      "RUNNING ROLLOUT_NOT_APPROVED ROLLOUT_NOT_APPROVED STOPPING",
		rollout.Running:               "RUNNING PAUSED RUNNING STOPPING",
		rollout.Paused:                "PAUSED PAUSED RUNNING STOPPING",
		rollout.Stopping:              "ROLLOUT_STOPPED ROLLOUT_STOPPED ROLLOUT_STOPPED STOPPING",
		rollout.Succeeded:             "ROLLOUT_ENDED ROLLOUT_ENDED ROLLOUT_ENDED ROLLOUT_ENDED",
		rollout.Failed:                "ROLLOUT_ENDED ROLLOUT_ENDED ROLLOUT_ENDED ROLLOUT_ENDED",
		rollout.CompletedWithFailures: "ROLLOUT_ENDED ROLLOUT_ENDED ROLLOUT_ENDED ROLLOUT_ENDED",
		rollout.Canceled:              "ROLLOUT_ENDED ROLLOUT_ENDED ROLLOUT_ENDED CANCELED",
	}
	for _, s := range rollout.States() {
		got := ""
		for _, a := range rollout.Actions() {
			o := rollout.Act(s, a)
			if (o.To == "") == (o.Refused == "") {
				t.Errorf("%s in %s: %+v", a, s, o)
			}
			if o.To != "" && o.To != s {
				// A repeat changes nothing.
				if again := rollout.Act(o.To, a); again.To != o.To {
					t.Errorf("%s in %s, then again: %+v", a, s, again)
				}
			}
			got += " " + string(o.To) + o.Refused
		}
		if got != " "+want[s] {
			t.Errorf("%s:%s, want %s", s, got, want[s])
		}
	}
}

func TestDecide(t *testing.T) {
	pending := machines("a", "a", "b")
	in := func(wave rollout.Tally) rollout.World {
		wave.Machines = wave.Pending + wave.Running + wave.Succeeded + wave.Failed + wave.Skipped + wave.Canceled
		return rollout.World{
			State: rollout.Running, Wave: 1, Waves: 2, InWave: wave, Total: wave.Add(rollout.Tally{Machines: 10, Pending: 10}),
			InDomain: map[string]int{}, Pending: pending[:min(wave.Pending, 3)],
		}
	}
	with := func(w rollout.World, change func(*rollout.World)) rollout.World { change(&w); return w }
	last := func(w rollout.World) rollout.World {
		w.Total, w.Waves = w.InWave, 1
		return w
	}
	total := rollout.Spec{TotalGate: rollout.Gate{Failures: 1}}
	for name, c := range map[string]struct {
		spec  rollout.Spec
		world rollout.World
		want  string // state, wait, starts, wave
	}{
		"the first wave begins": {total, with(in(rollout.Tally{}), func(w *rollout.World) { w.Wave = 0 }),
			"RUNNING  [] 1"},
		"all at once": {total, in(rollout.Tally{Pending: 3}),
			"RUNNING WAITING_FOR_MACHINES [m-01 m-02 m-03] 1"},
		"two in flight": {rollout.Spec{MaxInFlight: 2}, in(rollout.Tally{Pending: 3, Running: 1}),
			"RUNNING WAITING_FOR_MACHINES [m-01] 1"},
		"none more than that": {rollout.Spec{MaxInFlight: 2}, in(rollout.Tally{Pending: 3, Running: 2}),
			"RUNNING WAITING_FOR_MACHINES [] 1"},
		"a lower limit starts none": {rollout.Spec{MaxInFlight: 2}, in(rollout.Tally{Pending: 3, Running: 5}),
			"RUNNING WAITING_FOR_MACHINES [] 1"},
		"one of each domain": {rollout.Spec{MaxPerDomain: 1}, in(rollout.Tally{Pending: 3}),
			"RUNNING WAITING_FOR_MACHINES [m-01 m-03] 1"},
		"a full domain is passed by": {rollout.Spec{MaxPerDomain: 1},
			with(in(rollout.Tally{Pending: 3, Running: 1}), func(w *rollout.World) { w.InDomain["a"] = 1 }),
			"RUNNING WAITING_FOR_MACHINES [m-03] 1"},
		"frozen": {total, with(in(rollout.Tally{Pending: 3}), func(w *rollout.World) { w.FleetFrozen = true }),
			"RUNNING FLEET_FROZEN [] 1"},
		"held by a budget": {total, with(in(rollout.Tally{Running: 2}), func(w *rollout.World) { w.HeldByBudget = 2 }),
			"RUNNING WAITING_FOR_BUDGET [] 1"},
		"a wave that is over": {total, in(rollout.Tally{Succeeded: 2, Skipped: 1}), "RUNNING  [] 2"},
		"it rests first":      {rollout.Spec{Soak: time.Minute}, in(rollout.Tally{Succeeded: 2}), "RUNNING SOAKING [] 1"},
		"it still rests": {rollout.Spec{Soak: time.Minute},
			with(in(rollout.Tally{Succeeded: 2}), func(w *rollout.World) { w.SoakUntil = now.Add(1) }), "RUNNING SOAKING [] 1"},
		"it has rested": {rollout.Spec{Soak: time.Minute},
			with(in(rollout.Tally{Succeeded: 2}), func(w *rollout.World) { w.SoakUntil = now }), "RUNNING  [] 2"},
		"it does not rest at the end": {
			rollout.Spec{Soak: time.Minute}, last(in(rollout.Tally{Succeeded: 2})), "SUCCEEDED  [] 1",
		},
		"a gate closes": {total, in(rollout.Tally{Pending: 2, Running: 1, Failed: 1}),
			"PAUSED PAUSED_BY_GATE [] 1"},
		"a gate closes while it rests": {total,
			with(in(rollout.Tally{Failed: 1}), func(w *rollout.World) { w.SoakUntil = now.Add(1) }),
			"PAUSED PAUSED_BY_GATE [] 1"},
		"acknowledged failures": {total, with(in(rollout.Tally{Pending: 1, Failed: 3}),
			func(w *rollout.World) { w.Acked = 3 }), "RUNNING WAITING_FOR_MACHINES [m-01] 1"},
		"one more than acknowledged": {total, with(in(rollout.Tally{Pending: 1, Failed: 4}),
			func(w *rollout.World) { w.Acked = 3 }), "PAUSED PAUSED_BY_GATE [] 1"},
		"a gate cancels": {rollout.Spec{TotalGate: rollout.Gate{Failures: 1}, CancelOnGate: true},
			in(rollout.Tally{Pending: 2, Running: 1, Failed: 1}), "STOPPING WAITING_FOR_MACHINES [] 1"},
		"a gate cancels what is over": {rollout.Spec{TotalGate: rollout.Gate{Failures: 1}, CancelOnGate: true},
			in(rollout.Tally{Pending: 2, Failed: 1}), "FAILED  [] 1"},
		"the wave's share": {rollout.Spec{WaveGate: rollout.Gate{Percent: 50}},
			in(rollout.Tally{Pending: 2, Failed: 2}), "PAUSED PAUSED_BY_GATE [] 1"},
		"less than the wave's share": {rollout.Spec{WaveGate: rollout.Gate{Percent: 50}},
			in(rollout.Tally{Pending: 3, Failed: 2}), "RUNNING WAITING_FOR_MACHINES [m-01 m-02 m-03] 1"},
		"the skipped make no share": {rollout.Spec{WaveGate: rollout.Gate{Percent: 50}},
			in(rollout.Tally{Pending: 2, Failed: 2, Skipped: 5}), "PAUSED PAUSED_BY_GATE [] 1"},
		"skipped are no failures": {total, in(rollout.Tally{Pending: 1, Skipped: 5}),
			"RUNNING WAITING_FOR_MACHINES [m-01] 1"},
		"canceled are no failures": {total, in(rollout.Tally{Pending: 1, Canceled: 5}),
			"RUNNING WAITING_FOR_MACHINES [m-01] 1"},
		"the last machines fail": {total, last(in(rollout.Tally{Succeeded: 2, Failed: 1})), "FAILED  [] 1"},
		"the gate is for those to come": {total, last(in(rollout.Tally{Running: 1, Failed: 1})),
			"RUNNING WAITING_FOR_MACHINES [] 1"},
		"all skipped": {total, last(in(rollout.Tally{Skipped: 2})), "COMPLETED_WITH_FAILURES  [] 1"},
		"all refused but one": {total, with(last(in(rollout.Tally{Succeeded: 1, Skipped: 2})),
			func(w *rollout.World) { w.Refused = 2 }), "SUCCEEDED  [] 1"},
		"paused": {total,
			with(in(rollout.Tally{Pending: 2}), func(w *rollout.World) { w.State, w.Cause = rollout.Paused, rollout.Operator }),
			"PAUSED PAUSED_BY_OPERATOR [] 1"},
		"paused, and nothing left": {
			total, with(last(in(rollout.Tally{Succeeded: 2})),
				func(w *rollout.World) { w.State, w.Cause = rollout.Paused, rollout.Operator }), "SUCCEEDED  [] 1",
		},
		"stopping": {total,
			with(in(rollout.Tally{Running: 2}), func(w *rollout.World) {
				w.State, w.Cause = rollout.Stopping,
					rollout.Operator
			}), "STOPPING WAITING_FOR_MACHINES [] 1"},
		"stopped": {total,
			with(in(rollout.Tally{Succeeded: 2}), func(w *rollout.World) {
				w.State, w.Cause = rollout.Stopping,
					rollout.Operator
			}), "CANCELED  [] 1"},
		"not approved": {total,
			with(in(rollout.Tally{Pending: 2}), func(w *rollout.World) { w.State = rollout.AwaitingApproval }),
			"AWAITING_APPROVAL WAITING_FOR_APPROVAL [] 1"},
	} {
		t.Run(name, func(t *testing.T) {
			d := rollout.Decide(c.spec, c.world, now)
			if got := fmt.Sprintf("%s %s %v %d", d.State, d.Wait, d.Start, d.Wave); got != c.want {
				t.Errorf("got  %s (%s)\nwant %s", got, d.Message, c.want)
			}
			if d.CancelPending != (d.State == rollout.Stopping || d.State == rollout.Canceled || d.State == rollout.Failed &&
				c.spec.CancelOnGate) {
				t.Errorf("cancels those to come: %t", d.CancelPending)
			}
		})
	}
}

func TestBoundNamesBudgetsThatLeaveTooLittle(t *testing.T) {
	all := rollout.Order(machines("a", "a", "a", "b"))
	places := map[string]budget.Place{}
	for _, m := range all {
		places[m.ID] = budget.Place{Site: "s", Labels: map[string]string{"rack": m.Domain}}
	}
	rules := []budget.Rule{
		{Name: "racks", Domain: "label:rack", AtOnce: 1}, {Name: "day", Domain: budget.Fleet, PerDay: 3, AtOnce: 9},
	}
	harmless := func(string) []kind.Harm { return []kind.Harm{kind.Harmless} }
	got := ""
	for _, u := range rollout.Bound(rollout.Spec{}, rules, nil, all, places, harmless, now) {
		got += fmt.Sprintf("%s %s %s: %d of %d; ", u.Rule.Name, u.Value, u.Kind, u.Wanted, u.Limit)
	}
	if want := "racks a at once: 3 of 1; day  per day: 4 of 3; "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// One of each domain at a time needs no more than the budget has.
	if spread := rollout.Bound(
		rollout.Spec{MaxPerDomain: 1},
		rules[:1],
		nil,
		all,
		places,
		harmless,
		now,
	); len(
		spread,
	) > 0 {
		t.Errorf("%+v", spread)
	}
}

// TestNoRolloutBreaksItsLimits plays whole rollouts: specs, fleets and luck are drawn.
func TestNoRolloutBreaksItsLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPlay(t)
		for look := 0; !p.w.State.Ended(); look++ {
			if look > 5000 {
				t.Fatalf("no end: %+v", p.w)
			}
			p.look()
			p.check()
			p.happens()
		}
		p.final()
	})
}

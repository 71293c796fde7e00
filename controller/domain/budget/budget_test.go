package budget_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/budget"
	"github.com/ingot-metal/ingot/controller/domain/kind"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// anyHarm is the harm of the rules and slots of these tests, which do not name one.
var anyHarm = []kind.Harm{kind.Harmless}

func at(rack string) budget.Place {
	return budget.Place{Site: "s1", Labels: map[string]string{"rack": rack}}
}

func queue(racks ...string) []budget.Request {
	var out []budget.Request
	for i, r := range racks {
		out = append(out, budget.Request{OperationID: fmt.Sprintf("op-%d", i+1), Place: at(r), Harms: anyHarm})
	}
	return out
}

// admitted returns a letter for each verdict: y or n.
func admitted(vs []budget.Verdict) string {
	s := ""
	for _, v := range vs {
		if v.Admitted {
			s += "y"
		} else {
			s += "n"
		}
	}
	return s
}

func TestAdmit(t *testing.T) {
	groups := []budget.Group{{at("a"), 40}, {at("b"), 10}, {at(""), 5}}
	held := func(rack string, ago time.Duration) budget.Slot {
		return budget.Slot{Place: at(rack), Taken: now.Add(-ago), Held: true}
	}
	gone := func(rack string, ago time.Duration) budget.Slot {
		return budget.Slot{Place: at(rack), Taken: now.Add(-ago)}
	}
	fleet := func(r budget.Rule) budget.Rule { r.Name, r.Domain = "f", budget.Fleet; return r }
	rack := func(r budget.Rule) budget.Rule { r.Name, r.Domain = "r", "label:rack"; return r }
	for name, c := range map[string]struct {
		rules []budget.Rule
		slots []budget.Slot
		queue []budget.Request
		want  string
		said  string // of the last that is refused
	}{
		"no rules":              {nil, nil, queue("a", "b"), "yy", ""},
		"a rule without limits": {[]budget.Rule{fleet(budget.Rule{})}, nil, queue("a"), "y", ""},
		"so many at once": {
			[]budget.Rule{fleet(budget.Rule{AtOnce: 2})}, []budget.Slot{held("a", time.Minute)}, queue("a", "b"), "yn",
			"budget f: 2 of 2 slots of fleet are taken",
		},
		"a slot that was given back is free": {
			[]budget.Rule{fleet(budget.Rule{AtOnce: 1})}, []budget.Slot{gone("a", time.Minute)}, queue("a"), "y", "",
		},
		"one that is held for days counts": {
			[]budget.Rule{fleet(budget.Rule{AtOnce: 1})}, []budget.Slot{held("a", 100*time.Hour)}, queue("a"), "n",
			"budget f: 1 of 1 slots of fleet are taken",
		},
		"each rack by itself, and nobody waits for another's": {
			[]budget.Rule{rack(budget.Rule{AtOnce: 1})}, nil, queue("a", "a", "b", "", ""), "ynyyn",
			"budget r: 1 of 1 slots of rack (none) are taken",
		},
		"one rack only": {
			[]budget.Rule{{Name: "r", Domain: "label:rack", Value: "a", AtOnce: 1}}, nil, queue("a", "a", "b", "b"), "ynyy",
			"budget r: 1 of 1 slots of rack a are taken",
		},
		"ten percent of a rack": {
			[]budget.Rule{rack(budget.Rule{Percent: 10})}, nil, queue("a", "a", "a", "a", "a", "b", "b"), "yyyynyn",
			"budget r: 1 of 1 slots of rack b are taken (10 % of its machines at once)",
		},
		"a percentage of few is one": {[]budget.Rule{rack(budget.Rule{Percent: 1})}, nil, queue("b"), "y", ""},
		"an hour": {
			[]budget.Rule{fleet(budget.Rule{PerHour: 2})}, []budget.Slot{gone("a", 61*time.Minute), gone("a", 59*time.Minute)},
			queue("a", "b"), "yn", "budget f: 2 of 2 slots of fleet are taken (per hour)",
		},
		"a day": {
			[]budget.Rule{fleet(budget.Rule{PerDay: 1})}, []budget.Slot{gone("a", 23*time.Hour)}, queue("a"), "n",
			"budget f: 1 of 1 slots of fleet are taken (per day)",
		},
		"all rules hold, and a refusal takes nothing": {
			[]budget.Rule{rack(budget.Rule{AtOnce: 1}), fleet(budget.Rule{AtOnce: 2})}, nil, queue("a", "a", "b", "c"), "ynyn",
			"budget f: 2 of 2 slots of fleet are taken",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := budget.Admit(c.rules, groups, c.slots, c.queue, now)
			if admitted(got) != c.want {
				t.Errorf("got %s, want %s", admitted(got), c.want)
			}
			said := ""
			for i, v := range got {
				if v.OperationID != c.queue[i].OperationID {
					t.Errorf("verdict %d is about %s", i, v.OperationID)
				}
				if !v.Admitted {
					said = v.String()
				}
			}
			if said != c.said {
				t.Errorf("said %q, want %q", said, c.said)
			}
		})
	}
}

func TestUntilIsWhenARateHasRoom(t *testing.T) {
	rules := []budget.Rule{{Name: "f", Domain: budget.Fleet, PerHour: 2}}
	slots := []budget.Slot{{Taken: now.Add(-50 * time.Minute)}, {Taken: now.Add(-40 * time.Minute)},
		{Taken: now.Add(-5 * time.Minute)}}
	// The limit was lowered: three are counted where two may be, so that two have to leave.
	got := budget.Admit(rules, nil, slots, queue("a"), now)[0]
	if want := now.Add(20 * time.Minute); got.Admitted || !got.Until.Equal(want) {
		t.Fatalf("got %+v, want until %v", got, want)
	}
	if budget.Admit(rules, nil, slots, queue("a"), got.Until.Add(-time.Second))[0].Admitted {
		t.Error("there was room before")
	}
	if !budget.Admit(rules, nil, slots, queue("a"), got.Until)[0].Admitted {
		t.Error("there is no room then")
	}
}

// TestNoLimitIsEverExceeded draws rules, and lets operations come and go in many passes.
func TestNoLimitIsEverExceeded(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		racks := []string{"a", "b", "c"}
		rules := []budget.Rule{
			{Name: "f", Domain: budget.Fleet, AtOnce: 1 + rng.IntN(6), PerHour: rng.IntN(20)},
			{Name: "r", Domain: "label:rack", AtOnce: 1 + rng.IntN(3), PerDay: rng.IntN(15)},
		}
		var slots []budget.Slot
		clock := now
		for range 60 {
			var q []budget.Request
			for i := range rng.IntN(8) {
				q = append(q, budget.Request{OperationID: fmt.Sprint(i), Place: at(racks[rng.IntN(3)]), Harms: anyHarm})
			}
			for i, v := range budget.Admit(rules, nil, slots, q, clock) {
				if v.Admitted {
					slots = append(slots, budget.Slot{Place: q[i].Place, Taken: clock, Held: true})
				}
			}
			holds(t, seed, rules, slots, clock)
			for i := range slots {
				slots[i].Held = slots[i].Held && rng.IntN(3) > 0
			}
			clock = clock.Add(time.Duration(rng.IntN(40)) * time.Minute)
		}
	}
}

// holds counts anew, by other code.
func holds(t *testing.T, seed uint64, rules []budget.Rule, slots []budget.Slot, clock time.Time) {
	t.Helper()
	held, hourly, daily := map[string]int{}, 0, map[string]int{}
	for _, s := range slots {
		if s.Held {
			held["all"]++
			held[s.Labels["rack"]]++
		}
		if clock.Sub(s.Taken) < time.Hour {
			hourly++
		}
		if clock.Sub(s.Taken) < 24*time.Hour {
			daily[s.Labels["rack"]]++
		}
	}
	f, r := rules[0], rules[1]
	bad := held["all"] > f.AtOnce || f.PerHour > 0 && hourly > f.PerHour
	for _, rack := range []string{"a", "b", "c"} {
		bad = bad || held[rack] > r.AtOnce || r.PerDay > 0 && daily[rack] > r.PerDay
	}
	if bad {
		t.Fatalf("seed %d: held %v, in an hour %d, in a day %v under %+v", seed, held, hourly, daily, rules)
	}
}

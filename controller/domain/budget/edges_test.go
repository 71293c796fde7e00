package budget_test

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/budget"
)

// TestEdges are the places where one more or one less, or one moment earlier, makes the difference.
func TestEdges(t *testing.T) {
	fleet := func(r budget.Rule) []budget.Rule { r.Name, r.Domain = "f", budget.Fleet; return []budget.Rule{r} }
	machines := func(n int) []budget.Group { return []budget.Group{{Place: at("a"), Machines: n}} }
	slot := func(ago time.Duration, held bool) budget.Slot {
		return budget.Slot{Place: at("a"), Taken: now.Add(-ago), Held: held}
	}
	for name, c := range map[string]struct {
		rules  []budget.Rule
		groups []budget.Group
		slots  []budget.Slot
		queue  int
		want   string
	}{
		"an hour ends with its last moment": {fleet(budget.Rule{PerHour: 1}), nil,
			[]budget.Slot{slot(time.Hour, false)}, 2, "yn"},
		"and not before": {fleet(budget.Rule{PerHour: 1}), nil,
			[]budget.Slot{slot(time.Hour-1, false)}, 1, "n"},
		"a day ends with its last moment": {fleet(budget.Rule{PerDay: 1}), nil,
			[]budget.Slot{slot(24*time.Hour, false)}, 2, "yn"},
		"one that is held leaves the hour too": {fleet(budget.Rule{PerHour: 1}), nil,
			[]budget.Slot{slot(2*time.Hour, true)}, 1, "y"},
		"one of another's clock, ahead, counts": {fleet(budget.Rule{PerHour: 1}), nil,
			[]budget.Slot{slot(-time.Minute, false)}, 1, "n"},
		"an hour and a day: the day is full": {fleet(budget.Rule{PerHour: 5, PerDay: 2}), nil,
			[]budget.Slot{slot(2*time.Hour, false), slot(3*time.Hour, false)}, 1, "n"},
		"99 percent of one machine":              {fleet(budget.Rule{Percent: 99}), machines(1), nil, 2, "yn"},
		"10 percent of 19 machines is one":       {fleet(budget.Rule{Percent: 10}), machines(19), nil, 3, "ynn"},
		"10 percent of 20 is two":                {fleet(budget.Rule{Percent: 10}), machines(20), nil, 3, "yyn"},
		"100 percent is everything, and no more": {fleet(budget.Rule{Percent: 100}), machines(2), nil, 3, "yyn"},
		"a percentage of nothing known is one":   {fleet(budget.Rule{Percent: 50}), nil, nil, 2, "yn"},
		"a percentage that has shrunk admits none": {fleet(budget.Rule{Percent: 10}), machines(10),
			[]budget.Slot{slot(0, true), slot(0, true)}, 1, "n"},
		"the smaller of a number and a percentage": {fleet(budget.Rule{AtOnce: 3, Percent: 10}), machines(20), nil, 3,
			"yyn"},
		"and the other way round":                {fleet(budget.Rule{AtOnce: 1, Percent: 10}), machines(20), nil, 2, "yn"},
		"a percentage of many does not overflow": {fleet(budget.Rule{Percent: 100}), machines(1 << 40), nil, 1, "y"},
		"a rule of another site is about none here": {[]budget.Rule{{Name: "s", Domain: budget.Site, Value: "s2", AtOnce: 1}},
			nil, nil, 3, "yyy"},
	} {
		t.Run(name, func(t *testing.T) {
			racks := make([]string, c.queue)
			for i := range racks {
				racks[i] = "a"
			}
			if got := admitted(budget.Admit(c.rules, c.groups, c.slots, queue(racks...), now)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestUntilOfADay: the hour has room sooner than the day, which is in the way.
func TestUntilOfADay(t *testing.T) {
	rules := []budget.Rule{{Name: "f", Domain: budget.Fleet, PerHour: 2, PerDay: 2}}
	slots := []budget.Slot{{Taken: now.Add(-30 * time.Minute)}, {Taken: now.Add(-20 * time.Minute)}}
	v := budget.Admit(rules, nil, slots, queue("a"), now)[0]
	if v.Kind != budget.PerHour || !v.Until.Equal(now.Add(30*time.Minute)) {
		t.Fatalf("first: %+v", v)
	}
	if v = budget.Admit(rules, nil, slots, queue("a"), v.Until)[0]; v.Kind != budget.PerDay ||
		!v.Until.Equal(now.Add(24*time.Hour-30*time.Minute)) {
		t.Fatalf("then: %+v", v)
	}
	if !budget.Admit(rules, nil, slots, queue("a"), v.Until)[0].Admitted {
		t.Fatal("there is no room when it was promised")
	}
}

// TestCovers: a rule is about the machines with its value in its domain, and without a value about all of the domain.
// A machine without a value in the domain counts as one of the empty value.
func TestCovers(t *testing.T) {
	berlin := budget.Place{Site: "berlin", Labels: map[string]string{"rack": "r1"}, Rack: "r2"}
	for _, c := range []struct {
		domain, value string
		want          bool
	}{
		{budget.Site, "", true},
		{budget.Site, "berlin", true},
		{budget.Site, "paris", false},
		{budget.LabelPrefix + "rack", "r1", true},
		{budget.LabelPrefix + "rack", "r2", true},
		{budget.LabelPrefix + "rack", "r3", false},
		{budget.LabelPrefix + "env", "", true},
		{budget.LabelPrefix + "env", "prod", false},
	} {
		if got := (budget.Rule{Domain: c.domain, Value: c.value}).Covers(berlin); got != c.want {
			t.Errorf("%s=%s: covers %t, want %t", c.domain, c.value, got, c.want)
		}
	}
}

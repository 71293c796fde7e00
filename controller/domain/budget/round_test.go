package budget_test

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/budget"
)

// TestWhatARuleCountsBy: the fleet and a site are domains of their own, whatever labels the machines have.
func TestWhatARuleCountsBy(t *testing.T) {
	places := []budget.Place{
		{Site: "s1", Labels: map[string]string{"fleet": "a", "site": "a"}},
		{Site: "s1", Labels: map[string]string{"fleet": "b", "site": "b"}},
		{Site: "s2", Labels: map[string]string{"fleet": "b", "site": "b"}},
	}
	var requests []budget.Request
	for _, p := range places {
		requests = append(requests, budget.Request{Place: p})
	}
	for domain, want := range map[string]string{
		budget.Fleet:                 "ynn",
		budget.Site:                  "yny",
		budget.LabelPrefix + "fleet": "yyn",
		budget.LabelPrefix + "site":  "yyn",
	} {
		rules := []budget.Rule{{Name: "r", Domain: domain, AtOnce: 1}}
		if got := admitted(budget.Admit(rules, nil, nil, requests, now)); got != want {
			t.Errorf("by %s: %s, want %s", domain, got, want)
		}
	}
}

// TestAFullFleetRefusesWhoeverAsksNext: a full rack does not, since the next machine may stand elsewhere.
func TestAFullFleetRefusesWhoeverAsksNext(t *testing.T) {
	rack := budget.Rule{Name: "r", Domain: "label:rack", AtOnce: 1}
	site := budget.Rule{Name: "s", Domain: budget.Site, AtOnce: 1}
	fleet := budget.Rule{Name: "f", Domain: budget.Fleet, AtOnce: 2}
	for name, c := range map[string]struct {
		rules []budget.Rule
		asked []string
		want  bool
	}{
		"no rules":                {nil, []string{"a"}, false},
		"a full rack":             {[]budget.Rule{rack}, []string{"a"}, false},
		"a full site":             {[]budget.Rule{site}, []string{"a"}, false},
		"full without a label":    {[]budget.Rule{rack}, []string{""}, false},
		"a fleet with room":       {[]budget.Rule{rack, fleet}, []string{"a"}, false},
		"a refusal takes no room": {[]budget.Rule{rack, fleet}, []string{"a", "a"}, false},
		"a full fleet":            {[]budget.Rule{rack, fleet}, []string{"a", "b"}, true},
		"the second rule is full": {[]budget.Rule{{Name: "w", Domain: budget.Fleet, AtOnce: 9}, fleet}, []string{"a", "b"},
			true},
		"the fleet before its own": {[]budget.Rule{fleet, rack}, []string{"a", "b"}, true},
	} {
		round := budget.NewRound(c.rules, nil, nil, now)
		for _, q := range queue(c.asked...) {
			round.Ask(q)
		}
		if got := round.Full(); got != c.want {
			t.Errorf("%s: full %t", name, got)
		}
		if next := round.Ask(
			budget.Request{Place: budget.Place{Site: "far",
				Labels: map[string]string{"rack": "new"}}}); next.Admitted == c.want {
			t.Errorf("%s: the next one is admitted: %t", name, next.Admitted)
		}
	}
}

// TestSinceWhenSlotsCount: by the longest rate of all rules, and not at all where none is a rate.
func TestSinceWhenSlotsCount(t *testing.T) {
	hour, day, held := budget.Rule{PerHour: 1}, budget.Rule{PerDay: 1}, budget.Rule{AtOnce: 5, Percent: 5}
	for name, c := range map[string]struct {
		rules []budget.Rule
		want  time.Duration
	}{
		"no rules":             {nil, 0},
		"no rates":             {[]budget.Rule{held}, 0},
		"an hour":              {[]budget.Rule{held, hour, held}, time.Hour},
		"a day":                {[]budget.Rule{held, day, held}, 24 * time.Hour},
		"an hour, then a day":  {[]budget.Rule{hour, day}, 24 * time.Hour},
		"a day, then an hour":  {[]budget.Rule{day, hour}, 24 * time.Hour},
		"both in a rule":       {[]budget.Rule{{PerHour: 2, PerDay: 9}}, 24 * time.Hour},
		"an hour in two rules": {[]budget.Rule{hour, hour}, time.Hour},
	} {
		if got := now.Sub(budget.Since(c.rules, now)); got != c.want {
			t.Errorf("%s: %v back, want %v", name, got, c.want)
		}
	}
}

// TestAPercentageIsRoundedDown: 10 % of 99 machines are nine.
func TestAPercentageIsRoundedDown(t *testing.T) {
	rules := []budget.Rule{{Name: "f", Domain: budget.Fleet, Percent: 10}}
	groups := []budget.Group{{Place: at("a"), Machines: 99}}
	racks := make([]string, 10)
	if got := admitted(budget.Admit(rules, groups, nil, queue(racks...), now)); got != "yyyyyyyyyn" {
		t.Error(got)
	}
}

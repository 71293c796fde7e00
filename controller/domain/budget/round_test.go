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
		requests = append(requests, budget.Request{Place: p, Harms: anyHarm})
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
			budget.Request{Harms: anyHarm, Place: budget.Place{Site: "far",
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

// TestASlotCountsInEveryPlaceOfItsMachine: a machine was moved after the request, or after the admission. It escapes
// neither the budget of the old place nor that of the new one.
func TestASlotCountsInEveryPlaceOfItsMachine(t *testing.T) {
	t.Parallel()
	two := []budget.Rule{{Name: "r", Domain: "label:rack", AtOnce: 2}}
	moved := budget.Slot{Place: at("a"), Also: []budget.Place{at("b"), at("a"), at("b")}, Taken: now, Held: true}
	ask := func(to string, also ...string) (q budget.Request) {
		q = budget.Request{Place: at(to), Harms: anyHarm}
		for _, rack := range also {
			q.Also = append(q.Also, at(rack))
		}
		return q
	}
	for name, c := range map[string]struct {
		queue []budget.Request
		want  string
	}{
		"the place that it left":      {[]budget.Request{ask("a"), ask("a")}, "yn"},
		"the place that it came to":   {[]budget.Request{ask("b"), ask("b")}, "yn"},
		"another place":               {[]budget.Request{ask("c"), ask("c"), ask("c")}, "yyn"},
		"a request that left a":       {[]budget.Request{ask("a"), ask("c", "a"), ask("c"), ask("c")}, "ynyy"},
		"a request that left c for a": {[]budget.Request{ask("a", "c"), ask("c"), ask("c"), ask("a")}, "yynn"},
		"one place twice":             {[]budget.Request{ask("c", "c"), ask("c", "c", "c"), ask("c")}, "yyn"},
	} {
		if got := admitted(budget.Admit(two, nil, []budget.Slot{moved}, c.queue, now)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestTheFilterOfADomain: the key by which a list of machines is filtered to those of one domain.
func TestTheFilterOfADomain(t *testing.T) {
	t.Parallel()
	for domain, want := range map[string]string{
		budget.Fleet: "", budget.Site: "site", budget.LabelPrefix + "rack": "rack", budget.LabelPrefix + "env": "labels.env",
		budget.LabelPrefix + "site": "labels.site",
	} {
		if got := budget.FilterKey(domain); got != want {
			t.Errorf("%s: %q, want %q", domain, got, want)
		}
	}
}

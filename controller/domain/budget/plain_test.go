package budget_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ingot-metal/ingot/controller/domain/budget"
	"github.com/ingot-metal/ingot/controller/domain/kind"
)

// plain answers as a round does, from a list of all slots that it counts anew for each question.
type plain struct {
	rules  []budget.Rule
	groups []budget.Group
	slots  []budget.Slot
}

// value is a machine's value in a domain; a machine has one rack here.
func value(p budget.Place, domain string) string {
	if label, ok := strings.CutPrefix(domain, budget.LabelPrefix); ok {
		return p.Labels[label]
	}
	return map[string]string{budget.Site: p.Site}[domain]
}

// values are those of several places that a rule is about, each once.
func values(r budget.Rule, places ...budget.Place) (out []string) {
	for _, p := range places {
		if v := value(p, r.Domain); (r.Value == "" || r.Value == v) && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// limits returns the limits of a rule that are set, with the slots taken of each in one domain, and their times.
func (p *plain) limits(r budget.Rule, of string) (out []budget.Used, taken [][]time.Time) {
	held, hour, day, machines := []time.Time(nil), []time.Time(nil), []time.Time(nil), 0
	for _, s := range p.slots {
		if s.Harm != r.Harm || !slices.Contains(values(r, append([]budget.Place{s.Place}, s.Also...)...), of) {
			continue
		}
		if s.Held {
			held = append(held, s.Taken)
		}
		if s.Taken.After(now.Add(-time.Hour)) {
			hour = append(hour, s.Taken)
		}
		if s.Taken.After(now.Add(-24 * time.Hour)) {
			day = append(day, s.Taken)
		}
	}
	for _, g := range p.groups {
		if value(g.Place, r.Domain) == of {
			machines += g.Machines
		}
	}
	for _, l := range []struct {
		kind      budget.Kind
		on, limit int
		taken     []time.Time
	}{
		{budget.AtOnce, r.AtOnce, r.AtOnce, held}, {budget.Percent, r.Percent, max(machines*r.Percent/100, 1), held},
		{budget.PerHour, r.PerHour, r.PerHour, hour}, {budget.PerDay, r.PerDay, r.PerDay, day},
	} {
		if l.on > 0 {
			out = append(out, budget.Used{Rule: r.Name, Kind: l.kind, Used: len(l.taken), Limit: l.limit})
			taken = append(taken, l.taken)
		}
	}
	return out, taken
}

// ask returns the first number in the way, without the rule that has room.
func (p *plain) ask(q budget.Request) budget.Verdict {
	for _, r := range p.rules {
		if !slices.Contains(q.Harms, r.Harm) {
			continue
		}
		for _, of := range values(r, append([]budget.Place{q.Place}, q.Also...)...) {
			list, taken := p.limits(r, of)
			for i, l := range list {
				if l.Used < l.Limit {
					continue
				}
				v := budget.Verdict{OperationID: q.OperationID, Rule: r, Value: of, Kind: l.Kind, Used: l.Used, Limit: l.Limit}
				// The last that must leave is the one from which on one slot fewer than the limit are left.
				switch last := taken[i][len(taken[i])-l.Limit]; l.Kind {
				case budget.PerHour:
					v.Until = last.Add(time.Hour)
				case budget.PerDay:
					v.Until = last.Add(24 * time.Hour)
				case budget.AtOnce, budget.Percent:
				}
				return v
			}
		}
	}
	for _, h := range q.Harms {
		p.slots = append(p.slots, budget.Slot{Place: q.Place, Also: q.Also, Harm: h, Taken: now, Held: true})
	}
	return budget.Verdict{OperationID: q.OperationID, Admitted: true}
}

// usage returns the fullest domain of each number that is on.
func (p *plain) usage() (out []budget.Used) {
	for _, r := range p.rules {
		var all []budget.Place
		for _, s := range p.slots {
			if s.Harm == r.Harm {
				all = append(append(all, s.Place), s.Also...)
			}
		}
		for _, g := range p.groups {
			all = append(all, g.Place)
		}
		most, _ := p.limits(r, "a value that no machine has")
		known := false
		for _, of := range values(r, all...) {
			list, _ := p.limits(r, of)
			for i, l := range list {
				if !known || l.Used*most[i].Limit > most[i].Used*l.Limit {
					most[i] = l
				}
			}
			known = true
		}
		out = append(out, most...)
	}
	return out
}

// TestARoundAnswersLikeAPlainCount draws rules of every domain, slots of machines that were moved, and requests of both
// harms. Every verdict, and the usage after it, is that of a count from the list of slots.
func TestARoundAnswersLikeAPlainCount(t *testing.T) {
	t.Parallel()
	number := rapid.OneOf(rapid.Just(0), rapid.IntRange(1, 4))
	place := rapid.Custom(func(t *rapid.T) budget.Place {
		return budget.Place{
			Site: rapid.SampledFrom([]string{"s1", "s2"}).Draw(t, "site"),
			Labels: map[string]string{
				"rack": rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "rack"),
				"env":  rapid.SampledFrom([]string{"", "x"}).Draw(t, "env"),
			},
		}
	})
	harm := rapid.SampledFrom([]kind.Harm{kind.Destroys, kind.Interrupts})
	rule := rapid.Custom(func(t *rapid.T) budget.Rule {
		r := budget.Rule{
			Harm:   harm.Draw(t, "harm"),
			Domain: rapid.SampledFrom([]string{budget.Fleet, budget.Site, "label:rack", "label:env"}).Draw(t, "domain"),
			AtOnce: number.Draw(t, "at once"), PerHour: number.Draw(t, "per hour"), PerDay: number.Draw(t, "per day"),
			Percent: rapid.OneOf(rapid.Just(0), rapid.IntRange(1, 100)).Draw(t, "percent"),
		}
		r.Value = map[string]string{budget.Site: "s1", "label:rack": "a", "label:env": "x"}[r.Domain]
		if rapid.Bool().Draw(t, "for each") {
			r.Value = ""
		}
		return r
	})
	rapid.Check(t, func(t *rapid.T) {
		var p plain
		p.rules = rapid.SliceOfN(rule, 1, 3).Draw(t, "rules")
		for i := range p.rules {
			p.rules[i].Name = string(rune('a' + i))
		}
		for range rapid.IntRange(0, 6).Draw(t, "groups") {
			p.groups = append(p.groups, budget.Group{Place: place.Draw(t, "place"),
				Machines: rapid.IntRange(1, 12).Draw(t, "machines")})
		}
		ago := 25 * 60
		for range rapid.IntRange(0, 8).Draw(t, "slots") {
			ago = rapid.SampledFrom([]int{ago, 24*60 + 1, 24 * 60, 24*60 - 1, 61, 60, 59, 1}).Filter(
				func(n int) bool { return n <= ago }).Draw(t, "minutes ago")
			p.slots = append(p.slots, budget.Slot{Place: place.Draw(t, "place"), Harm: harm.Draw(t, "harm"),
				Also:  rapid.SliceOfN(place, 0, 2).Draw(t, "also"),
				Taken: now.Add(-time.Duration(ago) * time.Minute), Held: rapid.Bool().Draw(t, "held")})
		}
		round := budget.NewRound(p.rules, p.groups, p.slots, now)
		for i := range rapid.IntRange(1, 5).Draw(t, "requests") {
			q := budget.Request{OperationID: string(rune('1' + i)), Place: place.Draw(t, "place"),
				Also:  rapid.SliceOfN(place, 0, 1).Draw(t, "also"),
				Harms: rapid.SliceOfNDistinct(harm, 1, 2, rapid.ID).Draw(t, "harms")}
			got, want := round.Ask(q), p.ask(q)
			got.Raised = nil
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%+v is answered\n     %+v\nwant %+v", q, got, want)
			}
			ratios(t, round.Usage(), p.usage())
		}
	})
}

// ratios compares usages: of domains that are as full, either may be named.
func ratios(t *rapid.T, got, want []budget.Used) {
	if len(got) != len(want) {
		t.Fatalf("the usage is %+v, want %+v", got, want)
	}
	for i, g := range got {
		if w := want[i]; g.Rule != w.Rule || g.Kind != w.Kind || g.Used*w.Limit != w.Used*g.Limit {
			t.Fatalf("the usage is %+v, want %+v", g, w)
		}
	}
}

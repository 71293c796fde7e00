package budget

import (
	"slices"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/kind"
)

const (
	hour = time.Hour
	day  = 24 * time.Hour
)

// domain is one rule at one value.
type domain struct{ rule, value string }

// usage has the taken slots of a domain.
type usage struct {
	held, machines int
	// hour and day are when slots were taken, oldest first.
	hour, day []time.Time
}

// Round answers requests one after the other: whom it admits takes room from those behind.
type Round struct {
	rules []Rule
	used  map[domain]*usage
	now   time.Time
}

// NewRound returns a round that begins with the taken slots. slots are in the order in which they were taken.
func NewRound(rules []Rule, groups []Group, slots []Slot, now time.Time) *Round {
	a := &Round{rules: rules, used: map[domain]*usage{}, now: now}
	for _, r := range rules {
		for _, g := range groups {
			// A machine with two racks is one machine of a percentage.
			if value := g.In(r.Domain); r.Value == "" || r.Value == value {
				a.of(r, value).machines += g.Machines
			}
		}
	}
	for _, s := range slots {
		a.take(s)
	}
	return a
}

func (a *Round) of(r Rule, value string) *usage {
	d := domain{r.Name, value}
	if a.used[d] == nil {
		a.used[d] = &usage{}
	}
	return a.used[d]
}

func (a *Round) take(s Slot) {
	for _, r := range a.rules {
		if r.Harm != s.Harm {
			continue
		}
		for _, value := range r.keys(s.Place, s.Also) {
			a.of(r, value).count(s, a.now)
		}
	}
}

// Ask answers the next request.
func (a *Round) Ask(q Request) Verdict {
	for _, r := range a.rules {
		if !slices.Contains(q.Harms, r.Harm) {
			continue
		}
		for _, value := range r.keys(q.Place, q.Also) {
			if no, full := a.of(r, value).full(r, a.now); full {
				no.OperationID, no.Rule, no.Value = q.OperationID, r, value
				return no
			}
		}
	}
	for _, h := range q.Harms {
		a.take(Slot{Place: q.Place, Also: q.Also, Harm: h, Taken: a.now, Held: true})
	}
	return Verdict{OperationID: q.OperationID, Admitted: true}
}

// Full reports whether every further request is refused, wherever its machine stands: a budget of the fleet is full for
// each harm that is limited. Requests of other harms do not wait.
func (a *Round) Full() bool {
	full := map[kind.Harm]bool{}
	for _, r := range a.rules {
		no := full[r.Harm]
		if r.Domain == Fleet && !no {
			_, no = a.of(r, "").full(r, a.now)
		}
		full[r.Harm] = no
	}
	for _, no := range full {
		if !no {
			return false
		}
	}
	return len(full) > 0
}

// Admit answers requests in their order. A refused one takes nothing: a later one in another domain is not delayed, and
// a later one in the same domain finds no more room. slots are in the order in which they were taken.
func Admit(rules []Rule, groups []Group, slots []Slot, queue []Request, now time.Time) []Verdict {
	a := NewRound(rules, groups, slots, now)
	out := make([]Verdict, 0, len(queue))
	for _, q := range queue {
		out = append(out, a.Ask(q))
	}
	return out
}

// Since is from when on slots count by these rules whether they are held or not; now when only held ones do.
func Since(rules []Rule, now time.Time) time.Time {
	since := now
	for _, r := range rules {
		switch {
		case r.PerDay > 0:
			return now.Add(-day)
		case r.PerHour > 0:
			since = now.Add(-hour)
		}
	}
	return since
}

func (u *usage) count(s Slot, now time.Time) {
	if s.Held {
		u.held++
	}
	if now.Sub(s.Taken) < hour {
		u.hour = append(u.hour, s.Taken)
	}
	if now.Sub(s.Taken) < day {
		u.day = append(u.day, s.Taken)
	}
}

// limit is one number of a rule, with the number of taken slots.
type limit struct {
	kind    Kind
	on      int
	used    int
	limit   int
	oldest  []time.Time
	leaving time.Duration
}

// limits are all numbers of a rule, also those that are off.
func (u *usage) limits(r Rule) []limit {
	return []limit{
		{kind: AtOnce, on: r.AtOnce, used: u.held, limit: r.AtOnce},
		{kind: Percent, on: r.Percent, used: u.held, limit: max(1, u.machines*r.Percent/100)},
		{kind: PerHour, on: r.PerHour, used: len(u.hour), limit: r.PerHour, oldest: u.hour, leaving: hour},
		{kind: PerDay, on: r.PerDay, used: len(u.day), limit: r.PerDay, oldest: u.day, leaving: day},
	}
}

// Used is how much of a limit is taken, in the domain where most of it is.
type Used struct {
	Rule        string
	Kind        Kind
	Used, Limit int
}

// Ratio is the part that is taken, more than 1 where a limit was lowered below that.
func (u Used) Ratio() float64 { return float64(u.Used) / float64(u.Limit) }

// fuller reports whether less room is left. Of domains that are equally full, the one with the lower limit is.
func (u Used) fuller(than Used) bool {
	return u.Ratio() > than.Ratio() || u.Ratio() == than.Ratio() && u.Limit < than.Limit
}

// Usage is how much of each limit is taken.
func (a *Round) Usage() []Used {
	var out []Used
	for _, r := range a.rules {
		fullest := map[Kind]Used{}
		for d, u := range a.used {
			if d.rule != r.Name {
				continue
			}
			for _, l := range u.limits(r) {
				one := Used{r.Name, l.kind, l.used, l.limit}
				if most, known := fullest[l.kind]; l.on > 0 && (!known || one.fuller(most)) {
					fullest[l.kind] = one
				}
			}
		}
		for _, l := range (&usage{}).limits(r) {
			if one, known := fullest[l.kind]; known {
				out = append(out, one)
			} else if l.on > 0 {
				out = append(out, Used{r.Name, l.kind, 0, l.limit})
			}
		}
	}
	return out
}

// raised returns the rule with the least numbers that leave room for one more; nil if no percentage does.
func (u *usage) raised(r Rule) *Rule {
	for _, l := range u.limits(r) {
		if l.on == 0 || l.used < l.limit {
			continue
		}
		switch l.kind {
		case AtOnce:
			r.AtOnce = l.used + 1
		case Percent:
			for r.Percent++; r.Percent <= 100 && u.machines*r.Percent/100 <= l.used; {
				r.Percent++
			}
			if r.Percent > 100 {
				return nil
			}
		case PerHour:
			r.PerHour = l.used + 1
		case PerDay:
			r.PerDay = l.used + 1
		}
	}
	return &r
}

// full returns the verdict of a limit without room for one more, and reports whether there is one.
func (u *usage) full(r Rule, now time.Time) (Verdict, bool) {
	for _, l := range u.limits(r) {
		if l.on == 0 || l.used < l.limit {
			continue
		}
		v := Verdict{Kind: l.kind, Used: l.used, Limit: l.limit, Raised: u.raised(r)}
		if l.leaving > 0 {
			// There is room when so many have left that one more fits.
			v.Until = l.oldest[l.used-l.limit].Add(l.leaving)
		}
		return v, true
	}
	return Verdict{}, false
}

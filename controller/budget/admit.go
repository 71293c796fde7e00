package budget

import "time"

const (
	hour = time.Hour
	day  = 24 * time.Hour
)

// domain is one rule at one value.
type domain struct{ rule, value string }

// usage is what is taken of a domain.
type usage struct {
	held, machines int
	// hour and day are when slots were taken, oldest first.
	hour, day []time.Time
}

// Admit answers requests in their order: one that is refused takes nothing, so that whoever comes behind it in another
// domain is not held up, and whoever comes behind it in the same domain finds no more room than it did. slots are in
// the order in which they were taken.
func Admit(rules []Rule, groups []Group, slots []Slot, queue []Request, now time.Time) []Verdict {
	used := map[domain]*usage{}
	of := func(r Rule, value string) *usage {
		d := domain{r.Name, value}
		if used[d] == nil {
			used[d] = &usage{}
		}
		return used[d]
	}
	for _, r := range rules {
		for _, g := range groups {
			if value, ok := r.key(g.Place); ok {
				of(r, value).machines += g.Machines
			}
		}
		for _, s := range slots {
			if value, ok := r.key(s.Place); ok {
				of(r, value).count(s, now)
			}
		}
	}
	out := make([]Verdict, 0, len(queue))
	for _, q := range queue {
		v := Verdict{OperationID: q.OperationID, Admitted: true}
		for _, r := range rules {
			if value, ok := r.key(q.Place); ok {
				if no, full := of(r, value).full(r, now); full {
					no.OperationID, no.Rule, no.Value = q.OperationID, r, value
					v = no
					break
				}
			}
		}
		if v.Admitted {
			for _, r := range rules {
				if value, ok := r.key(q.Place); ok {
					of(r, value).count(Slot{Taken: now, Held: true}, now)
				}
			}
		}
		out = append(out, v)
	}
	return out
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

// full says which limit leaves no room for one more.
func (u *usage) full(r Rule, now time.Time) (Verdict, bool) {
	for _, l := range []struct {
		kind    Kind
		on      int
		used    int
		limit   int
		oldest  []time.Time
		leaving time.Duration
	}{
		{kind: AtOnce, on: r.AtOnce, used: u.held, limit: r.AtOnce},
		{kind: Percent, on: r.Percent, used: u.held, limit: max(1, u.machines*r.Percent/100)},
		{kind: PerHour, on: r.PerHour, used: len(u.hour), limit: r.PerHour, oldest: u.hour, leaving: hour},
		{kind: PerDay, on: r.PerDay, used: len(u.day), limit: r.PerDay, oldest: u.day, leaving: day},
	} {
		if l.on == 0 || l.used < l.limit {
			continue
		}
		v := Verdict{Kind: l.kind, Used: l.used, Limit: l.limit}
		if l.leaving > 0 {
			// There is room when so many have left that one more fits.
			v.Until = l.oldest[l.used-l.limit].Add(l.leaving)
		}
		return v, true
	}
	return Verdict{}, false
}

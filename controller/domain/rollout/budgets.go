package rollout

import (
	"time"

	"github.com/ingot-metal/ingot/controller/domain/budget"
	"github.com/ingot-metal/ingot/controller/domain/kind"
)

// Use is a budget that leaves less room than a rollout would use.
type Use struct {
	budget.Verdict
	// Wanted is what the rollout would use of Limit.
	Wanted int
}

// Bound looks which budgets hold the rollout up: by what it would have under way at the beginning of its largest wave,
// and for rates by all of its machines. What others hold of the budgets is left out. harms are those of which
// the work on a machine needs a slot.
func Bound(
	s Spec, rules []budget.Rule, groups []budget.Group, machines []Machine, places map[string]budget.Place,
	harms func(id string) []kind.Harm, now time.Time,
) []Use {
	var atOnce, rates []budget.Rule
	for _, r := range rules {
		hold, rate := r, r
		hold.PerHour, hold.PerDay = 0, 0
		rate.AtOnce, rate.Percent = 0, 0
		atOnce, rates = append(atOnce, hold), append(rates, rate)
	}
	return append(uses(atOnce, groups, atTheBeginning(s, machines), places, harms, now),
		uses(rates, groups, ids(machines), places, harms, now)...)
}

// atTheBeginning are the machines that are under way at once in the largest wave.
func atTheBeginning(s Spec, machines []Machine) []string {
	var largest []Machine
	for _, size := range Waves(s, len(machines)) {
		if size > len(largest) {
			largest = machines[:size]
		}
		machines = machines[size:]
	}
	return pick(s, largest, 0, nil, len(largest))
}

func ids(machines []Machine) []string {
	out := make([]string, len(machines))
	for i, m := range machines {
		out[i] = m.ID
	}
	return out
}

func uses(
	rules []budget.Rule, groups []budget.Group, idList []string, places map[string]budget.Place,
	harms func(id string) []kind.Harm, now time.Time,
) []Use {
	queue := make([]budget.Request, len(idList))
	for i, id := range idList {
		queue[i] = budget.Request{OperationID: id, Harms: harms(id), Place: places[id]}
	}
	type key struct {
		name, value string
		kind        budget.Kind
	}
	at := map[key]int{}
	var out []Use
	for _, v := range budget.Admit(rules, groups, nil, queue, now) {
		if v.Admitted {
			continue
		}
		k := key{v.Rule.Name, v.Value, v.Kind}
		i, known := at[k]
		if !known {
			i = len(out)
			at[k] = i
			out = append(out, Use{Verdict: v, Wanted: v.Limit})
		}
		out[i].Wanted++
	}
	return out
}

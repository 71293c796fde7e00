package budget_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ingot-metal/ingot/controller/domain/budget"
	"github.com/ingot-metal/ingot/controller/domain/kind"
)

// TestARaisedRuleHasRoomForOneMore: the rule that a refusal names admits the request, lowers no number, sets none that
// was off, raises none by more than it must, and limits the same work in the same place.
func TestARaisedRuleHasRoomForOneMore(t *testing.T) {
	number := rapid.OneOf(rapid.Just(0), rapid.IntRange(1, 6))
	rapid.Check(t, func(t *rapid.T) {
		r := budget.Rule{
			Name: "it", Domain: budget.Fleet,
			Harm:   rapid.SampledFrom([]kind.Harm{kind.Destroys, kind.Interrupts}).Draw(t, "harm"),
			AtOnce: number.Draw(t, "at once"), PerHour: number.Draw(t, "per hour"), PerDay: number.Draw(t, "per day"),
			Percent: rapid.OneOf(rapid.Just(0), rapid.IntRange(1, 100)).Draw(t, "percent"),
		}
		machines := rapid.IntRange(1, 30).Draw(t, "machines")
		groups := []budget.Group{{Place: at("a"), Machines: machines}}
		slots := make([]budget.Slot, rapid.IntRange(0, machines).Draw(t, "slots"))
		for i := range slots {
			slots[i] = budget.Slot{Place: at("a"), Harm: r.Harm, Taken: now.Add(-time.Minute),
				Held: rapid.Bool().Draw(t, "held")}
		}
		ask := func(r budget.Rule) budget.Verdict {
			return budget.NewRound([]budget.Rule{r}, groups, slots, now).Ask(
				budget.Request{OperationID: "op", Harms: []kind.Harm{r.Harm}, Place: at("a")})
		}
		v := ask(r)
		if v.Admitted {
			return
		}
		if v.Raised == nil {
			if r.Percent == 0 || len(slots) < machines {
				t.Fatalf("no rule has room beside %d slots of %d machines: %+v", len(slots), machines, v)
			}
			return
		}
		up := *v.Raised
		for _, n := range [][2]int{{r.AtOnce, up.AtOnce}, {r.Percent, up.Percent}, {r.PerHour, up.PerHour},
			{r.PerDay, up.PerDay}} {
			if n[1] < n[0] || n[0] == 0 && n[1] > 0 {
				t.Errorf("%+v became %+v", r, up)
			}
		}
		if again := ask(up); !again.Admitted || up.Percent > 100 {
			t.Errorf("%+v still has no room: %v", up, again)
		}
		for i, less := range []budget.Rule{up, up, up, up} {
			n := []*int{&less.AtOnce, &less.Percent, &less.PerHour, &less.PerDay}[i]
			if *n--; *n >= []int{r.AtOnce, r.Percent, r.PerHour, r.PerDay}[i] && *n > 0 && ask(less).Admitted {
				t.Errorf("%+v became %+v, and %+v has room", r, up, less)
			}
		}
		if up.Harm != r.Harm || up.Domain != r.Domain || up.Value != r.Value || up.Name != r.Name {
			t.Errorf("%+v became %+v", r, up)
		}
	})
}

package budget_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/budget"
)

// TestUsage: each limit is reported with its fullest domain; an unused limit is reported as 0.
func TestUsage(t *testing.T) {
	rules := []budget.Rule{
		{Name: "racks", Domain: "label:rack", AtOnce: 4, PerHour: 10},
		{Name: "share", Domain: budget.Fleet, Percent: 10},
		{Name: "site", Domain: budget.Site, Value: "elsewhere", AtOnce: 3},
	}
	groups := []budget.Group{{at("a"), 40}, {at("b"), 10}}
	slots := []budget.Slot{
		{Place: at("a"), Taken: now.Add(-50 * time.Minute)},
		{Place: at("a"), Taken: now.Add(-40 * time.Minute), Held: true},
		{Place: at("b"), Taken: now.Add(-3 * time.Hour), Held: true},
		{Place: at("b"), Taken: now.Add(-2 * time.Hour), Held: true},
	}
	got := budget.NewRound(rules, groups, slots, now).Usage()
	want := []budget.Used{
		{Rule: "racks", Kind: budget.AtOnce, Used: 2, Limit: 4},
		{Rule: "racks", Kind: budget.PerHour, Used: 2, Limit: 10},
		{Rule: "share", Kind: budget.Percent, Used: 3, Limit: 5},
		{Rule: "site", Kind: budget.AtOnce, Used: 0, Limit: 3},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	// Of domains that are as full, the smallest is named, however often one asks.
	for range 20 {
		got := budget.NewRound([]budget.Rule{{Name: "half", Domain: "label:rack", Percent: 50}}, groups, nil, now).Usage()
		if want := []budget.Used{{Rule: "half", Kind: budget.Percent, Limit: 5}}; !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, want %+v", got, want)
		}
	}
	if ratio := want[2].Ratio(); ratio != 0.6 {
		t.Errorf("3 of 5 are %v", ratio)
	}
}

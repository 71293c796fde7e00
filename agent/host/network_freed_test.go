package host

import (
	"slices"
	"testing"
)

// A boot has read the files of the change: its bond took c2 and gave it an MTU, and the configuration before names c0.
func TestCardsOfAnUndoneChangeGetTheirMTUBack(t *testing.T) {
	t.Parallel()
	saved := []SavedLink{{Name: "c0", MTU: 1400}, {Name: "c1", MTU: 1500}, {Name: "c2", MTU: 1500},
		{Name: "tag", MTU: 1400, VLANID: 21}}
	made := NetworkConfig{Interfaces: []Interface{
		{Name: "bond0", MTU: 1400, Bond: &Bond{Members: []string{"c0", "c2"}, Mode: "802.3ad"}},
		{Name: "tag", VLAN: &VLAN{ID: 21, Parent: "bond0"}},
	}}.wanted(nil)
	want := NetworkConfig{Interfaces: []Interface{{Name: "c0", MTU: 1400}}}.wanted(nil)
	got := freedCards(saved, made, want)
	if !slices.EqualFunc(got, []SavedLink{{Name: "c2", MTU: 1500}},
		func(a, b SavedLink) bool { return a.Name == b.Name && a.MTU == b.MTU }) {
		t.Errorf("cards to set: %+v", got)
	}
}

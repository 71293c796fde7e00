package network

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
)

// A boot has read the files of the change: its bond took c2 and gave it an MTU, and the configuration before names c0.
func TestCardsOfAnUndoneChangeGetTheirMTUBack(t *testing.T) {
	t.Parallel()
	saved := []SavedLink{{Name: "c0", MTU: 1400}, {Name: "c1", MTU: 1500}, {Name: "c2", MTU: 1500},
		{Name: "tag", MTU: 1400, VLANID: 21}}
	made := wantedLinks(Config{Interfaces: []Interface{
		{Name: "bond0", MTU: 1400, Bond: &Bond{Members: []string{"c0", "c2"}, Mode: "802.3ad"}},
		{Name: "tag", VLAN: &VLAN{ID: 21, Parent: "bond0"}},
	}}, nil)
	want := wantedLinks(Config{Interfaces: []Interface{{Name: "c0", MTU: 1400}}}, nil)
	got := freedCards(saved, made, want)
	if !slices.EqualFunc(got, []SavedLink{{Name: "c2", MTU: 1500}},
		func(a, b SavedLink) bool { return a.Name == b.Name && a.MTU == b.MTU }) {
		t.Errorf("cards to set: %+v", got)
	}
}

// A boot has read the files of the change, which set an MTU for c0, and so for its VLAN. The configuration before sets
// none. c1 had an MTU of its own then, and c2 has none in either.
func TestLinksOfTheConfigurationBeforeGetTheirMTUBack(t *testing.T) {
	t.Parallel()
	saved := []SavedLink{{Name: "c0", MTU: 1500}, {Name: "c1", MTU: 1450}, {Name: "c2", MTU: 1500},
		{Name: "tag", MTU: 1500, VLANID: 20}}
	made := wantedLinks(Config{Interfaces: []Interface{
		{Name: "c0", MTU: 1400}, {Name: "c1", MTU: 1400}, {Name: "c2"},
		{Name: "tag", VLAN: &VLAN{ID: 21, Parent: "c0"}},
	}}, nil)
	before := wantedLinks(Config{Interfaces: []Interface{
		{Name: "tag", VLAN: &VLAN{ID: 20, Parent: "c0"}}, {Name: "c0"}, {Name: "c1", MTU: 1450}, {Name: "c2"},
	}}, nil)
	got := map[string]int{}
	for _, l := range withSavedMTU(before, saved, made) {
		if _, under := got[l.Parent]; l.Parent != "" && !under {
			t.Errorf("%s comes before %s, which limits its MTU", l.Name, l.Parent)
		}
		got[l.Name] = l.MTU
	}
	if want := map[string]int{"c0": 1500, "c1": 1450, "c2": 0, "tag": 1500}; !maps.Equal(got, want) {
		t.Errorf("MTUs %v, want %v", got, want)
	}
}

// A boot has read the files of the change, which gave c2 an address, and the configuration before does not name c2.
func TestCardsOfAnUndoneChangeComeToRest(t *testing.T) {
	t.Parallel()
	ours, others := netip.MustParsePrefix("10.1.0.23/24"), netip.MustParsePrefix("192.0.2.1/24")
	made := []SavedLink{{Name: "c2", Up: true, Addresses: []netip.Prefix{ours}}}
	for name, c := range map[string]struct {
		was, now SavedLink
		rest     []SavedLink
	}{
		"was down": {
			SavedLink{Name: "c2", MTU: 1500}, SavedLink{Name: "c2", MTU: 1400, Up: true, Addresses: []netip.Prefix{ours}},
			[]SavedLink{{Name: "c2", MTU: 1500}},
		},
		"was up": {
			SavedLink{Name: "c2", MTU: 1500, Up: true}, SavedLink{Name: "c2", MTU: 1500, Up: true},
			[]SavedLink{{Name: "c2", MTU: 1500, Up: true}},
		},
		"others use it": {
			SavedLink{Name: "c2", MTU: 1500}, SavedLink{Name: "c2", Up: true, Addresses: []netip.Prefix{ours, others}},
			[]SavedLink{{Name: "c2", MTU: 1500, Up: true}},
		},
		"in a bond": {SavedLink{Name: "c2", MTU: 1500}, SavedLink{Name: "c2", Up: true, Master: "bond7"}, nil},
		"gone":      {SavedLink{Name: "c2", MTU: 1500}, SavedLink{Name: "c1"}, nil},
	} {
		got := atRest([]SavedLink{c.was}, made, []SavedLink{c.now})
		if !slices.EqualFunc(got, c.rest, func(a, b SavedLink) bool {
			return a.Name == b.Name && a.MTU == b.MTU && a.Up == b.Up && len(a.Addresses) == 0
		}) {
			t.Errorf("%s: %+v, want %+v", name, got, c.rest)
		}
	}
}

package network

import (
	"testing"
	"time"
)

// TestABondIsMadeAnewForAnOrderedDifferenceAlone: what the kernel shows has its own defaults (bonding.txt), which a
// configuration leaves out. A bond that is made anew takes the machine off the network.
func TestABondIsMadeAnewForAnOrderedDifferenceAlone(t *testing.T) {
	t.Parallel()
	shown := Bond{Mode: "active-backup", MIIMon: 100 * time.Millisecond, HashPolicy: "layer2", Members: []string{"a", "b"}}
	for name, c := range map[string]struct {
		ordered Bond
		anew    bool
	}{
		"the same":              {Bond{Mode: "active-backup", MIIMon: 100 * time.Millisecond}, false},
		"the default, by name":  {Bond{Mode: "active-backup", MIIMon: 100 * time.Millisecond, HashPolicy: "layer2"}, false},
		"another mode":          {Bond{Mode: "802.3ad", MIIMon: 100 * time.Millisecond}, true},
		"another way to spread": {Bond{Mode: "active-backup", MIIMon: 100 * time.Millisecond, HashPolicy: "layer3+4"}, true},
	} {
		is, wanted := SavedLink{Name: "bond7", Kind: "bond", Bond: &shown},
			SavedLink{Name: "bond7", Kind: "bond", Bond: &c.ordered}
		back, there := outdated([]SavedLink{wanted}, []SavedLink{is}), outdated([]SavedLink{is}, []SavedLink{wanted})
		if (len(back) > 0) != c.anew || (len(there) > 0) != c.anew {
			t.Errorf("%s: made anew %v on the way back, %v on the way there", name, back, there)
		}
	}
}

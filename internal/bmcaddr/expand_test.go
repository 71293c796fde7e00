package bmcaddr_test

import (
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/internal/bmcaddr"
)

func TestExpand(t *testing.T) {
	for text, want := range map[string]struct {
		n           int
		first, last string
	}{
		"10.42.1.7":                   {1, "10.42.1.7", "10.42.1.7"},
		"10.42.1.0/30":                {2, "10.42.1.1", "10.42.1.2"},
		"10.42.1.0/31":                {2, "10.42.1.0", "10.42.1.1"},
		"10.42.1.0/24":                {254, "10.42.1.1", "10.42.1.254"},
		"10.42.0.0/22":                {1022, "10.42.0.1", "10.42.3.254"},
		"10.42.1.0/30 10.42.1.1":      {2, "10.42.1.1", "10.42.1.2"},
		"fd00::/118":                  {1024, "fd00::", "fd00::3ff"},
		"::ffff:10.42.1.7":            {1, "10.42.1.7", "10.42.1.7"},
		"10.42.0.0/23 10.42.8.0/23":   {1020, "10.42.0.1", "10.42.9.254"},
		"255.0.0.0/32 is none":        {},
		"10.42.0.0/21":                {},
		"10.42.0.0/22 10.43.1.0/29":   {},
		"0.0.0.0/0":                   {},
		"::/0":                        {},
		"10.42.1.7/24":                {},
		"224.0.0.0/30":                {},
		"255.255.255.255":             {},
		"fe80::1%eth0":                {},
		"bmc-7.example.org":           {},
		"10.42.1":                     {},
		"redfish://10.42.1.7":         {},
		"255.255.255.252/30 10.0.0.1": {},
	} {
		got, err := bmcaddr.Expand(strings.Fields(text))
		switch {
		case want.n == 0:
			if err == nil {
				t.Errorf("%s gives %d addresses", text, len(got))
			}
		case err != nil || len(got) != want.n || got[0].String() != want.first || got[len(got)-1].String() != want.last:
			t.Errorf("%s gives %d addresses, %v", text, len(got), err)
		}
	}
}

package discovery

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/internal/safetext"
)

const (
	// mostText is more characters than a vendor, model or serial number has.
	mostText = 64
	// mostMACs is more than a machine has.
	mostMACs = 32
)

// unset are serial numbers and UUIDs that factories leave in boards, in lower case: they belong to nobody.
var unset = []string{
	"", "0", "none", "n/a", "na", "null", "unknown", "empty", "default string", "not specified", "not available",
	"to be filled by o.e.m.", "system serial number", "chassis serial number", "0123456789", "123456789",
	"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
	"03000200-0400-0500-0006-000700080009",
}

// judge cleans what BMCs have said, and finds those that say what they cannot: of two that say the same, nobody knows
// which one is right, so both have a problem.
func judge(all []Found) {
	said := map[string][]int{}
	for i := range all {
		f := &all[i]
		f.clean()
		for _, what := range f.claims() {
			said[what] = append(said[what], i)
		}
	}
	for what, who := range said {
		if len(who) < 2 {
			continue
		}
		for _, i := range who {
			other := who[0]
			if other == i {
				other = who[1]
			}
			problem := fmt.Sprintf("%s is what %s says too", what, all[other].Address)
			// Of several the same one is named each time.
			if all[i].Problem == "" || strings.HasSuffix(all[i].Problem, " says too") && problem < all[i].Problem {
				all[i].Problem = problem
			}
		}
	}
}

// clean bounds each text, and drops what is no address of a network card.
func (f *Found) clean() {
	for _, field := range []struct {
		name string
		text *string
	}{{"vendor", &f.Vendor}, {"model", &f.Model}, {"serial number", &f.Serial}, {"UUID", &f.UUID}} {
		text := strings.TrimSpace(safetext.Line(*field.text))
		if r := []rune(text); len(r) > mostText {
			f.problem(fmt.Sprintf("its %s has %d characters", field.name, len(r)))
			text = string(r[:mostText])
		}
		*field.text = text
	}
	if slices.Contains(unset, strings.ToLower(f.Serial)) {
		f.Serial = ""
	}
	if f.UUID = strings.ToLower(f.UUID); slices.Contains(unset, f.UUID) {
		f.UUID = ""
	}
	var macs []string
	for _, text := range f.MACs {
		mac, err := net.ParseMAC(text)
		if err == nil && len(mac) == 6 && mac[0]&1 == 0 && !slices.Equal(mac, make(net.HardwareAddr, 6)) &&
			!slices.Contains(macs, mac.String()) {
			macs = append(macs, mac.String())
		}
	}
	if len(macs) > mostMACs {
		f.problem(fmt.Sprintf("it has %d MAC addresses", len(macs)))
		macs = macs[:mostMACs]
	}
	f.MACs = macs
}

func (f *Found) problem(text string) {
	if f.Problem == "" {
		f.Problem = text
	}
}

// claims are what only one machine can have.
func (f *Found) claims() []string {
	var out []string
	if f.Serial != "" {
		out = append(out, "the serial number "+f.Serial)
	}
	if f.UUID != "" {
		out = append(out, "the UUID "+f.UUID)
	}
	for _, mac := range f.MACs {
		out = append(out, "the MAC address "+mac)
	}
	return out
}

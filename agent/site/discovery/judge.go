package discovery

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/internal/hwid"
	"github.com/ingot-metal/ingot/internal/safetext"
)

const (
	// mostText is more characters than a vendor, model or serial number has.
	mostText = 64
	// mostMACs is more than a machine has.
	mostMACs = 32
)

// judge cleans the claims of BMCs, and finds impossible ones: of two BMCs with the same claim either may be wrong, so
// both have a problem.
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

// clean bounds each text, and drops invalid addresses of network cards.
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
	f.Serial, f.UUID = hwid.Text(f.Serial), hwid.UUID(f.UUID)
	f.Vendor, f.Model = hwid.Text(f.Vendor), hwid.Text(f.Model)
	var macs []string
	for _, text := range f.MACs {
		if mac, err := hwid.MAC(text); err == nil && !slices.Contains(macs, mac) {
			macs = append(macs, mac)
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
		if !hwid.LocalMAC(mac) { // BMCs of one make often show the same link to the host
			out = append(out, "the MAC address "+mac)
		}
	}
	return out
}

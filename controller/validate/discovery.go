package validate

import (
	"net/netip"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/bmcaddr"
)

// maxNetworks of one discovery.
const maxNetworks = 64

// Discovery checks the networks to search for BMCs, and returns the addresses.
func Discovery(r *baremetalv1.DiscoverBMCsRequest) ([]netip.Addr, error) {
	var f faults
	if r.GetSite() == "" {
		f.add("site", "required")
	}
	f.add("site", text(r.GetSite(), maxText))
	if !refForm.MatchString(r.GetCredentialsRef()) {
		f.add("credentials_ref", refRule)
	}
	if r.GetPort() < 0 || r.GetPort() > 65535 {
		f.add("port", "must be 1 to 65535, or 0 for 443 and 623")
	}
	var addresses []netip.Addr
	switch n := len(r.GetNetworks()); {
	case n == 0:
		f.add("networks", "required")
	case n > maxNetworks:
		f.add("networks", "too many; a network such as 10.42.1.0/24 covers many addresses")
	default:
		var err error
		if addresses, err = bmcaddr.Expand(r.GetNetworks()); err != nil {
			f.add("networks", err.Error())
		}
	}
	return addresses, f.err()
}

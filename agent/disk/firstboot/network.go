package firstboot

import (
	"encoding/json"
	"fmt"
	"net/netip"
)

// Network is an address that a machine has without DHCP. The zero values of Gateway and DNS are none.
type Network struct {
	Address netip.Prefix
	Gateway netip.Addr
	DNS     []netip.Addr
}

// defaultNetwork configures the interface on which the installer had its address. Without DHCP it has the same address.
// With DHCP it has the firmware's client identifier, so that every system on the machine gets the same lease.
func (c Config) defaultNetwork() string {
	match := fmt.Sprintf("macaddress: %q", c.MAC)
	if c.MAC == "" {
		match = `name: "e*"`
	}
	head := "version: 2\nethernets:\n  boot:\n    match:\n      " + match + "\n"
	if c.Network == nil {
		return head + "    dhcp4: true\n    dhcp-identifier: mac\n"
	}
	out := head + fmt.Sprintf("    addresses: [%q]\n", c.Network.Address)
	if c.Network.Gateway.IsValid() {
		out += fmt.Sprintf("    routes:\n      - to: 0.0.0.0/0\n        via: %q\n", c.Network.Gateway)
	}
	if len(c.Network.DNS) > 0 {
		servers, _ := json.Marshal(c.Network.DNS) // addresses always encode; JSON is YAML
		out += "    nameservers:\n      addresses: " + string(servers) + "\n"
	}
	return out
}

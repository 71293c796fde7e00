package node

import (
	"fmt"
	"slices"
	"strings"
)

// The health checks of a node on its way in. A group names those that its nodes must pass.
const (
	// CheckReachable: the machine's own agent has a session.
	CheckReachable = "reachable"
	// CheckInventory: the machine's inventory has the serial number and the MAC addresses that it was registered with.
	CheckInventory = "inventory"
	// CheckProvider: the machine's provider says that it is deployed.
	CheckProvider = "provider"
)

// Checks lists every health check.
func Checks() []string { return []string{CheckReachable, CheckInventory, CheckProvider} }

// Health is what the health checks compare.
type Health struct {
	// Live reports whether the machine's agent has a session.
	Live bool
	// Serial and MACs are as registered; MACs are lower case with colons.
	Serial string
	MACs   []string
	// Inventoried reports whether there is an inventory, Simulated whether a program without hardware has made it;
	// SeenSerial and SeenMACs are what it shows.
	Inventoried, Simulated bool
	SeenSerial             string
	SeenMACs               []string
	// ProviderFault says what the provider says that is not healthy; empty if it is.
	ProviderFault string
}

// Failing lists the checks that do not pass, each as "check: why".
func Failing(checks []string, h Health) []string {
	var out []string
	for _, c := range Checks() {
		why := ""
		switch c {
		case CheckReachable:
			if !h.Live {
				why = "the machine's agent has no session"
			}
		case CheckInventory:
			why = h.inventoryFault()
		case CheckProvider:
			why = h.ProviderFault
		}
		if why != "" && slices.Contains(checks, c) {
			out = append(out, c+": "+why)
		}
	}
	return out
}

// inventoryFault says what of the registration the inventory does not show. Where nothing was registered there is
// nothing to compare, and a simulated machine has no hardware of its own.
func (h Health) inventoryFault() string {
	switch {
	case h.Serial == "" && len(h.MACs) == 0, h.Simulated:
		return ""
	case !h.Inventoried:
		return "the machine has sent no inventory"
	case h.Serial != "" && !strings.EqualFold(h.Serial, h.SeenSerial):
		return fmt.Sprintf("serial number %q is registered, and the machine has %q", h.Serial, h.SeenSerial)
	}
	for _, mac := range h.MACs {
		if !slices.Contains(h.SeenMACs, mac) {
			return "MAC address " + mac + " is registered, and no interface of the machine has it"
		}
	}
	return ""
}

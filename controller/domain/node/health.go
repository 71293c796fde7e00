package node

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/internal/hwid"
)

// The health checks of a node on its way in. A group names those that its nodes must pass.
const (
	// CheckReachable: the machine's own agent has a session.
	CheckReachable = "reachable"
	// CheckInventory: the machine's inventory has the serial number and the MAC addresses that it was registered with.
	CheckInventory = "inventory"
	// CheckProvider: the machine's provider shows it as deployed.
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
	// Seen and SeenMACs are what it shows.
	Inventoried, Simulated bool
	Seen                   hwid.Facts
	SeenMACs               []string
	// ProviderFault is what the provider reports that is not healthy; empty if it is. ProviderUnseen reports whether it
	// has reported nothing yet.
	ProviderFault  string
	ProviderUnseen bool
}

// CheckState is the outcome of a health check.
type CheckState string

// The outcomes. A check is unknown while nothing was seen that it could compare; only a check that passed lets a node
// in.
const (
	CheckPassed  CheckState = "passed"
	CheckFailing CheckState = "failing"
	CheckUnknown CheckState = "unknown"
)

// HealthCheck is a health check with its outcome.
type HealthCheck struct {
	Name  string
	State CheckState
	// Message names what was expected and what was found; empty of a check that passed.
	Message string
}

// Evaluate returns the outcome of each of the named checks, in the order of Checks.
func Evaluate(checks []string, h Health) []HealthCheck {
	var out []HealthCheck
	for _, name := range Checks() {
		if !slices.Contains(checks, name) {
			continue
		}
		c := HealthCheck{Name: name, State: CheckPassed}
		switch name {
		case CheckReachable:
			if !h.Live {
				c.State, c.Message = CheckFailing, "the machine's agent has no session"
			}
		case CheckInventory:
			c.State, c.Message = h.inventory()
		case CheckProvider:
			c.State, c.Message = h.provider()
		}
		out = append(out, c)
	}
	return out
}

// Failing lists the checks that did not pass, each as "check: why".
func Failing(checks []HealthCheck) []string {
	var out []string
	for _, c := range checks {
		if c.State != CheckPassed {
			out = append(out, c.Name+": "+c.Message)
		}
	}
	return out
}

// provider evaluates what the machine's provider reports.
func (h Health) provider() (CheckState, string) {
	switch {
	case h.ProviderFault == "":
		return CheckPassed, ""
	case h.ProviderUnseen:
		return CheckUnknown, h.ProviderFault
	}
	return CheckFailing, h.ProviderFault
}

// inventory compares the registration with the inventory. Where nothing was registered there is nothing to compare, and
// a simulated machine has no hardware of its own.
func (h Health) inventory() (CheckState, string) {
	registered := hwid.Facts{Serial: hwid.Text(h.Serial), Registered: true}
	switch v := hwid.Judge(registered, h.Seen); {
	case registered.Serial == "" && len(h.MACs) == 0, h.Simulated:
		return CheckPassed, ""
	case !h.Inventoried:
		return CheckUnknown, "the machine has sent no inventory"
	case v.Other():
		return CheckFailing, fmt.Sprintf("registered serial number %q is not the machine's: %q", h.Serial, h.Seen.Serial)
	case registered.Serial != "" && !v.Confirmed:
		return CheckUnknown, fmt.Sprintf("the machine's serial number was not read; %q is registered", h.Serial)
	}
	for _, mac := range h.MACs {
		if !slices.Contains(h.SeenMACs, mac) {
			return CheckFailing, "registered MAC address " + mac + " is not among the machine's: " +
				cmp.Or(strings.Join(h.SeenMACs, ", "), "it shows none")
		}
	}
	return CheckPassed, ""
}

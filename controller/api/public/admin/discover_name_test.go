package admin

import (
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
)

// TestNameOfABMC: a UUID or serial number outweighs addresses that have moved.
func TestNameOfABMC(t *testing.T) {
	t.Parallel()
	known := []machinestore.Hardware{
		{
			MachineID:   "a",
			BMCEndpoint: "redfish://10.0.0.1",
			MACs:        []string{"00:25:90:00:00:01"},
			Serials:     []string{"A-1", "A-2"},
			UUID:        "4c4c4544-0031-3510-8052-b7c04f4e4b32",
		},
		{MachineID: "b", BMCEndpoint: "redfish://10.0.0.2", MACs: []string{"00:25:90:00:00:02"}, Serials: []string{"B-1"}},
		{MachineID: "c", MACs: []string{"00:25:90:00:00:03"}},
	}
	for name, c := range map[string]struct {
		bmc           *baremetalv1.DiscoveredBMC
		want, problem string
	}{
		"its own": {&baremetalv1.DiscoveredBMC{Endpoint: "redfish://10.0.0.1", SerialNumber: "a-2"}, "a", ""},
		"another's card": {&baremetalv1.DiscoveredBMC{Endpoint: "redfish://10.0.0.1", SerialNumber: "A-1",
			MacAddresses: []string{"00:25:90:00:00:02"}}, "a", ""},
		"a new machine with a card": {&baremetalv1.DiscoveredBMC{Endpoint: "redfish://10.0.0.9", SerialNumber: "N-1",
			MacAddresses: []string{"00:25:90:00:00:02"}}, "", "an address of machine b, and is another one"},
		"a new machine with the BMC's address": {&baremetalv1.DiscoveredBMC{Endpoint: "redfish://10.0.0.2", SerialNumber: "N-1"},
			"", "the system's serial number is N-1, and was B-1"},
		"only a card": {&baremetalv1.DiscoveredBMC{Endpoint: "redfish://10.0.0.9", SerialNumber: "N-1",
			MacAddresses: []string{"00:25:90:00:00:03"}}, "c", ""},
		"moved": {&baremetalv1.DiscoveredBMC{Endpoint: "redfish://10.0.0.9", SerialNumber: "B-1"}, "b", "has the BMC"},
		"of two": {&baremetalv1.DiscoveredBMC{Endpoint: "redfish://10.0.0.9",
			MacAddresses: []string{"00:25:90:00:00:02", "00:25:90:00:00:03"}}, "b", "it fits the machines b, c"},
		"the other byte order": {&baremetalv1.DiscoveredBMC{Endpoint: "redfish://10.0.0.1",
			SystemUuid: "44454c4c-3100-1035-8052-b7c04f4e4b32"}, "a", ""},
	} {
		b := c.bmc
		recognizeAmong(known, []*baremetalv1.DiscoveredBMC{b})
		if b.GetMachineId() != c.want || !strings.Contains(b.GetProblem(), c.problem) ||
			c.problem == "" && b.GetProblem() != "" {
			t.Errorf("%s: %q, %q", name, b.GetMachineId(), b.GetProblem())
		}
	}
}

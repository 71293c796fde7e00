//go:build metal

package lab_test

import (
	"testing"

	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

// TestMetalEveryShape: a machine that is off comes into the installer, and out of it with the system, whatever its BMC
// is like.
func TestMetalEveryShape(t *testing.T) {
	if !asRoot(t) {
		return
	}
	machines := map[string]metal.MachineConfig{"IPMI": {Firmware: vm.UEFI, BMC: metal.IPMI}}
	for name, shape := range bmc.Shapes {
		machines[name] = metal.MachineConfig{Firmware: vm.UEFI, BMC: metal.Redfish, Shape: shape}
	}
	for name, machine := range machines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil)
			op := s.installs(s.machine(machine), "first")
			s.Logf("evidence: %v", op.GetEvidence())
		})
	}
}

//go:build metal

package lab_test

import (
	"testing"

	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

// TestMetalEveryShape: a machine that is off comes into the installer, and out of it with the system, whatever its
// Redfish service is like.
func TestMetalEveryShape(t *testing.T) {
	if !asRoot(t) {
		return
	}
	for name, shape := range bmc.Shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil)
			op := s.installs(s.machine(metal.MachineConfig{Firmware: vm.UEFI, BMC: metal.Redfish, Shape: shape}), "first")
			s.Logf("evidence: %v", op.GetEvidence())
		})
	}
}

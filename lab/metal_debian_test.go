//go:build metal

package lab_test

import (
	"os"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

// envDebian names a Debian image, as `ingot-image debian` makes it.
const envDebian = "INGOT_TEST_DEBIAN"

// TestMetalDebian installs a whole distribution, where the agent is one unit among others. `make lab-debian` runs it.
func TestMetalDebian(t *testing.T) {
	if !asRoot(t) {
		return
	}
	image := os.Getenv(envDebian)
	if image == "" {
		t.Fatalf("%s names no image: ingot-image debian --out FILE.raw.zst", envDebian)
	}
	for name, cfg := range map[string]metal.MachineConfig{
		"BIOS by Redfish": {Firmware: vm.BIOS, BMC: metal.Redfish}, "UEFI by IPMI": {Firmware: vm.UEFI, BMC: metal.IPMI},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil)
			cfg.MemoryMB = 768
			m := s.machine(cfg)
			if err := s.api.Upload(s.ctx, image, &pb.Image{ImageRef: "debian", Format: "raw.zst"}); err != nil {
				t.Fatal(err)
			}
			s.maintain(m.Name())
			op, err := s.api.Machines.ReimageMachine(s.ctx,
				&pb.ReimageMachineRequest{MachineId: m.Name(), RequestId: "debian", ImageRef: "debian"})
			op = s.ended(op, err)
			s.holdsInstalled(m, op)
			t.Logf("%v", op.GetEvidence())
		})
	}
}

//go:build metal

package lab_test

import (
	"os"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/chassis"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

// TestMetalMirror: an image is installed on two disks, the system's own mdadm starts them as one, and the machine starts
// from either alone. `make lab-mirror` runs it.
func TestMetalMirror(t *testing.T) {
	if !asRoot(t) {
		return
	}
	image := os.Getenv(envStock)
	if image == "" {
		t.Fatalf("%s names no image: scripts/stock-image FILE.raw.zst bookworm mdadm", envStock)
	}
	for name, firmware := range map[string]vm.Firmware{"BIOS": vm.BIOS, "UEFI": vm.UEFI} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil)
			one, other := disk("one", 2), disk("other", 3)
			m := s.machine(metal.MachineConfig{
				Firmware: firmware, BMC: metal.Redfish, MemoryMB: 1024, Disks: []chassis.Disk{one, other},
				InstallDisk: "serial=one", InstallMirror: "size>=1GiB",
			})
			op := s.installsStock(m, image)
			if e := op.GetEvidence(); e["disk"] != "one" || e[evidence.MirrorDisk] != "other" {
				t.Errorf("evidence %v", e)
			}
			s.holdsMirror(m, "2", "[UU]")
			for missing, left := range map[string]chassis.Disk{"other": one, "one": other} {
				s.power(m, bmc.ForceOff)
				if err := m.SetDisks(left); err != nil {
					t.Fatal(err)
				}
				s.power(m, bmc.PowerOn)
				s.Logf("started without the disk %s", missing)
				s.holdsMirror(m, "1", "_")
			}
		})
	}
}

// holdsMirror logs in, and compares what the system says of its mirror.
func (s *site) holdsMirror(m *metal.Machine, disks, state string) {
	s.Helper()
	var said string
	testkit.Eventually(s.T, stockCycle, func() bool {
		said = s.ssh(m, s.key(), "cat /proc/mdstat; findmnt -no SOURCE /; findmnt -no SOURCE /var/lib/ingot; "+
			"sudo mdadm --detail /dev/md127; df --output=size -BM / | tail -1")
		return said != ""
	}, "no ssh session in the system on a mirror")
	s.Logf("the system says: %s", said)
	flat := strings.Join(strings.Fields(said), " ")
	for _, want := range []string{state, "Raid Level : raid1", "Working Devices : " + disks, "Version : 1.0", "/dev/md127p1"} {
		if !strings.Contains(flat, want) {
			s.Errorf("it lacks %q", want)
		}
	}
	if strings.Count(said, "/dev/md127p") < 2 {
		s.Errorf("root and state do not both lie on the mirror")
	}
}

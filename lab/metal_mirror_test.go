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

// TestMetalMirror: an image is installed on two disks, the system's own mdadm starts them as one, and the machine
// starts from either alone. `make lab-mirror` runs it.
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
			one, other, data := disk("one", 2), disk("other", 3), disk("data", 1)
			m := s.machine(metal.MachineConfig{
				Firmware: firmware, BMC: metal.Redfish, MemoryMB: 1024, Disks: []chassis.Disk{one, other, data},
				InstallDisk: "serial=one", InstallMirror: "size>=2GiB", DataDisks: []string{"/srv/data serial=data"},
			})
			op := s.installsStock(m, image)
			if e := op.GetEvidence(); e["disk"] != "one" || e[evidence.MirrorDisk] != "other" ||
				!strings.Contains(e[evidence.DataDisks], `"made":true`) {
				t.Errorf("evidence %v", e)
			}
			s.holdsMirror(m, "2", "[UU]")
			s.showsMirror(m, false)
			s.keepsData(m)
			for missing, left := range map[string]chassis.Disk{"other": one, "one": other} {
				s.power(m, bmc.ForceOff)
				if err := m.SetDisks(left, data); err != nil {
					t.Fatal(err)
				}
				s.power(m, bmc.PowerOn)
				s.Logf("started without the disk %s", missing)
				s.holdsMirror(m, "1", "_")
				s.showsMirror(m, true)
			}
		})
	}
}

// keepsData writes a file to the data disk, installs the machine anew, on the same mirror, and reads the file.
func (s *site) keepsData(m *metal.Machine) {
	s.Helper()
	said := s.ssh(m, s.key(), "findmnt -no FSTYPE,SIZE /srv/data; echo it is kept | sudo tee /srv/data/file; sync")
	if !strings.HasPrefix(said, "ext4") || !strings.Contains(said, "it is kept") {
		s.Fatalf("the data disk: %q", said)
	}
	s.Logf("the data disk: %s", said)
	op := s.reinstallsStock(m)
	if e := op.GetEvidence(); !strings.Contains(e[evidence.DataDisks], `"made":false`) {
		s.Errorf("evidence %v", e)
	}
	testkit.Eventually(s.T, stockCycle, func() bool {
		said = s.ssh(m, s.key(), "cat /srv/data/file; cat /proc/mdstat; sync") // it is switched off soon
		return said != ""
	}, "no ssh session in the system that was installed again")
	if !strings.Contains(said, "it is kept") || !strings.Contains(said, "[UU]") {
		s.Errorf("after another installation: %s", said)
	}
}

// showsMirror waits until the list, the inventory and the cause show the mirror as degraded or whole. A machine that
// starts from the disk that was out before has an agent with an older memory, which is a graver cause.
func (s *site) showsMirror(m *metal.Machine, degraded bool) {
	s.Helper()
	var list, inventory, why string
	defer func() { s.Logf("degraded %t:\n%s\n%s\n%s", degraded, list, inventory, why) }()
	testkit.Eventually(s.T, stockCycle, func() bool {
		list, inventory, why = s.run("list"), s.run("machine", "inventory", m.Name()), s.run("why", m.Name())
		caused := strings.Contains(why, "RAID_DEGRADED") || strings.Contains(why, "AGENT_STATE_ROLLED_BACK")
		return strings.Contains(list, "DEGRADED") == degraded && caused == degraded &&
			strings.Contains(inventory, "raid1") && strings.Contains(inventory, "lacks 1") == degraded
	}, "list, inventory and why do not all say that degraded is %t", degraded)
}

// holdsMirror logs in, and compares the system's data on its mirror.
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
	for _, want := range []string{
		state, "Raid Level : raid1", "Working Devices : " + disks, "Version : 1.0", "/dev/md127p1",
	} {
		if !strings.Contains(flat, want) {
			s.Errorf("it lacks %q", want)
		}
	}
	if strings.Count(said, "/dev/md127p") < 2 {
		s.Errorf("root and state do not both lie on the mirror")
	}
}

//go:build metal

package lab_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/chassis"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

// TestMetalKilledAtEachStage: the site agent or the controller dies at every stage of an installation, and comes back.
// The installation ends well, with one write, but where the machine gave up on the site meanwhile and was sent in
// again.
func TestMetalKilledAtEachStage(t *testing.T) {
	if !asRoot(t) {
		return
	}
	for victim, kill := range map[string]func(*site) error{
		"site agent": func(s *site) error { return errors.Join(s.lab.KillSite(), s.lab.StartSite(s.ctx)) },
		"controller": func(s *site) error { return errors.Join(s.lab.KillController(), s.lab.StartController(s.ctx)) },
	} {
		for _, stage := range stagesToKillAt {
			t.Run(victim+" "+stage.name, func(t *testing.T) {
				t.Parallel()
				s := newSite(t, nil)
				m := s.machine(metal.MachineConfig{Firmware: vm.BIOS, BMC: metal.Redfish})
				s.maintain(m.Name())
				began := time.Now()
				op := s.reimage(m.Name(), "killed")
				stage.reached(s, m, op, began)
				if err := kill(s); err != nil {
					t.Fatal(err)
				}
				s.holdsInstalled(m, s.ended(op, nil))
			})
		}
	}
}

type reached func(s *site, m *metal.Machine, op *pb.Operation, began time.Time)

var stagesToKillAt = []struct {
	name    string
	reached reached
}{
	{"before anything", func(*site, *metal.Machine, *pb.Operation, time.Time) {}},
	{"at power-on", func(s *site, m *metal.Machine, _ *pb.Operation, _ time.Time) {
		testkit.Eventually(s.T, cycle, func() bool { return m.PowerOns() > 0 }, "machine is not switched on")
	}},
	{"while the kernel loads", onConsole("/kernel")},
	{"while the installer starts", onConsole("/initrd... ok")},
	{"at the grant", logged("writing image")},
	{"in the write", logged("stage: write")},
	{"in the read-back", logged("stage: verify")},
	{"at the identity", logged("stage: identity")},
	{"before the reboot", logged("wrote /dev/")},
	{"in the first boot", onConsole("SYSLINUX")},
}

func onConsole(text string) reached {
	return func(s *site, m *metal.Machine, _ *pb.Operation, began time.Time) {
		s.Helper()
		if _, err := m.WaitSaid(s.ctx, text, began); err != nil {
			s.Fatal(err)
		}
	}
}

func logged(text string) reached {
	return func(s *site, _ *metal.Machine, op *pb.Operation, _ time.Time) {
		s.Helper()
		s.until(op, text)
	}
}

// TestMetalPlugPulled: the power goes while the disk is half written, and what was in the disk's cache with it. The
// machine is switched on again through its BMC, and a new command writes from the top.
func TestMetalPlugPulled(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Parallel()
	s := newSite(t, nil)
	m := s.slowMachine()
	s.maintain(m.Name())
	op := s.reimage(m.Name(), "unplugged")
	s.until(op, "stage: write")
	if err := m.PullPlug(); err != nil {
		t.Fatal(err)
	}
	s.hurry(m)
	began := time.Now()
	op = s.ended(op, nil)
	t.Logf("%.1f s after the power cut", time.Since(began).Seconds())
	s.holdsInstalled(m, op)
	if n := m.PowerOns(); n != 2 {
		t.Errorf("%d power-ons, want 2", n)
	}
}

// TestMetalNobodyReports: the machine is booted as often as the step allows, and then the operation reports the missing
// event.
func TestMetalNobodyReports(t *testing.T) {
	if !asRoot(t) {
		return
	}
	for name, cut := range map[string]reached{
		"no DHCP answer":        func(*site, *metal.Machine, *pb.Operation, time.Time) {},
		"a silent installer":    onConsole("/initrd... ok"),
		"an unfinished initrd":  onConsole("/initrd"),
		"no kernel after a URL": onConsole("auto.ipxe"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil)
			m := s.machine(metal.MachineConfig{Firmware: vm.BIOS, BMC: metal.Redfish})
			s.maintain(m.Name())
			began := time.Now()
			if name == "no DHCP answer" {
				s.unplug(m)
			}
			op, err := s.api.Machines.ReimageMachine(s.ctx, &pb.ReimageMachineRequest{
				MachineId: m.Name(), RequestId: "silent", ImageRef: metal.TinyRef, TimeoutSeconds: 90,
			})
			if err != nil {
				t.Fatal(err)
			}
			cut(s, m, op, began)
			s.unplug(m)
			s.failed(s.ended(op, nil), "INSTALLER_SILENT")
			if n := m.PowerOns(); n < 2 {
				t.Errorf("%d power-ons, want another try", n)
			}
		})
	}
}

// unplug may be called again.
func (s *site) unplug(m *metal.Machine) {
	s.Helper()
	if err := s.lab.Switch().Unplug(m.Port); err != nil {
		s.Fatal(err)
	}
}

// failed: the reason is right, nothing was verified, and nothing boots from the network any more.
func (s *site) failed(op *pb.Operation, reason string) {
	s.Helper()
	s.Logf("%s after %.1f s: %s", op.GetError().GetCode(),
		op.GetFinishedAt().AsTime().Sub(op.GetCreatedAt().AsTime()).Seconds(), op.GetError().GetMessage())
	if op.GetPhase() != pb.Operation_FAILED || causeOf(op) != reason {
		s.Errorf("ended %s, %v; want %s", op.GetPhase(), op.GetError(), reason)
	}
	s.holdsWrites(op, 0)
	if mode := s.get(op.GetMachineId()).GetStatus().GetBootAssignment(); mode != "disk" {
		s.Errorf("the machine would boot its %s", mode)
	}
}

// causeOf returns the cause of the failure; after the last install attempt it is in the details of the code for that.
func causeOf(op *pb.Operation) string {
	if e := op.GetError(); e.GetCode() == "INSTALL_ATTEMPTS_EXHAUSTED" {
		return e.GetDetails()["cause"]
	}
	return op.GetError().GetCode()
}

// TestMetalDisks: the disks are not as they should be.
func TestMetalDisks(t *testing.T) {
	if !asRoot(t) {
		return
	}
	for reason, cfg := range map[string]metal.MachineConfig{
		"DISK_RULE_NO_UNIQUE_MATCH": {Disks: []chassis.Disk{disk("a", 2), disk("b", 2)}},
		"IMAGE_TOO_LARGE":           {Disks: []chassis.Disk{{Serial: "small", Bytes: 64 << 20}}},
		// In the EFI system partition, which the image fills.
		"DISK_WRITE_ERROR": {Disks: []chassis.Disk{{Serial: "bad", Bytes: 2 << 30, BadSector: 8192}}},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil)
			cfg.Firmware, cfg.BMC = vm.BIOS, metal.Redfish
			m := s.machine(cfg)
			s.maintain(m.Name())
			s.failed(s.ended(s.reimage(m.Name(), "disks"), nil), reason)
		})
	}
	t.Run("one of two by its serial number", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, nil)
		m := s.machine(metal.MachineConfig{
			Firmware: vm.BIOS, BMC: metal.IPMI, Disks: []chassis.Disk{disk("wanted", 2), disk("data", 3)},
			InstallDisk: "serial=wanted",
		})
		op := s.installs(m, "chosen")
		if op.GetEvidence()["disk"] != "wanted" {
			t.Errorf("evidence %v", op.GetEvidence())
		}
		s.power(m, bmc.ForceOff)
		other, err := m.ReadDisk(s.ctx, 1, 0, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Trim(string(other), "\x00") != "" {
			t.Error("something was written to the other disk")
		}
	})
}

// TestMetalDamagedImage: a byte of the image is wrong where the controller keeps it.
func TestMetalDamagedImage(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Parallel()
	s := newSite(t, nil)
	m := s.machine(metal.MachineConfig{Firmware: vm.BIOS, BMC: metal.Redfish})
	s.maintain(m.Name())
	p, err := sharedMetal()
	if err != nil {
		t.Fatal(err)
	}
	if n := s.damage(filepath.Join(s.dir, "controller"), p.files.Tiny.SHA256File); n != 1 {
		t.Fatalf("damaged %d files", n)
	}
	op := s.ended(s.reimage(m.Name(), "damaged"), nil)
	if code := causeOf(op); code != "IMAGE_DIGEST_MISMATCH" {
		t.Errorf("ended %s, %v", op.GetPhase(), op.GetError())
	}
	s.holdsWrites(op, 0)
}

// damage flips a byte in the middle of every file below dir with the digest in its name.
func (s *site) damage(dir, digest string) (n int) {
	s.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.Contains(d.Name(), digest) {
			return nil //nolint:nilerr // the database's files come and go
		}
		n++
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		data[len(data)/2] ^= 0xff
		return errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, data, 0o600))
	})
	if err != nil {
		s.Fatal(err)
	}
	return n
}

// TestMetalWaysIn: by HTTP boot, where there is no PXE; from the running system by kexec and by BootNext; and the power
// cycle of a running system.
func TestMetalWaysIn(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Run("UEFI by HTTP only", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, nil)
		m := s.machine(metal.MachineConfig{Firmware: vm.UEFI, BMC: metal.Redfish, NoPXE: true})
		s.installs(m, "http")
		if said, err := m.SerialLog(); err != nil || !strings.Contains(string(said), "HTTP Boot over IPv4") {
			t.Errorf("the firmware did not boot by HTTP (%v)", err)
		}
		s.again(m, "kexec")
	})
	t.Run("UEFI", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, nil)
		m := s.machine(metal.MachineConfig{Firmware: vm.UEFI, BMC: metal.Redfish})
		s.installs(m, "bmc")
		s.again(m, "bootnext")
	})
	t.Run("BIOS", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, nil)
		m := s.machine(metal.MachineConfig{Firmware: vm.BIOS, BMC: metal.IPMI})
		s.installs(m, "bmc")
		s.again(m, "kexec")
		s.again(m, "bmc")
		s.powerCycles(m)
	})
}

// again installs a running machine by one way and no other.
func (s *site) again(m *metal.Machine, way string) {
	s.Helper()
	powerOns := m.PowerOns()
	op := s.ended(s.reimageBy(m.Name(), "again by "+way, way), nil)
	s.Logf("by %s", way)
	s.holdsInstalled(m, op)
	if n := m.PowerOns() - powerOns; (n > 0) != (way == "bmc") {
		s.Errorf("%d power-ons by %s", n, way)
	}
}

// powerCycles reboots through the BMC.
func (s *site) powerCycles(m *metal.Machine) {
	s.Helper()
	plan, err := s.api.Plans.CreatePlan(s.ctx, &pb.CreatePlanRequest{Plan: &pb.Plan{
		PlanId: "power-cycle", Steps: []*pb.Step{{Name: "cycle", Kind: &pb.Step_Reboot{Reboot: &pb.Reboot{Mode: "bmc"}}}},
	}})
	if err != nil {
		s.Fatal(err)
	}
	powerOns := m.PowerOns()
	op, err := s.api.Machines.RebootMachine(s.ctx, &pb.RebootMachineRequest{MachineId: m.Name(), RequestId: "cycle",
		PlanId: plan.GetPlanId()})
	op = s.ended(op, err)
	s.succeeded(op)
	e := op.GetEvidence()
	if e["boot_id_after"] == "" || e["boot_id_after"] == e["boot_id_before"] || m.PowerOns() != powerOns+1 {
		s.Errorf("evidence %v, %d power-ons", e, m.PowerOns()-powerOns)
	}
	s.Logf("power cycle in %.1f s", op.GetFinishedAt().AsTime().Sub(op.GetCreatedAt().AsTime()).Seconds())
}

func disk(serial string, gib int64) chassis.Disk {
	return chassis.Disk{Serial: serial, Bytes: gib << 30}
}

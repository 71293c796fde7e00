//go:build metal

package lab_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

// hurry ends what slowMachine began.
func (s *site) hurry(m *metal.Machine) {
	s.Helper()
	if err := m.SetWriteLimit(s.ctx, 0, 0); err != nil {
		s.Fatal(err)
	}
}

// TestMetalRestartInMidWrite: the reset button is pressed while the disk is half written. The disk does not boot; the
// installer comes again, and a new command writes from the top.
func TestMetalRestartInMidWrite(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Parallel()
	s := newSite(t, nil)
	m := s.slowMachine()
	s.maintain(m.Name())
	op := s.reimage(m.Name(), "cut")
	s.until(op, "stage: write")
	s.hurry(m)
	if err := m.Reset(s.ctx); err != nil {
		t.Fatal(err)
	}
	op = s.ended(op, nil)
	s.holdsInstalled(m, op)
	if n := s.logged(op, "stage: write"); n != 2 {
		t.Errorf("%d writes began, want the one that was cut and one more", n)
	}
}

// TestMetalKilledInMidWrite: site agent and controller are both killed while a disk is being written; the same command
// goes on and ends.
func TestMetalKilledInMidWrite(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Parallel()
	s := newSite(t, nil)
	m := s.slowMachine()
	s.maintain(m.Name())
	op := s.reimage(m.Name(), "killed")
	s.until(op, "stage: write")
	if err := errors.Join(s.lab.KillSite(), s.lab.KillController(), s.lab.StartController(s.ctx),
		s.lab.StartSite(s.ctx)); err != nil {
		t.Fatal(err)
	}
	s.hurry(m)
	op = s.ended(op, nil)
	s.holdsInstalled(m, op)
	if n := s.logged(op, "stage: write"); n != 1 {
		t.Errorf("%d writes began, want 1", n)
	}
}

// TestMetalUnknownMachine: it is reported, and gets no boot file.
func TestMetalUnknownMachine(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Parallel()
	s := newSite(t, nil)
	m := s.machine(metal.MachineConfig{Name: "stranger", Firmware: vm.BIOS, Unknown: true, NetworkFirst: true})
	began := time.Now()
	s.power(m, bmc.PowerOn)
	var found *pb.DiscoveredMachine
	testkit.Eventually(t, cycle, func() bool {
		list, err := s.api.Admin.ListDiscovered(s.ctx, &pb.ListDiscoveredRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list.GetMachines() {
			if d.GetMacAddress() == m.About().MACs[0] {
				found = d
			}
		}
		return found != nil
	}, "the stranger is not reported")
	if found.GetArch() != "bios" || found.GetSegment() == "" {
		t.Errorf("reported as %v", found)
	}
	if _, err := m.WaitSaid(s.ctx, "Booting from Hard Disk", began); err != nil {
		t.Error(err)
	}
	if at, ok := m.Said("/kernel", began); ok {
		t.Errorf("it was given a kernel at %v", at)
	}
}

// TestMetalBMCs: what a BMC does wrong ends the operation with its reason, and no machine is started.
func TestMetalBMCs(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Parallel()
	s := newSite(t, nil)
	_, err := s.api.Admin.SetBMCCredentials(s.ctx, &pb.SetBMCCredentialsRequest{CredentialsRef: "wrong",
		Username: metal.Username, Password: "not-it", AllowedEndpoints: []string{metal.BMCNetwork}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, reason string
		machine      metal.MachineConfig
		spoil        func(*metal.Machine)
		holds        func(*metal.Machine) error
	}{
		{"a wrong password", "BMC_AUTH_FAILED", metal.MachineConfig{BMC: metal.Redfish, CredentialsRef: "wrong"},
			func(*metal.Machine) {},
			func(m *metal.Machine) error {
				if n := m.Redfish.Counts().WrongPasswords; n != 1 {
					return fmt.Errorf("the wrong password was tried %d times", n)
				}
				return nil
			}},
		{"a liar by Redfish", "BMC_NO_EFFECT", metal.MachineConfig{BMC: metal.Redfish},
			func(m *metal.Machine) { m.Redfish.Misbehave(bmc.Faults{Liar: true}) }, nil},
		{"a liar by IPMI", "BMC_NO_EFFECT", metal.MachineConfig{BMC: metal.IPMI}, func(m *metal.Machine) { m.IPMI.Lie(true) },
			nil},
		{"silence", "BMC_UNREACHABLE", metal.MachineConfig{BMC: metal.Redfish},
			func(m *metal.Machine) { m.Redfish.Misbehave(bmc.Faults{Silent: true}) }, nil},
	} {
		c.machine.Firmware = vm.BIOS
		m := s.machine(c.machine)
		s.maintain(m.Name())
		c.spoil(m)
		began := time.Now()
		op := s.ended(s.reimage(m.Name(), "spoilt"), nil)
		t.Logf("%s: %s after %.1f s: %s", c.name, op.GetError().GetCode(), time.Since(began).Seconds(),
			op.GetError().GetMessage())
		if op.GetPhase() != pb.Operation_FAILED || op.GetError().GetCode() != c.reason {
			t.Errorf("%s: %s, %v; want %s", c.name, op.GetPhase(), op.GetError(), c.reason)
		}
		if n := m.PowerOns(); n != 0 {
			t.Errorf("%s: %d power-ons", c.name, n)
		}
		if c.holds != nil {
			if err := c.holds(m); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
}

func (s *site) power(m *metal.Machine, to bmc.Switch) {
	s.Helper()
	if err := m.SetPower(s.ctx, to); err != nil {
		s.Fatal(err)
	}
}

//go:build metal

package lab_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

// TestMediaInsteadOfDHCP: on a segment without DHCP, a machine is started from an image that its BMC attaches, by UEFI
// and by BIOS. The level reached is media, and the image is ejected.
func TestMediaInsteadOfDHCP(t *testing.T) {
	if !asRoot(t) {
		return
	}
	for _, fw := range []vm.Firmware{vm.UEFI, vm.BIOS} {
		t.Run(string(fw), func(t *testing.T) {
			s := newSite(t, func(c *metal.Config) { c.Static = true })
			m := s.machine(metal.MachineConfig{Firmware: fw, BMC: metal.Redfish, Media: true})
			wire := s.capture()
			op := s.installs(m, "first")
			if level := op.GetEvidence()["identity_level"]; level != "media" {
				s.Errorf("identity level %q; evidence %v", level, op.GetEvidence())
			}
			if level := s.get(m.Name()).GetStatus().GetIdentityLevel(); level != "media" {
				s.Errorf("the machine's identity level is %q", level)
			}
			s.ejected(m)
			s.until(op, "the image is ejected")
			s.heardNoDHCP(wire())
		})
	}
}

// heardNoDHCP: the installer and the system that it wrote have spoken on the segment. No server assigned an address
// there (a BOOTREPLY with DHCP's magic cookie, RFC 2131).
func (s *site) heardNoDHCP(wire []byte) {
	s.Helper()
	if !bytes.Contains(wire, []byte("/enrol")) {
		s.Errorf("the capture of %d bytes lacks the enrolment: it proves nothing", len(wire))
	}
	for rest := wire; ; {
		i := bytes.Index(rest, []byte{0x63, 0x82, 0x53, 0x63})
		if i < 0 {
			break
		}
		if i >= 236 && rest[i-236] == 2 {
			s.Error("somebody has answered by DHCP")
		}
		rest = rest[i+4:]
	}
	for _, secret := range []string{"ingot-media/", `"secret"`} {
		if bytes.Contains(wire, []byte(secret)) {
			s.Errorf("%q has crossed the segment", secret)
		}
	}
	s.holdsNoSecret("on the wire", wire)
}

// ejected: the BMC has nothing attached, and the machine's drive is empty.
func (s *site) ejected(m *metal.Machine) {
	s.Helper()
	testkit.Eventually(s.T, time.Minute, func() bool { return len(m.Redfish.Attached()) == 0 && m.Medium() == "" },
		"the image stays attached")
}

// TestMediaIsEjectedWhateverHappens: the site's agent is killed while the image is attached, and while the installer
// writes. The operation is canceled, and the image is gone in the end.
func TestMediaIsEjectedWhateverHappens(t *testing.T) {
	if !asRoot(t) {
		return
	}
	s := newSite(t, func(c *metal.Config) { c.Static = true })
	m := s.machine(metal.MachineConfig{Firmware: vm.UEFI, BMC: metal.Redfish, Media: true})
	s.maintain(m.Name())
	op, err := s.reimage(m.Name(), "killed"), error(nil)
	testkit.Eventually(s.T, cycle, func() bool { return len(m.Redfish.Attached()) == 1 }, "no image is attached")
	for _, url := range m.Redfish.Attached() {
		if strings.Contains(url, m.Name()) {
			s.Errorf("the URL names the machine: %s", url)
		}
	}
	if err := s.lab.KillSite(); err != nil {
		s.Fatal(err)
	}
	if len(m.Redfish.Attached()) != 1 {
		s.Error("the image was ejected by nobody")
	}
	if err := s.lab.StartSite(s.ctx); err != nil {
		s.Fatal(err)
	}
	s.holdsInstalled(m, s.ended(op, err))
	s.ejected(m)

	op = s.reimage(m.Name(), "canceled")
	testkit.Eventually(s.T, cycle, func() bool { return len(m.Redfish.Attached()) == 1 }, "no image is attached")
	m.Redfish.RefuseEjections(503)
	if _, err := s.api.Machines.CancelOperation(s.ctx, &pb.CancelOperationRequest{
		OperationId: op.GetOperationId()}); err != nil {
		s.Fatal(err)
	}
	if err := s.lab.KillSite(); err != nil {
		s.Fatal(err)
	}
	if err := s.lab.StartSite(s.ctx); err != nil {
		s.Fatal(err)
	}
	m.Redfish.RefuseEjections(0)
	s.ejected(m)
}

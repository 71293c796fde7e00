//go:build metal

package lab_test

import (
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

// TestMetalBesideAnotherServer: another server assigns the addresses, as intended, and the site agent only adds the
// boot options.
func TestMetalBesideAnotherServer(t *testing.T) {
	if !asRoot(t) {
		return
	}
	for name, fw := range map[string]vm.Firmware{"BIOS": vm.BIOS, "UEFI": vm.UEFI} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, func(c *metal.Config) { c.Proxy = true })
			s.foreignServer()
			s.installs(s.machine(metal.MachineConfig{Firmware: fw, BMC: metal.Redfish}), "proxy")
		})
	}
}

// TestMetalForeignServer: another server assigns addresses of our pool. It is noticed, and the operation ends.
func TestMetalForeignServer(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Parallel()
	s := newSite(t, nil)
	s.foreignServer()
	m := s.machine(metal.MachineConfig{Firmware: vm.BIOS, BMC: metal.Redfish})
	s.maintain(m.Name())
	op, err := s.api.Machines.ReimageMachine(s.ctx, &pb.ReimageMachineRequest{
		MachineId: m.Name(), RequestId: "foreign", ImageRef: metal.TinyRef, TimeoutSeconds: 120,
	})
	if err != nil {
		t.Fatal(err)
	}
	var seen string
	testkit.Eventually(t, cycle, func() bool {
		site, err := s.api.Admin.GetSite(s.ctx, &pb.GetSiteRequest{Site: metal.SiteName})
		if err != nil {
			t.Fatal(err)
		}
		seen = site.GetSegments()[0].GetForeignDhcpServer()
		return seen != ""
	}, "the other server is not noticed")
	if seen != foreignAddress {
		t.Errorf("noticed %q", seen)
	}
	// Which of the two a machine listens to is its own choice.
	op = s.ended(op, nil)
	t.Logf("ended %s, %v", op.GetPhase(), op.GetError())
	if code := op.GetError().GetCode(); op.GetPhase() != pb.Operation_SUCCEEDED && code != "INSTALLER_SILENT" {
		t.Errorf("ended %s, %v", op.GetPhase(), op.GetError())
	}
}

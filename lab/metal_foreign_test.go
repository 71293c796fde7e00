//go:build metal

package lab_test

import (
	"context"
	"net/netip"
	"path/filepath"
	"syscall"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/network"
	"github.com/ingot-metal/ingot/lab/vm"
)

const foreignAddress = "10.77.0.2"

// foreignServer is a DHCP server that gives addresses of the segment, and nothing to boot.
func (s *site) foreignServer() {
	s.Helper()
	ns, err := network.New()
	if err != nil {
		s.Fatal(err)
	}
	if err := s.lab.Switch().Card(ns, "foreign0", netip.MustParsePrefix(foreignAddress+"/24")); err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.ctx))
	cmd := ns.Command(ctx, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--interface=foreign0",
		"--bind-interfaces", "--user=root", "--dhcp-range=10.77.0.50,10.77.0.60,255.255.255.0,600", "--dhcp-authoritative",
		"--dhcp-option=option:router", "--dhcp-leasefile="+filepath.Join(s.dir, "foreign.leases"))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out := &testkit.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		s.Fatalf("package dnsmasq-base: %v", err)
	}
	done := make(chan error, 1)
	task.Background("dnsmasq", func() { done <- cmd.Wait() })
	s.Cleanup(func() {
		cancel()
		<-done // it was told to end
		if s.Failed() {
			s.Logf("dnsmasq:\n%s", out)
		}
		if err := ns.Close(); err != nil {
			s.Error(err)
		}
	})
}

// TestMetalBesideAnotherServer: another server gives the addresses, as it is meant to, and the site agent only says how to
// boot.
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

// TestMetalForeignServer: another server gives addresses that are ours to give. It is noticed, and the operation ends.
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

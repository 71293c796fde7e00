package lab_test

import (
	"context"
	"net/netip"
	"path/filepath"
	"syscall"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/network"
)

const foreignAddress = "10.77.0.2"

// foreignServer starts a DHCP server that assigns addresses of the segment, and nothing to boot.
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
		<-done // it was ordered to end
		if s.Failed() {
			s.Logf("dnsmasq:\n%s", out)
		}
		if err := ns.Close(); err != nil {
			s.Error(err)
		}
	})
}

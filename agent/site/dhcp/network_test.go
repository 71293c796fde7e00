package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/ingot-metal/ingot/agent/site/lease"
	"github.com/ingot-metal/ingot/agent/site/netdev"
	"github.com/ingot-metal/ingot/agent/site/segment"
	"github.com/ingot-metal/ingot/agent/site/sitetest"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// soon is for what happens in milliseconds on a quiet machine.
const soon = 20 * time.Second

// site is a running server and its reports.
type site struct {
	*Server
	table    *segment.Table
	unknown  chan Unknown
	foreign  chan Foreign
	stop     func() error
	assigned []segment.Assignment
}

func startSite(t *testing.T, store lease.Store, segments ...segment.Segment) *site {
	t.Helper()
	s := &site{table: &segment.Table{}, unknown: make(chan Unknown, 99), foreign: make(chan Foreign, 99)}
	var err error
	s.Server, err = New(Config{
		Segments: segments, Book: s.table, Store: store, Clock: clock.Real(), Log: testkit.Logger(t),
		Unknown: func(u Unknown) { s.unknown <- u }, Foreign: func(f Foreign) { s.foreign <- f },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	g, _ := task.New(context.WithoutCancel(ctx))
	g.Go("server", func(context.Context) error { return s.Run(ctx) })
	s.stop = func() error { cancel(); return g.Wait() }
	t.Cleanup(func() {
		if err := s.stop(); err != nil && !errors.Is(err, netdev.ErrGone) {
			t.Errorf("the server ended with %v", err)
		}
	})
	select {
	case <-s.Ready():
	case <-time.After(soon):
		t.Fatalf("not ready: %v", s.stop())
	}
	return s
}

func (s *site) assign(t *testing.T, a segment.Assignment) {
	t.Helper()
	s.assigned = append(s.assigned, a)
	if err := s.table.Replace(segment.Document{Assignments: s.assigned}); err != nil {
		t.Fatal(err)
	}
}

// script is what udhcpc and dhclient call: it sets the address, and records the options.
func script(t *testing.T) (path, told string) {
	t.Helper()
	dir := t.TempDir()
	path, told = filepath.Join(dir, "script"), filepath.Join(dir, "told")
	text := fmt.Sprintf(`#!/bin/sh
env >> %s
case "$1$reason" in
bound|renew) ip addr replace "$ip/$mask" dev "$interface" ;;
BOUND|RENEW|REBOOT) ip addr replace "$new_ip_address/24" dev "$interface" ;;
deconfig|RELEASE|EXPIRE) ip -4 addr flush dev "$interface" ;;
esac
exit 0
`, told)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path, told
}

// udhcpc asks for an address once, for three seconds.
func udhcpc(t *testing.T, m *sitetest.Machine, more string) (told string, err error) {
	t.Helper()
	path, file := script(t)
	out, err := m.Try(t.Context(), "busybox udhcpc -f -n -q -i eth0 -t 6 -T 1 -A 1 -s "+path+" "+more)
	if err != nil {
		return out, err
	}
	text, err := os.ReadFile(file)
	return string(text), err
}

func mustUdhcpc(t *testing.T, m *sitetest.Machine, more string) string {
	t.Helper()
	told, err := udhcpc(t, m, more)
	if err != nil {
		t.Fatalf("udhcpc: %v\n%s", err, told)
	}
	return told
}

func macOf(t *testing.T, text string) segment.MAC {
	t.Helper()
	m, err := segment.ParseMAC(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func has(t *testing.T, what, told string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !slices.Contains(strings.Split(told, "\n"), line) {
			t.Errorf("%s was not told %s, but\n%s", what, line, told)
		}
	}
}

func TestBusyboxClient(t *testing.T) {
	t.Parallel()
	if !sitetest.InNamespace(t) {
		return
	}
	sitetest.Bridge(t, "site0", "10.77.0.1/24")
	sitetest.Bridge(t, "other0", "10.66.0.1/24")
	s := startSite(t, &lease.Memory{}, testSegment())
	m := sitetest.NewMachine(t, "site0", "52:54:00:00:00:01")
	told := mustUdhcpc(t, m, "")
	has(t, "busybox", told, "ip=10.77.0.100", "mask=24", "router=10.77.0.254", "dns=10.77.0.2 10.77.0.3", "lease=3600",
		"serverid=10.77.0.1")
	if u := <-s.unknown; u.MAC.String() != "52:54:00:00:00:01" || u.Address.String() != "10.77.0.100" ||
		!strings.HasPrefix(u.VendorClass, "udhcp") {
		t.Errorf("unknown: %+v", u)
	}
	s.assign(t, segment.Assignment{
		Segment: "rack1", MAC: macOf(t, "52:54:00:00:00:02"), MachineID: "m2", Mode: segment.BootDisk, Hostname: "node2",
		Address: netip.MustParseAddr("10.77.0.42"),
	})
	m2 := sitetest.NewMachine(t, "site0", "52:54:00:00:00:02")
	has(t, "a machine with a fixed address", mustUdhcpc(t, m2, "-O hostname"), "ip=10.77.0.42", "hostname=node2")
	if got := m2.Addresses(); !slices.Contains(got, "10.77.0.42/24") {
		t.Errorf("addresses %v", got)
	}
	m2.Run("busybox ping -c 1 -W 5 10.77.0.1")
	has(t, "a client that wants another's address", mustUdhcpc(t, m2, "-r 10.77.0.100"), "ip=10.77.0.42")
	if all := s.Leases(); len(all) != 2 || !all[0].Fixed || all[0].State != lease.Bound || all[1].State != lease.Bound {
		t.Errorf("%+v", all)
	}
	elsewhere := sitetest.NewMachine(t, "other0", "52:54:00:00:00:03")
	before := s.Status().Counters
	if told, err := udhcpc(t, elsewhere, "-t 1"); err == nil {
		t.Errorf("a machine on another interface was told %s", told)
	}
	if after := s.Status().Counters; after != before {
		t.Errorf("packets of another interface were heard: %+v, then %+v", before, after)
	}
}

func TestISCClientAndRestart(t *testing.T) {
	t.Parallel()
	if !sitetest.InNamespace(t) {
		return
	}
	sitetest.Bridge(t, "site0", "10.77.0.1/24")
	dir := testkit.TempDir(t)
	open := func() *state.Store {
		f, err := state.Open(t.Context(), state.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	file := open()
	s := startSite(t, file.Site(), testSegment())
	m := sitetest.NewMachine(t, "site0", "52:54:00:00:00:01")
	path, told := script(t)
	// It stays in the foreground, so that it ends with the test.
	dhclient := func(pid, more string) string {
		return fmt.Sprintf("dhclient -v %[3]s -cf /dev/null -lf %[1]s/client -pf %[1]s/%[4]s -sf %[2]s eth0", dir, path, more,
			pid)
	}
	awaitTold := func(lines ...string) {
		t.Helper()
		var text []byte
		testkit.Eventually(t, soon, func() bool {
			text, _ = os.ReadFile(told) // it comes with the first line
			return strings.Contains(string(text), lines[0])
		}, "dhclient is not told %s", lines[0])
		has(t, "dhclient", string(text), lines...)
	}
	m.Start(dhclient("pid1", "-d -1"))
	awaitTold("reason=BOUND", "new_ip_address=10.77.0.100", "new_subnet_mask=255.255.255.0", "new_dhcp_lease_time=3600")
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	file = open()
	s = startSite(t, file.Site(), testSegment())
	other := sitetest.NewMachine(t, "site0", "52:54:00:00:00:02")
	has(t, "another after the restart", mustUdhcpc(t, other, ""), "ip=10.77.0.101")
	m.Start(dhclient("pid2", "-d -1")) // with its lease file it begins in INIT-REBOOT
	awaitTold("reason=REBOOT", "new_ip_address=10.77.0.100")
	m.Run(dhclient("pid2", "-r"))
	testkit.Eventually(t, soon, func() bool { return s.Leases()[0].State == lease.Ended }, "the release did not come")
}

func TestBehindARelay(t *testing.T) {
	t.Parallel()
	if !sitetest.InNamespace(t) {
		return
	}
	sitetest.Bridge(t, "site0", "10.77.0.1/24")
	sitetest.Bridge(t, "far0", "10.99.0.1/24") // a bridge between relay and client; its address serves no client
	far := testSegment()
	far.Name, far.Subnet, far.Relays = "rack2", netip.MustParsePrefix("10.88.0.0/24"),
		[]netip.Addr{netip.MustParseAddr("10.88.0.1")}
	far.PoolStart, far.PoolEnd = netip.MustParseAddr("10.88.0.10"), netip.MustParseAddr("10.88.0.20")
	far.Router = netip.MustParseAddr("10.88.0.1")
	s := startSite(t, &lease.Memory{}, testSegment(), far)
	relay := sitetest.NewMachine(t, "site0", "52:54:00:00:00:f0")
	relay.Run("ip addr add 10.77.0.250/24 dev eth0")
	relay.Plug("eth1", "far0")
	relay.Run("ip addr add 10.88.0.1/24 dev eth1")
	sitetest.Route(t, "10.88.0.0/24", "10.77.0.250")
	relay.Start("dnsmasq --keep-in-foreground --conf-file=/dev/null --port=0 --pid-file= --user=root " +
		"--dhcp-relay=10.88.0.1,10.77.0.1 --log-facility=-")
	m := sitetest.NewMachine(t, "far0", "52:54:00:00:00:01")
	has(t, "a machine behind a relay", mustUdhcpc(t, m, ""), "ip=10.88.0.10", "router=10.88.0.1", "serverid=10.77.0.1")
	if all := s.Leases(); len(all) != 1 || all[0].Segment != "rack2" {
		t.Errorf("%+v", all)
	}
}

func TestAddressInUse(t *testing.T) {
	t.Parallel()
	if !sitetest.InNamespace(t) {
		return
	}
	sitetest.Bridge(t, "site0", "10.77.0.1/24")
	squatter := sitetest.NewMachine(t, "site0", "52:54:00:00:00:99")
	squatter.Run("ip addr add 10.77.0.100/24 dev eth0")
	s := startSite(t, &lease.Memory{}, testSegment())
	testkit.Eventually(t, soon, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.handler.segments[0].pool.Upcoming(1, time.Now())[0].String() == "10.77.0.101"
	}, "the address in use was not found")
	m := sitetest.NewMachine(t, "site0", "52:54:00:00:00:01")
	has(t, "a client", mustUdhcpc(t, m, ""), "ip=10.77.0.101")
}

// dnsmasq is a DHCP server for 10.77.0.200 and up, on a machine of its own.
func dnsmasq(t *testing.T) fmt.Stringer {
	t.Helper()
	m := sitetest.NewMachine(t, "site0", "52:54:00:00:00:aa")
	m.Run("ip addr add 10.77.0.2/24 dev eth0")
	return m.Start(
		"dnsmasq --keep-in-foreground --conf-file=/dev/null --port=0 --pid-file= --user=root --dhcp-authoritative --no-ping " +
			"--dhcp-leasefile=/dev/null --dhcp-range=10.77.0.200,10.77.0.220,1h --log-facility=- --log-dhcp",
	)
}

func TestAnotherServerIsFound(t *testing.T) {
	t.Parallel()
	if !sitetest.InNamespace(t) {
		return
	}
	sitetest.Bridge(t, "site0", "10.77.0.1/24")
	log := dnsmasq(t)
	testkit.Eventually(t, soon, func() bool { return strings.Contains(log.String(), "DHCP, IP range") },
		"dnsmasq has not started: %s", log)
	s := startSite(t, &lease.Memory{}, testSegment())
	select {
	case f := <-s.foreign:
		if f.Server.String() != "10.77.0.2" || f.MAC.String() != "52:54:00:00:00:aa" || f.Segment != "rack1" || f.Proxy {
			t.Errorf("%+v", f)
		}
	case <-time.After(soon):
		t.Fatal("nothing was said of the other server")
	}
	if o := s.Status().Others; len(o) != 1 || o[0].Server.String() != "10.77.0.2" {
		t.Errorf("%+v", o)
	}
	if u := len(s.unknown); u != 0 {
		t.Errorf("%d unknown machines, though only servers are here", u)
	}
}

// port is a cable into the bridge that ends here, with a packet socket on it: a client made by hand.
func port(t *testing.T) *wire {
	t.Helper()
	sitetest.Plug(t, "client0", "site0")
	device, err := net.InterfaceByName("client0")
	if err != nil {
		t.Fatal(err)
	}
	w, err := openWire(device)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// exchange sends a client's packet, again and again as clients do, and returns the answers of different servers once
// there are so many.
func exchange(t *testing.T, w *wire, payload []byte, servers int) map[string]*dhcpv4.DHCPv4 {
	t.Helper()
	got := map[string]*dhcpv4.DHCPv4{}
	for deadline := time.Now().Add(soon); len(got) < servers; {
		if time.Now().After(deadline) {
			t.Fatalf("only %d servers have answered", len(got))
		}
		if err := w.send(broadcastFrame(w.card, payload)); err != nil {
			t.Fatal(err)
		}
		hear(t, w, got, servers)
	}
	return got
}

// hear adds what servers say within a while.
func hear(t *testing.T, w *wire, got map[string]*dhcpv4.DHCPv4, servers int) {
	t.Helper()
	if err := w.SetReadDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 2000)
	for len(got) < servers {
		n, _, err := w.ReadFrom(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if h, err := parseFrame(buffer[:n]); err == nil && h.server.IsValid() && h.client == mac1 {
			p, err := dhcpv4.FromBytes(buffer[etherLen+ipv4Len+udpLen : n])
			if err != nil {
				t.Fatal(err)
			}
			got[h.server.String()] = p
		}
	}
}

func TestProxyBesideDnsmasq(t *testing.T) {
	t.Parallel()
	if !sitetest.InNamespace(t) {
		return
	}
	sitetest.Bridge(t, "site0", "10.77.0.1/24")
	log := dnsmasq(t)
	testkit.Eventually(t, soon, func() bool { return strings.Contains(log.String(), "DHCP, IP range") },
		"dnsmasq has not started: %s", log)
	proxy := testSegment()
	proxy.Mode = segment.ModeProxy
	s := startSite(t, nil, proxy)
	s.assign(t, segment.Assignment{Segment: "rack1", MAC: mac1, MachineID: "m1", Mode: segment.BootInstaller, Token: "t"})
	w := port(t)
	for _, name := range []string{"BIOS", "UEFI x64 (7)", "HTTP x64 (16)", "iPXE"} {
		f := firmware[name]
		got := exchange(t, w,
			client1(dhcpv4.MessageTypeDiscover, append(f.says, option(97, uuid), dhcpv4.WithBroadcast(true))...), 2)
		checkBoot(t, name, got["10.77.0.1"], f.file, f.kind)
		checkProxy(t, name, got["10.77.0.1"], f.kind)
		if address := got["10.77.0.2"]; address == nil || !strings.HasPrefix(address.YourIPAddr.String(), "10.77.0.2") {
			t.Errorf("%s: the address server says %v", name, address)
		}
	}
	m := sitetest.NewMachine(t, "site0", "52:54:00:00:00:01")
	has(t, "an ordinary client", mustUdhcpc(t, m, ""), "serverid=10.77.0.2")
	if len(s.foreign) != 0 {
		t.Errorf("the address server counts as foreign: %+v", <-s.foreign)
	}
	testkit.Eventually(t, soon, func() bool { return len(s.Status().Others) == 1 }, "the address server is not seen: %+v",
		s.Status())
	bootPortOverTheWire(t)
}

// bootPortOverTheWire asks on port 4011 from an address of the segment.
func bootPortOverTheWire(t *testing.T) {
	t.Helper()
	m := sitetest.NewMachine(t, "site0", "52:54:00:ab:cd:01")
	m.Run("ip addr add 10.77.0.180/24 dev eth0")
	payload := client1(dhcpv4.MessageTypeRequest, append(firmware["UEFI x64 (7)"].says,
		dhcpv4.WithClientIP(net.IPv4(10, 77, 0, 180)))...)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ask"), payload, 0o600); err != nil {
		t.Fatal(err)
	}
	line := fmt.Sprintf("exec 3<>/dev/udp/10.77.0.1/4011; cat %[1]s/ask >&3; timeout 5 head -c 300 <&3 >%[1]s/told", dir)
	if err := os.WriteFile(filepath.Join(dir, "script"), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	m.Run("bash " + dir + "/script")
	told, err := os.ReadFile(filepath.Join(dir, "told"))
	if err != nil {
		t.Fatal(err)
	}
	ack, err := dhcpv4.FromBytes(told)
	if err != nil {
		t.Fatal(err)
	}
	checkBoot(t, "port 4011", ack, "snponly.efi", PXE)
}

func TestTheDeviceGoesAway(t *testing.T) {
	t.Parallel()
	if !sitetest.InNamespace(t) {
		return
	}
	sitetest.Bridge(t, "site0", "10.77.0.1/24")
	s, err := New(Config{Segments: []segment.Segment{testSegment()}, Book: &segment.Table{}, Store: &lease.Memory{},
		Clock: clock.Real(), Log: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	var ended error
	g, _ := task.New(t.Context())
	g.Go("server", func(ctx context.Context) error { ended = s.Run(ctx); return nil })
	<-s.Ready()
	sitetest.Remove(t, "site0")
	if err := g.Wait(); err != nil || ended == nil {
		t.Errorf("the server ended with %v, %v", ended, err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "site0") {
		t.Errorf("without its device: %v", err)
	}
}

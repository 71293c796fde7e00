package pid1

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

const netnsVariable = "INGOT_TEST_IN_NETNS"

// inNetns runs the calling test again in a network namespace of its own, in another process. It returns true in there;
// the caller returns when it is false.
func inNetns(t *testing.T) bool {
	t.Helper()
	if os.Getenv(netnsVariable) == "1" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a network namespace")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), netnsVariable+"=1")
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("in the namespace: %v\n%s", err, out)
	}
	return false
}

// giver is a DHCP server on the other end of a cable.
type giver struct {
	address  atomic.Value // net.IP that it assigns
	refuse   atomic.Bool  // requests
	requests atomic.Int32
}

func (g *giver) answer(conn net.PacketConn, peer net.Addr, m *dhcpv4.DHCPv4) {
	kind := dhcpv4.MessageTypeOffer
	if m.MessageType() == dhcpv4.MessageTypeRequest {
		g.requests.Add(1)
		if kind = dhcpv4.MessageTypeAck; g.refuse.Load() {
			kind = dhcpv4.MessageTypeNak
		}
	}
	reply, err := dhcpv4.NewReplyFromRequest(m, dhcpv4.WithMessageType(kind), dhcpv4.WithYourIP(g.address.Load().(net.IP)),
		dhcpv4.WithServerIP(net.IPv4(192, 0, 2, 1)), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(192, 0, 2, 1))),
		dhcpv4.WithNetmask(net.CIDRMask(24, 32)), dhcpv4.WithLeaseTime(60))
	if err == nil {
		// A packet that is lost is sent again by the client.
		_, _ = conn.WriteTo(reply.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ClientPort})
	}
}

// cable returns the client's end of a cable that the DHCP server g serves.
func cable(t *testing.T, g *giver) netlink.Link {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "client"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "server"}); err != nil {
		t.Fatal(err)
	}
	ends := map[string]netlink.Link{}
	for _, name := range []string{"client", "server"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			t.Fatal(err)
		}
		ends[name] = link
	}
	if err := netlink.AddrAdd(ends["server"], ipNet(netip.MustParsePrefix("192.0.2.1/24"))); err != nil {
		t.Fatal(err)
	}
	s, err := server4.NewServer("server", &net.UDPAddr{Port: dhcpv4.ServerPort}, g.answer)
	if err != nil {
		t.Fatal(err)
	}
	task.Background("giver", func() { _ = s.Serve() }) // it ends when it is closed
	t.Cleanup(func() { s.Close() })
	return ends["client"]
}

func TestLeaseIsTakenKeptAndReplaced(t *testing.T) {
	if !inNetns(t) {
		return
	}
	g := &giver{}
	g.address.Store(net.IPv4(192, 0, 2, 7).To4())
	link := cable(t, g)
	began := time.Now()
	l, err := acquire(t.Context(), link)
	if err != nil || l.network.Address != netip.MustParsePrefix("192.0.2.7/24") || l.length != time.Minute {
		t.Fatalf("%+v, %v", l.network, err)
	}
	t.Logf("address after %v", time.Since(began))
	etc := t.TempDir()
	if c, err := use(link, l.network, etc); err != nil || c.address != l.network.Address {
		t.Fatalf("%+v, %v", c, err)
	}

	fake := clock.NewFake(time.Unix(0, 0))
	changes := make(chan netip.Prefix, 1)
	ctx, stop := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	task.Background("keep", func() {
		done <- keep(ctx, fake, l, func(_, current lease) error { changes <- current.network.Address; return nil })
	})
	half := func() {
		t.Helper()
		before := g.requests.Load()
		if err := fake.BlockUntil(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		fake.Advance(30 * time.Second)
		if err := fake.BlockUntil(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if got := g.requests.Load(); got <= before {
			t.Fatalf("%d requests after half of the lease, %d before", got, before)
		}
	}
	half()
	half()
	if len(changes) != 0 {
		t.Errorf("renewals changed the address to %v", <-changes)
	}

	// A refusal ends the lease: after a pause, a new one is asked for.
	g.refuse.Store(true)
	half()
	g.refuse.Store(false)
	g.address.Store(net.IPv4(192, 0, 2, 8).To4())
	fake.Advance(restartDelay)
	select {
	case got := <-changes:
		if got != netip.MustParsePrefix("192.0.2.8/24") {
			t.Errorf("changed to %v", got)
		}
	case <-time.After(time.Minute):
		t.Error("no new lease")
	}
	over := errors.New("over")
	stop(over)
	if err := <-done; !errors.Is(err, over) {
		t.Errorf("ended with %v", err)
	}
}

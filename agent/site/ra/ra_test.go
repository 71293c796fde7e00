package ra

import (
	"context"
	"math"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/ndp"
	"golang.org/x/net/ipv6"

	"github.com/ingot-metal/ingot/agent/site/sitetest"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

const soon = 20 * time.Second

var (
	link   = netip.MustParseAddr("fe80::5054:ff:fe00:1")
	source = &ndp.LinkLayerAddress{Direction: ndp.Source, Addr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}
)

func packet(t testing.TB, m ndp.Message) []byte {
	t.Helper()
	b, err := ndp.MarshalMessage(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAnswerTo(t *testing.T) {
	t.Parallel()
	bare, with := packet(t, &ndp.RouterSolicitation{}), packet(t, &ndp.RouterSolicitation{Options: []ndp.Option{source}})
	global := netip.MustParseAddr("2001:db8::5")
	for what, c := range map[string]struct {
		packet []byte
		hops   int
		from   netip.Addr
		want   netip.Addr
	}{
		"one with an address":               {with, 255, link, link},
		"one with a global address":         {with, 255, global, global},
		"one without":                       {bare, 255, netip.IPv6Unspecified(), allNodes},
		"one without that gives its card":   {with, 255, netip.IPv6Unspecified(), netip.Addr{}},
		"one from behind a router":          {bare, 254, link, netip.Addr{}},
		"one from a group":                  {bare, 255, allNodes, netip.Addr{}},
		"an advertisement":                  {packet(t, message(nil)), 255, link, netip.Addr{}},
		"half a solicitation":               {bare[:5], 255, link, netip.Addr{}},
		"a solicitation with a cut option":  {with[:len(with)-2], 255, link, netip.Addr{}},
		"nothing":                           {nil, 255, link, netip.Addr{}},
		"a solicitation with an empty one ": {append(bare[:len(bare):len(bare)], 1, 0), 255, link, netip.Addr{}},
	} {
		got, ok := answerTo(c.packet, c.hops, c.from)
		if ok != c.want.IsValid() || got != c.want {
			t.Errorf("%s: %v, %v", what, got, ok)
		}
	}
}

func TestMessage(t *testing.T) {
	t.Parallel()
	b := packet(t, message(net.HardwareAddr{2, 0, 0, 0, 0, 1}))
	// Type 134; then hop limit, flags, router lifetime, reachable time and retransmission timer: all unspecified.
	want := "\x86\x00\x00\x00" + strings.Repeat("\x00", 12) + "\x01\x01\x02\x00\x00\x00\x00\x01"
	if string(b) != want {
		t.Errorf("%q, want %q", b, want)
	}
}

// advertisement waits for the next one on a device.
func advertisement(t *testing.T, c *ndp.Conn, after func()) (*ndp.RouterAdvertisement, *ipv6.ControlMessage) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	after()
	for {
		m, control, _, err := c.ReadFrom()
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := m.(*ndp.RouterAdvertisement); ok {
			return got, control
		}
	}
}

func TestOnTheWire(t *testing.T) {
	t.Parallel()
	if !sitetest.InNamespace(t) {
		return
	}
	s, err := New(Config{Interface: "site0", Clock: clock.Real(), Log: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	g, _ := task.New(context.WithoutCancel(ctx))
	var ended error
	g.Go("server", func(context.Context) error { ended = s.Run(ctx); return nil })
	// The device comes only now. It carries, and its address is its own, when something is plugged in.
	sitetest.Bridge(t, "site0", "10.77.0.1/24")
	m := sitetest.NewMachine(t, "site0", "52:54:00:00:00:01")
	sitetest.Plug(t, "client0", "site0")
	device, err := net.InterfaceByName("client0")
	if err != nil {
		t.Fatal(err)
	}
	var c *ndp.Conn
	testkit.Eventually(t, soon, func() bool { // until duplicate address detection is done
		var own netip.Addr
		c, own, err = ndp.Listen(device, ndp.LinkLocal)
		return err == nil && own.IsLinkLocalUnicast()
	}, "no socket on the client's device: %v", err)
	defer func() { _ = c.Close() }() // the test is over
	if err := c.JoinGroup(allNodes); err != nil {
		t.Fatal(err)
	}
	if err := c.SetControlMessage(ipv6.FlagHopLimit|ipv6.FlagDst, true); err != nil {
		t.Fatal(err)
	}
	advertisement(t, c, func() {}) // the first one comes unasked
	ask := func() {
		if err := c.WriteTo(&ndp.RouterSolicitation{Options: []ndp.Option{source}}, nil, allRouters); err != nil {
			t.Fatal(err)
		}
	}
	var got *ndp.RouterAdvertisement
	var control *ipv6.ControlMessage
	took := time.Duration(math.MaxInt64)
	// A solicitation may be lost, as on a machine that is busy. An answer counts if it comes sooner than the next periodic
	// one.
	for try := 0; try < 3 && took > shortest; try++ {
		start := time.Now()
		got, control = advertisement(t, c, ask)
		took = time.Since(start)
	}
	if took > shortest {
		t.Errorf("the answer took %v", took)
	}
	if control.HopLimit != 255 || got.RouterLifetime != 0 || got.ManagedConfiguration || got.OtherConfiguration ||
		len(got.Options) != 1 {
		t.Errorf("%+v, %+v", got, control)
	}
	_, control = advertisement(t, c, func() {}) // an unsolicited one goes to all
	for !control.Dst.Equal(allNodes.AsSlice()) {
		_, control = advertisement(t, c, func() {})
	}
	testkit.Eventually(t, soon, func() bool { return strings.Contains(m.Run("ip -6 neigh show dev eth0"), "router") },
		"Linux does not take us for a router")
	if routes := m.Run("ip -6 route show default"); routes != "" {
		t.Errorf("and has the route %s", routes)
	}
	if text := m.Run("ip -6 -o addr show dev eth0 scope global"); text != "" {
		t.Errorf("and has the address %s", text)
	}
	cancel()
	if err := g.Wait(); err != nil || ended == nil || ctx.Err() == nil {
		t.Errorf("%v, %v", err, ended)
	}
}

func FuzzSolicitation(f *testing.F) {
	f.Add(packet(f, &ndp.RouterSolicitation{}), 255, link.AsSlice())
	f.Add(packet(f, &ndp.RouterSolicitation{Options: []ndp.Option{source}}), 255, netip.IPv6Unspecified().AsSlice())
	f.Add(packet(f, message(source.Addr)), 255, link.AsSlice())
	f.Add([]byte("\x85\x00\x00\x00\x00\x00\x00\x00\x01\x00"), 255, link.AsSlice())
	f.Fuzz(func(t *testing.T, packet []byte, hops int, from []byte) {
		address, ok := netip.AddrFromSlice(from)
		if !ok || !address.Is6() {
			return
		}
		to, ok := answerTo(packet, hops, address)
		if ok && (packet[0] != 133 || hops != 255 || to != address && to != allNodes) {
			t.Errorf("%q from %v is answered to %v", packet, address, to)
		}
	})
}

package dhcp

import (
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/ingot-metal/ingot/agent/site/lease"
	"github.com/ingot-metal/ingot/agent/site/segment"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func testSegment() segment.Segment {
	return segment.Segment{
		Name: "rack1", Interface: "site0", Address: netip.MustParsePrefix("10.77.0.1/24"),
		PoolStart: netip.MustParseAddr("10.77.0.100"), PoolEnd: netip.MustParseAddr("10.77.0.119"),
		Router: netip.MustParseAddr("10.77.0.254"), DNS: []netip.Addr{netip.MustParseAddr("10.77.0.2"),
			netip.MustParseAddr("10.77.0.3")},
		LeaseTime: time.Hour, Mode: segment.ModeDHCP, Discovery: segment.DiscoveryReport, HTTPPort: 8080,
		Relays: []netip.Addr{netip.MustParseAddr("10.77.0.250")},
	}
}

// bench is a handler with everything around it under a test's control.
type bench struct {
	*handler
	t      *testing.T
	table  *segment.Table
	events []any
}

func newBench(t *testing.T, segments ...segment.Segment) *bench {
	b := &bench{t: t, table: &segment.Table{}}
	b.handler = &handler{
		log: slog.New(slog.DiscardHandler), book: b.table, files: DefaultFiles(), own: map[segment.MAC]bool{},
		event: func(e any) { b.events = append(b.events, e) }, quiet: newLimiter(),
	}
	for _, s := range segments {
		sv := &served{Segment: s}
		if s.Mode == segment.ModeDHCP {
			sv.pool = lease.New(lease.Config{Segment: s}, nil)
		}
		b.segments = append(b.segments, sv)
	}
	return b
}

func (b *bench) assign(as ...segment.Assignment) {
	b.t.Helper()
	if err := b.table.Replace(segment.Document{Revision: 1, Assignments: as}); err != nil {
		b.t.Fatal(err)
	}
}

func client1(t dhcpv4.MessageType, mods ...dhcpv4.Modifier) []byte {
	p, err := dhcpv4.New(append([]dhcpv4.Modifier{dhcpv4.WithHwAddr(mac1.Hardware()), dhcpv4.WithMessageType(t)},
		mods...)...)
	if err != nil {
		panic(err)
	}
	return p.ToBytes()
}

var (
	mac1 = segment.MAC{0x52, 0x54, 0, 0xab, 0xcd, 1}
	cold = netip.MustParseAddrPort("0.0.0.0:68")
)

func option(code uint8, value string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(code), []byte(value)))
}

// ask returns the parsed reply to a packet, or nil.
func (b *bench) ask(packet []byte) (*dhcpv4.DHCPv4, *reply) {
	b.t.Helper()
	return b.askOn(serverPort, cold, packet)
}

func (b *bench) askOn(port uint16, from netip.AddrPort, packet []byte) (*dhcpv4.DHCPv4, *reply) {
	b.t.Helper()
	r := b.packet(packet, from, port, t0)
	if r == nil {
		return nil, nil
	}
	p, err := dhcpv4.FromBytes(r.payload)
	if err != nil {
		b.t.Fatalf("our own reply: %v", err)
	}
	if p.OpCode != dhcpv4.OpcodeBootReply || !p.ServerIdentifier().Equal(net.IPv4(10, 77, 0, 1)) {
		b.t.Errorf("the reply is not one of ours: %v", p.Summary())
	}
	return p, r
}

func TestDiscoverAndRequest(t *testing.T) {
	t.Parallel()
	b := newBench(t, testSegment())
	b.assign(segment.Assignment{Segment: "rack1", MAC: mac1, MachineID: "m1", Mode: segment.BootDisk, Hostname: "node1"})
	id := option(61, "\x01abc")
	offer, r := b.ask(client1(dhcpv4.MessageTypeDiscover, id, option(82, "\x01\x02ab")))
	if offer == nil || offer.MessageType() != dhcpv4.MessageTypeOffer ||
		r.to != netip.MustParseAddrPort("255.255.255.255:68") || r.needsSave {
		t.Fatalf("%v, %+v", offer, r)
	}
	for what, ok := range map[string]bool{
		"address":       offer.YourIPAddr.Equal(net.IPv4(10, 77, 0, 100)),
		"mask":          net.IP(offer.SubnetMask()).Equal(net.IPv4(255, 255, 255, 0)),
		"router":        len(offer.Router()) == 1 && offer.Router()[0].Equal(net.IPv4(10, 77, 0, 254)),
		"name servers":  len(offer.DNS()) == 2 && offer.DNS()[1].Equal(net.IPv4(10, 77, 0, 3)),
		"lease time":    offer.IPAddressLeaseTime(0) == time.Hour,
		"renewal":       offer.IPAddressRenewalTime(0) == 30*time.Minute,
		"rebinding":     offer.IPAddressRebindingTime(0) == 52*time.Minute+30*time.Second,
		"host name":     offer.HostName() == "node1",
		"client id":     string(offer.Options.Get(dhcpv4.OptionClientIdentifier)) == "\x01abc",
		"relay's own":   string(offer.Options.Get(dhcpv4.OptionRelayAgentInformation)) == "\x01\x02ab",
		"no boot file":  offer.BootFileName == "" && !offer.Options.Has(dhcpv4.OptionBootfileName),
		"source":        r.from == netip.MustParseAddr("10.77.0.1"),
		"nothing saved": len(b.segments[0].pool.Changes()) == 0,
	} {
		if !ok {
			t.Errorf("%s is wrong in the offer:\n%s", what, offer.Summary())
		}
	}
	us := dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(10, 77, 0, 1)))
	ack, r := b.ask(client1(dhcpv4.MessageTypeRequest, us, option(50, "\x0a\x4d\x00\x64")))
	if ack == nil || ack.MessageType() != dhcpv4.MessageTypeAck || !r.needsSave ||
		!ack.YourIPAddr.Equal(offer.YourIPAddr) {
		t.Fatalf("%v, %+v", ack, r)
	}
	if saved := b.segments[0].pool.Changes(); len(saved) != 1 || saved[0].MAC != mac1 || saved[0].Hostname != "node1" {
		t.Errorf("to be saved: %+v", saved)
	}
	renewal, r := b.ask(client1(dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(net.IPv4(10, 77, 0, 100))))
	if renewal == nil || renewal.MessageType() != dhcpv4.MessageTypeAck ||
		r.to != netip.MustParseAddrPort("10.77.0.100:68") {
		t.Errorf("renewal: %v, %+v", renewal, r)
	}
	if c := b.count; c.Discovers != 1 || c.Offers != 1 || c.Requests != 2 || c.Acks != 2 {
		t.Errorf("%+v", c)
	}
	if len(b.events) != 0 {
		t.Errorf("events about a known machine: %+v", b.events)
	}
}

func TestRequestsThatGetNoLease(t *testing.T) {
	t.Parallel()
	b := newBench(t, testSegment())
	for what, c := range map[string]struct {
		packet []byte
		nak    bool
		to     string
	}{
		"an address of another network": {client1(dhcpv4.MessageTypeRequest, option(50, "\x0a\x01\x00\x64")), true,
			"255.255.255.255:68"},
		"a renewal of another network": {client1(dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(net.IPv4(10, 1, 0, 1))), true,
			"255.255.255.255:68"},
		"the same through a relay": {
			client1(dhcpv4.MessageTypeRequest, option(50, "\x0a\x01\x00\x64"), dhcpv4.WithGatewayIP(net.IPv4(10, 77, 0, 250))),
			true, "10.77.0.250:67",
		},
		"an address that we neither gave nor would": {client1(dhcpv4.MessageTypeRequest, option(50, "\x0a\x4d\x00\xc8")),
			false, ""},
		"no address": {client1(dhcpv4.MessageTypeRequest), false, ""},
		"another server's offer": {client1(dhcpv4.MessageTypeRequest, option(54, "\x0a\x4d\x00\x09"),
			option(50, "\x0a\x4d\x00\x64")), false, ""},
		"inform without address": {client1(dhcpv4.MessageTypeInform), false, ""},
		"inform from elsewhere":  {client1(dhcpv4.MessageTypeInform, dhcpv4.WithClientIP(net.IPv4(8, 8, 8, 8))), false, ""},
		"a release of nothing": {client1(dhcpv4.MessageTypeRelease, option(54, "\x0a\x4d\x00\x01"),
			dhcpv4.WithClientIP(net.IPv4(10, 77, 0, 100))), false, ""},
		"a decline to nobody": {client1(dhcpv4.MessageTypeDecline, option(50, "\x0a\x4d\x00\x64")), false, ""},
		"an offer":            {client1(dhcpv4.MessageTypeOffer), false, ""},
		"no message type":     {client1(0), false, ""},
		"a card of InfiniBand": {client1(dhcpv4.MessageTypeDiscover, dhcpv4.WithHWType(iana.HWTypeInfiniband)), false,
			""},
		"a card of eight bytes": {client1(dhcpv4.MessageTypeDiscover, dhcpv4.WithHwAddr(make([]byte, 8))), false, ""},
		"a card of zeros":       {client1(dhcpv4.MessageTypeDiscover, dhcpv4.WithHwAddr(make([]byte, 6))), false, ""},
		"a card that is a group": {client1(dhcpv4.MessageTypeDiscover, dhcpv4.WithHwAddr([]byte{1, 0, 0x5e, 0, 0, 1})),
			false, ""},
		"a reply": {client1(dhcpv4.MessageTypeDiscover,
			func(d *dhcpv4.DHCPv4) { d.OpCode = dhcpv4.OpcodeBootReply }), false, ""},
		"half a packet": {client1(dhcpv4.MessageTypeDiscover)[:200], false, ""},
		"a relay that is not ours": {client1(dhcpv4.MessageTypeDiscover, dhcpv4.WithGatewayIP(net.IPv4(10, 77, 0, 251))),
			false, ""},
	} {
		p, r := b.ask(c.packet)
		switch {
		case !c.nak && p != nil:
			t.Errorf("%s is answered: %s", what, p.Summary())
		case c.nak && (p == nil || p.MessageType() != dhcpv4.MessageTypeNak || p.YourIPAddr.String() != "0.0.0.0" ||
			r.to.String() != c.to || r.needsSave):
			t.Errorf("%s: %v, %+v", what, p, r)
		case c.nak && strings.Contains(what, "relay") && !p.IsBroadcast():
			t.Errorf("%s: the relay is not told to broadcast it", what)
		}
	}
	if got := b.segments[0].pool.Snapshot(t0); len(got) != 0 {
		t.Errorf("leases: %+v", got)
	}
	if b.count.RefusedRelay != 1 {
		t.Errorf("%d refused relays", b.count.RefusedRelay)
	}
	want := Foreign{Segment: "rack1", Server: netip.MustParseAddr("10.77.0.9"), ChosenBy: mac1}
	if len(b.events) != 1 || b.events[0] != want {
		t.Errorf("events %+v, want %+v", b.events, want)
	}
}

// A client that claims a foreign address must not make us send there.
func TestNobodyElsewhereIsAnswered(t *testing.T) {
	t.Parallel()
	b := newBench(t, testSegment())
	elsewhere := dhcpv4.WithClientIP(net.IPv4(192, 0, 2, 1))
	for _, packet := range [][]byte{
		client1(dhcpv4.MessageTypeDiscover, elsewhere), client1(dhcpv4.MessageTypeRequest, elsewhere,
			option(50, "\x0a\x4d\x00\x64")),
	} {
		if _, r := b.ask(packet); r == nil || r.to.String() != "255.255.255.255:68" {
			t.Errorf("%+v", r)
		}
	}
}

func TestDeclineReleaseInform(t *testing.T) {
	t.Parallel()
	b := newBench(t, testSegment())
	first := client1(dhcpv4.MessageTypeRequest, option(50, "\x0a\x4d\x00\x64"))
	us := option(54, "\x0a\x4d\x00\x01")
	if p, _ := b.ask(first); p == nil {
		t.Fatal("no answer to a client that has lost its server's memory")
	}
	b.ask(client1(dhcpv4.MessageTypeDecline, us, option(50, "\x0a\x4d\x00\x64")))
	if p, _ := b.ask(first); p == nil || p.MessageType() != dhcpv4.MessageTypeNak {
		t.Errorf("a request for a declined address: %v", p)
	}
	second := client1(dhcpv4.MessageTypeRequest, option(50, "\x0a\x4d\x00\x65"))
	b.ask(second)
	b.ask(client1(dhcpv4.MessageTypeRelease, us, dhcpv4.WithClientIP(net.IPv4(10, 77, 0, 101))))
	all := b.segments[0].pool.Snapshot(t0)
	if len(all) != 2 || all[0].State != lease.Declined || all[1].State != lease.Ended {
		t.Errorf("%+v", all)
	}
	p, r := b.ask(client1(dhcpv4.MessageTypeInform, dhcpv4.WithClientIP(net.IPv4(10, 77, 0, 40))))
	if p == nil || p.MessageType() != dhcpv4.MessageTypeAck || p.YourIPAddr.String() != "0.0.0.0" ||
		p.Options.Has(dhcpv4.OptionIPAddressLeaseTime) ||
		len(p.DNS()) != 2 || r.to.String() != "10.77.0.40:68" {
		t.Errorf("inform: %v, %+v", p, r)
	}
}

func TestAPoolThatIsEmpty(t *testing.T) {
	t.Parallel()
	s := testSegment()
	s.PoolEnd = s.PoolStart
	b := newBench(t, s)
	b.ask(client1(dhcpv4.MessageTypeDiscover))
	other := dhcpv4.WithHwAddr([]byte{0x52, 0x54, 0, 0, 0, 9})
	if p, _ := b.ask(client1(dhcpv4.MessageTypeDiscover, other)); p != nil || b.count.NoAddress != 1 {
		t.Errorf("%v, %+v", p, b.count)
	}
}

func TestSegmentsBehindRelays(t *testing.T) {
	t.Parallel()
	far := testSegment()
	far.Name, far.Subnet, far.Relays = "rack2", netip.MustParsePrefix("10.88.0.0/25"),
		[]netip.Addr{netip.MustParseAddr("10.88.0.1")}
	far.PoolStart, far.PoolEnd = netip.MustParseAddr("10.88.0.10"), netip.MustParseAddr("10.88.0.20")
	far.Router = netip.MustParseAddr("10.88.0.1")
	b := newBench(t, testSegment(), far)
	p, r := b.ask(client1(dhcpv4.MessageTypeDiscover, dhcpv4.WithGatewayIP(net.IPv4(10, 88, 0, 1))))
	if p == nil || p.YourIPAddr.String() != "10.88.0.10" || r.to.String() != "10.88.0.1:67" ||
		net.IP(p.SubnetMask()).String() != "255.255.255.128" ||
		p.GatewayIPAddr.String() != "10.88.0.1" {
		t.Fatalf("%v, %+v", p, r)
	}
	if p, _ := b.ask(client1(dhcpv4.MessageTypeDiscover)); p == nil || p.YourIPAddr.String() != "10.77.0.100" {
		t.Errorf("on the wire: %v", p)
	}
	b.ask(client1(dhcpv4.MessageTypeRequest, option(50, "\x0a\x58\x00\x0a"), dhcpv4.WithGatewayIP(net.IPv4(10, 88, 0, 1))))
	p, r = b.ask(client1(dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(net.IPv4(10, 88, 0, 10))))
	if p == nil || p.MessageType() != dhcpv4.MessageTypeAck || r.to.String() != "10.88.0.10:68" {
		t.Errorf("a renewal, which does not go through the relay: %v, %+v", p, r)
	}
	only := newBench(t, far)
	if p, _ := only.ask(client1(dhcpv4.MessageTypeDiscover)); p != nil {
		t.Errorf("a machine on the wire, where no segment is: %v", p)
	}
}

package dhcp

import (
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/ingot-metal/ingot/agent/site/lease"
	"github.com/ingot-metal/ingot/agent/site/segment"
)

// corpus is one packet of each kind, for the fuzzer to begin with.
func corpus() [][]byte {
	all := [][]byte{
		client1(dhcpv4.MessageTypeRequest, option(50, "\x0a\x4d\x00\x64"), option(54, "\x0a\x4d\x00\x01"),
			option(61, "\x01\x52\x54\x00\xab\xcd\x01")),
		client1(dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(net.IPv4(10, 77, 0, 100))),
		client1(dhcpv4.MessageTypeDecline, option(50, "\x0a\x4d\x00\x64"), option(54, "\x0a\x4d\x00\x01")),
		client1(dhcpv4.MessageTypeRelease, dhcpv4.WithClientIP(net.IPv4(10, 77, 0, 100)), option(54, "\x0a\x4d\x00\x01")),
		client1(dhcpv4.MessageTypeInform, dhcpv4.WithClientIP(net.IPv4(10, 77, 0, 100))),
		client1(dhcpv4.MessageTypeDiscover, dhcpv4.WithGatewayIP(net.IPv4(10, 77, 0, 250)), option(82, "\x01\x02ab")),
	}
	for _, f := range firmware {
		all = append(all, client1(dhcpv4.MessageTypeDiscover, append(f.says, option(97, uuid), option(12, "node1"))...))
	}
	return all
}

// FuzzRequest checks that the fields that Parse returns for any packet may be logged and reported unchanged.
func FuzzRequest(f *testing.F) {
	for _, packet := range corpus() {
		f.Add(packet)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Parse(data)
		if err != nil {
			return
		}
		if !fromClient(r.Type) || r.MAC == (segment.MAC{}) || r.MAC[0]&1 != 0 {
			t.Errorf("%+v", r)
		}
		for _, a := range []netip.Addr{r.Client, r.Relay, r.Wanted, r.Server} {
			if a.IsValid() && (!a.Is4() || a.IsUnspecified()) {
				t.Errorf("address %v", a)
			}
		}
		if len(r.VendorClass) > 64 || len(r.Hostname) > 253 || len(r.UUID) != 0 && len(r.UUID) != 36 {
			t.Errorf("too long: %+v", r)
		}
		if text := r.VendorClass + r.Hostname +
			r.UUID; strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Errorf("not printable: %q", text)
		}
	})
}

// FuzzServer sends packets, two in a row, to servers of both modes and checks the answers. It draws all parts of a
// packet that a server reads: addresses, flags and options.
func FuzzServer(f *testing.F) {
	packets := corpus()
	for i, packet := range packets {
		next := packets[(i+1)%len(packets)]
		f.Add(packet[8:28], packet[240:], next[8:28], next[240:], i%2 == 0, i%3 == 0)
	}
	book := &segment.Table{}
	assigned := segment.Assignment{Segment: "rack1", MAC: mac1, MachineID: "m1", Mode: segment.BootInstaller,
		Token: "secret-token"}
	if err := book.Replace(segment.Document{Assignments: []segment.Assignment{assigned}}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, head1, options1, head2, options2 []byte, proxy, boots bool) {
		s := testSegment()
		s.Discovery = segment.DiscoveryBoot
		if proxy {
			s.Mode = segment.ModeProxy
		}
		sv := &served{Segment: s}
		if !proxy {
			sv.pool = lease.New(lease.Config{Segment: s}, nil)
		}
		h := &handler{
			log: slog.New(slog.DiscardHandler), book: book, files: DefaultFiles(), segments: []*served{sv},
			event: func(any) {}, quiet: newLimiter(),
		}
		port := uint16(serverPort)
		if boots {
			port = bootPort
		}
		for _, data := range [][]byte{drawn(head1, options1), drawn(head2, options2)} {
			if r := h.packet(data, netip.MustParseAddrPort("10.77.0.180:4011"), port, t0); r != nil {
				checkReply(t, data, r, proxy || boots)
			}
		}
	})
}

// drawn is a packet of mac1 with the middle of its head, and its options, as they were drawn.
func drawn(head, options []byte) []byte {
	b := client1(dhcpv4.MessageTypeDiscover)[:240]
	copy(b[8:28], head)
	return append(append(b, options...), 255)
}

// checkReply checks that a reply is well formed, goes to a host of the segment, and discloses nothing that it must not.
func checkReply(t *testing.T, request []byte, r *reply, addressless bool) {
	t.Helper()
	p, err := dhcpv4.FromBytes(r.payload)
	if err != nil {
		t.Fatalf("our own reply: %v", err)
	}
	asked, err := Parse(request)
	if err != nil {
		t.Fatalf("an answer to what cannot be parsed: %v", err)
	}
	if p.TransactionID != asked.packet.TransactionID || p.ClientHWAddr.String() != asked.MAC.String() ||
		p.OpCode != dhcpv4.OpcodeBootReply {
		t.Errorf("not the answer to the question: %s", p.Summary())
	}
	s := testSegment()
	to := r.to.Addr()
	if to != everybody && !s.Network().Contains(to) {
		t.Errorf("an answer goes to %v", r.to)
	}
	yours := address(p.YourIPAddr)
	if yours.IsValid() && (addressless || yours.Less(s.PoolStart) || s.PoolEnd.Less(yours)) {
		t.Errorf("it gives %v", yours)
	}
	if strings.Contains(string(r.payload), "secret-token") {
		t.Error("it tells the token")
	}
	if p.MessageType() == dhcpv4.MessageTypeAck && yours.IsValid() != r.needsSave {
		t.Errorf("a lease that need not be saved, or nothing that must: %+v", r)
	}
}

// FuzzFrame reads frames as they come from the wire.
func FuzzFrame(f *testing.F) {
	f.Add(probeDiscover(mac1, mac1, [4]byte{1, 2, 3, 4}))
	f.Add(probeARP(mac1, netip.MustParseAddr("10.77.0.100")))
	arp := probeARP(mac1, netip.MustParseAddr("10.77.0.100"))
	copy(arp[etherLen+14:], []byte{10, 77, 0, 9})
	f.Add(arp)
	f.Add(offerFrame())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseFrame(b)
		if err != nil {
			return
		}
		if !h.address.IsValid() && !h.server.IsValid() || h.address.IsValid() && h.server.IsValid() {
			t.Errorf("neither or both: %+v", h)
		}
	})
}

// offerFrame is what another server sends.
func offerFrame() []byte {
	p, err := dhcpv4.New(dhcpv4.WithHwAddr(mac1.Hardware()), dhcpv4.WithMessageType(dhcpv4.MessageTypeOffer),
		dhcpv4.WithYourIP(net.IPv4(10, 77, 0, 210)), option(54, "\x0a\x4d\x00\x02"))
	if err != nil {
		panic(err)
	}
	p.OpCode = dhcpv4.OpcodeBootReply
	b := broadcastFrame(segment.MAC{2, 2, 2, 2, 2, 2}, p.ToBytes())
	b[etherLen+ipv4Len+1], b[etherLen+ipv4Len+3] = serverPort, clientPort
	return b
}

func TestParseFrame(t *testing.T) {
	t.Parallel()
	h, err := parseFrame(offerFrame())
	want := heard{from: segment.MAC{2, 2, 2, 2, 2, 2}, server: netip.MustParseAddr("10.77.0.2"), client: mac1}
	if err != nil || h != want {
		t.Errorf("%+v, %v", h, err)
	}
	arp := probeARP(mac1, netip.MustParseAddr("10.77.0.100"))
	if h, err := parseFrame(arp); err == nil {
		t.Errorf("a question without a sender's address: %+v", h)
	}
	copy(arp[etherLen+14:], []byte{10, 77, 0, 9})
	if h, err := parseFrame(arp); err != nil || h.holder != mac1 || h.address.String() != "10.77.0.9" {
		t.Errorf("%+v, %v", h, err)
	}
	for cut := range offerFrame() {
		if cut < etherLen+ipv4Len+300 {
			if h, err := parseFrame(offerFrame()[:cut]); err == nil {
				t.Fatalf("cut off after %d bytes: %+v", cut, h)
			}
		}
	}
}

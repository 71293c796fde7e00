package dhcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/net/ipv4"

	"github.com/ingot-metal/ingot/agent/site/lease"
	"github.com/ingot-metal/ingot/agent/site/segment"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// failingStore fails on request: before it has saved anything, or after it has.
type failingStore struct {
	lease.Memory
	before, after error
}

func (f *failingStore) SaveLeases(ctx context.Context, leases []lease.Lease) error {
	if f.before != nil {
		return f.before
	}
	return errors.Join(f.Memory.SaveLeases(ctx, leases), f.after)
}

func newServer(t *testing.T, store lease.Store, change func(*Config)) (*Server, *clock.Fake) {
	t.Helper()
	fake := clock.NewFake(t0)
	cfg := Config{Segments: []segment.Segment{testSegment()}, Book: &segment.Table{}, Store: store, Clock: fake,
		Log: testkit.Logger(t)}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, fake
}

// batchOf is what comes from the socket.
func batchOf(packets ...[]byte) []ipv4.Message {
	var out []ipv4.Message
	for _, p := range packets {
		out = append(out, ipv4.Message{Buffers: [][]byte{p}, N: len(p),
			Addr: &net.UDPAddr{IP: net.IPv4zero, Port: clientPort}})
	}
	return out
}

func kinds(t *testing.T, replies []*reply) string {
	t.Helper()
	var out []string
	for _, r := range replies {
		p, err := dhcpv4.FromBytes(r.payload)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p.MessageType().String())
	}
	return strings.Join(out, " ")
}

func TestNothingIsAcknowledgedThatIsNotStored(t *testing.T) {
	t.Parallel()
	other := dhcpv4.WithHwAddr([]byte{0x52, 0x54, 0, 0, 0, 9})
	ask := batchOf(client1(dhcpv4.MessageTypeRequest, option(50, "\x0a\x4d\x00\x64")),
		client1(dhcpv4.MessageTypeDiscover, other),
		client1(dhcpv4.MessageTypeRequest, other, option(50, "\x0a\x4d\x00\x64")))
	for what, store := range map[string]*failingStore{
		"before": {before: errors.New("disk full")}, "after": {after: errors.New("broken connection")},
	} {
		s, _ := newServer(t, store, nil)
		if got := kinds(t, s.answer(t.Context(), ask, serverPort)); got != "OFFER NAK" {
			t.Errorf("when saving fails %s: %s", what, got)
		}
		if n := s.Status().Counters.Unsaved; n != 1 {
			t.Errorf("%d unsaved", n)
		}
		store.before, store.after = nil, nil
		if got := kinds(t, s.answer(t.Context(), ask[:1], serverPort)); got != "ACK" {
			t.Errorf("once saving works: %s", got)
		}
		again, _ := newServer(t, store, nil)
		if l, ok := again.Holder(netip.MustParseAddr("10.77.0.100")); !ok || l.MAC != mac1 {
			t.Errorf("after a restart: %+v, %v", l, ok)
		}
	}
}

func TestALeaseIsSavedThoughItsClientDidNotAskAgain(t *testing.T) {
	t.Parallel()
	store := &failingStore{before: errors.New("disk full")}
	s, _ := newServer(t, store, nil)
	s.answer(t.Context(), batchOf(client1(dhcpv4.MessageTypeRequest, option(50, "\x0a\x4d\x00\x64"))), serverPort)
	store.before = nil
	s.answer(t.Context(), batchOf([]byte("junk")), serverPort)
	if all, err := store.LoadLeases(t.Context(), "rack1"); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestReportsAreBounded(t *testing.T) {
	t.Parallel()
	s, fake := newServer(t, &lease.Memory{}, nil) // the reports are not consumed
	u := Unknown{Segment: "rack1", MAC: mac1}
	s.tell(u)
	s.tell(u)
	if len(s.events) != 1 {
		t.Errorf("%d reports of one machine", len(s.events))
	}
	fake.Advance(repeatAfter)
	s.tell(u)
	if len(s.events) != 2 {
		t.Errorf("%d reports of one machine in a minute", len(s.events))
	}
	for i := range 100_000 {
		u.MAC = segment.MAC{2, 0, 0, byte(i >> 16), byte(i >> 8), byte(i)}
		s.tell(u)
		s.tell(Foreign{Segment: "rack1", Server: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})})
		if i%1000 == 0 {
			fake.Advance(time.Second)
		}
	}
	if len(s.events) > waiting || len(s.told.last) > remembered || len(s.others) > mostOthers {
		t.Errorf("%d reports wait, %d are remembered, %d servers", len(s.events), len(s.told.last), len(s.others))
	}
	fake.Advance(time.Hour)
	if o := s.Status().Others; len(o) != 0 {
		t.Errorf("servers that were heard an hour ago: %+v", o)
	}
	s.tell(Foreign{Segment: "rack1", Server: netip.MustParseAddr("10.77.0.9"), ChosenBy: mac1})
	if o := s.Status().Others; len(o) != 1 || o[0].Server.String() != "10.77.0.9" {
		t.Errorf("servers that were heard: %+v", o)
	}
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	elsewhere, second, bad := testSegment(), testSegment(), testSegment()
	elsewhere.Interface, second.Name, bad.HTTPPort = "eth9", "rack2", 0
	for what, segments := range map[string][]segment.Segment{
		"needs a segment":   nil,
		"on one interface":  {testSegment(), elsewhere},
		"more than one":     {testSegment(), second},
		"http port":         {bad},
		"needs a store for": {testSegment()},
	} {
		cfg := Config{Segments: segments, Book: &segment.Table{}, Store: &lease.Memory{}, Clock: clock.Real(),
			Log: testkit.Logger(t)}
		if strings.Contains(what, "store") {
			cfg.Store = nil
		}
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("want a complaint with %q: %v", what, err)
		}
	}
}

func TestOneCardDoesNotKeepTheWholePool(t *testing.T) {
	t.Parallel()
	s, fake := newServer(t, &lease.Memory{}, nil)
	router, squatter := segment.MAC{2, 1}, segment.MAC{2, 2}
	for range 20 { // it asks for the next addresses, the router answers all, another host one
		for _, a := range s.toAsk(fake.Now()) {
			s.note(heard{from: router, holder: router, address: a})
			if a.String() == "10.77.0.110" {
				s.note(heard{from: squatter, holder: squatter, address: a})
			}
		}
		fake.Advance(probeTick)
	}
	var got []string
	for _, a := range s.handler.segments[0].pool.Upcoming(99, fake.Now()) {
		got = append(got, a.String())
	}
	if len(got) != 20-mostHeld-1 || got[0] != "10.77.0.103" || got[len(got)-1] != "10.77.0.119" {
		t.Errorf("still to be had: %v", got)
	}
}

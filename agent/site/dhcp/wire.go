package dhcp

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/site/segment"
	"github.com/mdlayher/packet"
)

// wire is a packet socket on the device that hears ARP and what DHCP servers tell clients, and nothing else.
type wire struct {
	*packet.Conn
	card segment.MAC
}

// interesting is ARP, and UDP of IPv4 to port 68 that is not a later fragment.
var interesting = []bpf.Instruction{
	bpf.LoadAbsolute{Off: 12, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: etherARP, SkipTrue: 8},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: etherIPv4, SkipTrue: 8},
	bpf.LoadAbsolute{Off: etherLen + 9, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: protoUDP, SkipTrue: 6},
	bpf.LoadAbsolute{Off: etherLen + 6, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x1fff, SkipTrue: 4},
	bpf.LoadMemShift{Off: etherLen},
	bpf.LoadIndirect{Off: etherLen + 2, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: clientPort, SkipTrue: 1},
	bpf.RetConstant{Val: 1 << 16},
	bpf.RetConstant{Val: 0},
}

func openWire(device *net.Interface) (*wire, error) {
	card, ok := segment.MACOf(device.HardwareAddr)
	if !ok {
		return nil, fmt.Errorf("network device %s is not an Ethernet card", device.Name)
	}
	filter, err := bpf.Assemble(interesting)
	if err != nil {
		return nil, fmt.Errorf("assemble packet filter: %w", err)
	}
	// Nothing is received before the filter is there.
	conn, err := packet.Listen(device, packet.Raw, unix.ETH_P_ALL, &packet.Config{Filter: filter})
	if err != nil {
		return nil, fmt.Errorf("open packet socket of %s: %w", device.Name, err)
	}
	return &wire{conn, card}, nil
}

// send sends a frame to the card that its first bytes name.
func (w *wire) send(frame []byte) error {
	_, err := w.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]})
	return err
}

// listen takes note of what others do.
func (s *Server) listen(ctx context.Context, w *wire) error {
	buffer := make([]byte, 2048)
	for {
		n, _, err := w.ReadFrom(buffer)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("read packet socket of %s: %w", s.device, err)
		}
		h, err := parseFrame(buffer[:n])
		if err != nil || h.from == w.card {
			continue // of no interest, or our own
		}
		s.note(h)
	}
}

func (s *Server) note(h heard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Clock.Now()
	if h.address.IsValid() && s.asked(h.address, now) && s.strangers.add(h.holder, h.address, now) {
		s.inUse(h, now)
	}
	for _, seg := range s.handler.segments {
		if h.server.IsValid() && h.server != seg.Address.Addr() && seg.Network().Contains(seg.Address.Addr()) {
			s.tell(Foreign{Segment: seg.Name, Server: h.server, MAC: h.from, Proxy: h.proxy})
		}
	}
}

// inUse keeps an address from others than its holder.
func (s *Server) inUse(h heard, now time.Time) {
	for _, seg := range s.handler.segments {
		if seg.pool != nil && seg.pool.MarkInUse(h.address, h.holder, now.Add(strangerTime)) &&
			s.handler.quiet.allow("in use "+h.address.String(), now) {
			s.cfg.Log.Warn("an address of the pool is in use by a stranger", "segment", seg.Name, "address", h.address.String(),
				"mac", h.holder.String())
		}
	}
}

const (
	// strangerTime is how long an address is kept from others after it was seen in use.
	strangerTime = 10 * time.Minute
	// mostHeld is how many addresses of the pool one card may keep from others. A router that answers for all addresses
	// (RFC 1027) would otherwise leave none.
	mostHeld = 3
)

// strangers has the cards that answered for addresses without a lease.
type strangers struct {
	held  map[segment.MAC]map[netip.Addr]bool
	since time.Time
}

// add reports whether the card may keep the address.
func (s *strangers) add(card segment.MAC, a netip.Addr, now time.Time) bool {
	if s.held == nil || now.Sub(s.since) >= strangerTime || now.Before(s.since) || len(s.held) >= remembered {
		s.held, s.since = map[segment.MAC]map[netip.Addr]bool{}, now
	}
	if s.held[card] == nil {
		s.held[card] = map[netip.Addr]bool{}
	}
	if len(s.held[card]) < mostHeld {
		s.held[card][a] = true
	}
	return s.held[card][a]
}

// asking is how often ARP has asked for an address, and when it did last.
type asking struct {
	times int
	last  time.Time
}

// asked reports whether ARP asked for the address a moment ago: then it was free by our books, and the card that
// answers holds it without a lease.
func (s *Server) asked(a netip.Addr, now time.Time) bool {
	p, ok := s.probed[a]
	return ok && now.Sub(p.last) < 5*time.Second
}

const (
	// probeTick is between questions, probeTimes how often each is asked: a packet may get lost, and a switch may take
	// its time until it forwards.
	probeTick  = 2 * time.Second
	probeTimes = 3
	// probeAhead is how many of the addresses that come next are asked for; each anew after probeAgain.
	probeAhead = 16
	probeAgain = time.Minute
)

// probe searches other DHCP servers, and uses of the addresses that come next. Where it cannot send, that is logged and
// tried again: serving goes on.
func (s *Server) probe(ctx context.Context, w *wire) error {
	asked := w.card
	asked[0] |= 2
	asked[5] ^= 0x80 // not the card itself, where its address is a local one already
	s.mu.Lock()
	s.handler.own[asked], s.handler.own[w.card] = true, true
	s.mu.Unlock()
	tick := s.cfg.Clock.NewTicker(probeTick)
	defer tick.Stop()
	var discover asking
	for {
		now := s.cfg.Clock.Now()
		if discover.again(now, s.cfg.ProbeEvery) {
			s.write(ctx, w, probeDiscover(w.card, asked, transaction()))
		}
		for _, a := range s.toAsk(now) {
			s.write(ctx, w, probeARP(w.card, a))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C():
		}
	}
}

// again reports whether to ask now: a few times in a row, then anew after a while.
func (p *asking) again(now time.Time, after time.Duration) bool {
	if now.Sub(p.last) >= after {
		p.times = 0
	}
	if p.times >= probeTimes {
		return false
	}
	p.times++
	p.last = now
	return true
}

func (s *Server) write(ctx context.Context, w *wire, frame []byte) {
	if err := w.send(frame); err != nil && ctx.Err() == nil {
		s.cfg.Log.Warn("probe is not sent", "interface", s.device, "error", err)
	}
}

// toAsk returns the addresses to probe by ARP now.
func (s *Server) toAsk(now time.Time) []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a, p := range s.probed {
		if now.Sub(p.last) >= probeAgain {
			delete(s.probed, a)
		}
	}
	var out []netip.Addr
	for _, seg := range s.handler.segments {
		if seg.pool == nil || !seg.Network().Contains(seg.Address.Addr()) {
			continue
		}
		for _, a := range seg.pool.Upcoming(probeAhead, now) {
			p := s.probed[a]
			if p.again(now, probeAgain) {
				out = append(out, a)
			}
			s.probed[a] = p
		}
	}
	return out
}

func transaction() [4]byte {
	var xid [4]byte
	_, _ = rand.Read(xid[:]) // it never fails
	return xid
}

package dhcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/iana"

	"github.com/ingot-metal/ingot/agent/site/lease"
	"github.com/ingot-metal/ingot/agent/site/segment"
	"github.com/ingot-metal/ingot/internal/clock"
)

// Config describes the service on one network device.
type Config struct {
	// Segments are all on one Interface: at most one whose machines are on the wire itself, and any number behind relays.
	Segments []segment.Segment
	Book     *segment.Table
	// Store keeps the leases. Only full servers use it.
	Store lease.Store
	// Files are the names on the TFTP server by architecture; DefaultFiles when nil.
	Files map[iana.Arch]string
	// Unknown is called with cards without assignment, except where discovery is off: once in a minute of each, and of all
	// together at a bounded rate. It may block; then reports are dropped.
	Unknown func(Unknown)
	// Foreign is called with DHCP servers that must not be there, likewise.
	Foreign func(Foreign)
	// ProbeEvery is how often it is asked who else serves DHCP; 5 minutes when zero.
	ProbeEvery time.Duration
	Clock      clock.Clock
	Log        *slog.Logger
}

// defaultProbe is ProbeEvery where the Config has none.
const defaultProbe = 5 * time.Minute

// Server serves DHCP on one network device.
type Server struct {
	cfg    Config
	device string
	events chan any
	ready  chan struct{}
	once   sync.Once

	mu      sync.Mutex
	handler *handler
	others  map[netip.Addr]Other
	// probed has the addresses that ARP has asked for.
	probed    map[netip.Addr]asking
	strangers strangers
	told      *limiter
}

// Other is a DHCP server that was heard on the wire.
type Other struct {
	Foreign
	LastSeen time.Time
}

// Status is what an operator may want to know.
type Status struct {
	Interface string
	Segments  []string
	Counters  Counters
	// Others are the DHCP servers that were heard lately. A proxy needs one that assigns addresses.
	Others []Other
}

// New checks the configuration. Nothing is opened before Run.
func New(cfg Config) (*Server, error) {
	if cfg.Book == nil || cfg.Log == nil || cfg.Clock == nil {
		return nil, errors.New("DHCP service needs a book, a clock and a log")
	}
	if err := checkSegments(cfg); err != nil {
		return nil, err
	}
	if cfg.Files == nil {
		cfg.Files = DefaultFiles()
	}
	if cfg.ProbeEvery <= 0 {
		cfg.ProbeEvery = defaultProbe
	}
	s := &Server{
		cfg: cfg, device: cfg.Segments[0].Interface, events: make(chan any, waiting), ready: make(chan struct{}),
		others: map[netip.Addr]Other{}, probed: map[netip.Addr]asking{}, told: newLimiter(),
	}
	s.handler = &handler{
		log: cfg.Log, book: cfg.Book, files: cfg.Files, own: map[segment.MAC]bool{}, event: s.tell, quiet: newLimiter(),
	}
	return s, nil
}

func checkSegments(cfg Config) error {
	if len(cfg.Segments) == 0 {
		return errors.New("DHCP service needs a segment")
	}
	var problems []error
	local := 0
	for _, s := range cfg.Segments {
		problems = append(problems, s.Validate())
		if s.Interface != cfg.Segments[0].Interface {
			problems = append(problems, fmt.Errorf("segments %q and %q are not on one interface", cfg.Segments[0].Name, s.Name))
		}
		if s.Network().Contains(s.Address.Addr()) {
			local++
		}
		if s.Mode == segment.ModeDHCP && cfg.Store == nil {
			problems = append(problems, fmt.Errorf("segment %q needs a store for its leases", s.Name))
		}
	}
	if local > 1 {
		problems = append(problems, fmt.Errorf("%d segments are on the wire of %s, more than one", local,
			cfg.Segments[0].Interface))
	}
	return errors.Join(problems...)
}

// Ready is closed when requests are answered for the first time.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Leases returns the known leases of the segments; empty before Run has loaded them.
func (s *Server) Leases() []lease.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []lease.Lease
	for _, seg := range s.handler.segments {
		if seg.pool != nil {
			out = append(out, seg.pool.Snapshot(s.cfg.Clock.Now())...)
		}
	}
	return out
}

// Holder returns the lease that an address of the segments has now, if it has one. It is cheap.
func (s *Server) Holder(a netip.Addr) (lease.Lease, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seg := range s.handler.segments {
		if seg.pool == nil {
			continue
		}
		if l, ok := seg.pool.Holder(a, s.cfg.Clock.Now()); ok {
			return l, true
		}
	}
	return lease.Lease{}, false
}

// Status is a picture of the moment.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Interface: s.device, Counters: s.handler.count}
	for _, seg := range s.cfg.Segments {
		st.Segments = append(st.Segments, seg.Name)
	}
	for _, o := range s.others {
		if s.recent(o) {
			st.Others = append(st.Others, o)
		}
	}
	return st
}

// load makes the pools from the store.
func (s *Server) load(ctx context.Context) error {
	var all []*served
	for _, seg := range s.cfg.Segments {
		sv := &served{Segment: seg}
		if seg.Mode == segment.ModeDHCP {
			stored, err := s.cfg.Store.LoadLeases(ctx, seg.Name)
			if err != nil {
				return fmt.Errorf("load leases of segment %s: %w", seg.Name, err)
			}
			sv.pool = lease.New(lease.Config{Segment: seg, Reserved: s.reserved(seg.Name)}, stored)
		}
		all = append(all, sv)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handler.segments = all
	return nil
}

// reserved returns a function that finds the card with a fixed address of a segment.
func (s *Server) reserved(name string) func(netip.Addr) (segment.MAC, bool) {
	return func(a netip.Addr) (segment.MAC, bool) {
		fixed, ok := s.cfg.Book.FindAddress(a)
		return fixed.MAC, ok && fixed.Segment == name
	}
}

// tell queues an event for the callbacks. The handler calls it with the lock held.
func (s *Server) tell(event any) {
	key := ""
	switch e := event.(type) {
	case Unknown:
		key = "unknown " + e.MAC.String()
	case Foreign:
		s.remember(e)
		if s.wanted(e) {
			return
		}
		key = "foreign " + e.Server.String()
	}
	if !s.told.allow(key, s.cfg.Clock.Now()) {
		return
	}
	if f, ok := event.(Foreign); ok {
		s.cfg.Log.Warn("another DHCP server is on the segment", "segment", f.Segment, "server", f.Server.String(),
			"server_mac", f.MAC.String(), "proxy", f.Proxy)
	}
	select {
	case s.events <- event:
	default: // the callbacks are slow; it will be reported again
	}
}

// wanted reports whether a server is the one that a proxy works beside.
func (s *Server) wanted(f Foreign) bool {
	for _, seg := range s.cfg.Segments {
		if seg.Name == f.Segment {
			return seg.Mode == segment.ModeProxy && !f.Proxy
		}
	}
	return false
}

// mostOthers bounds what forged answers can make us remember.
const mostOthers = 64

func (s *Server) remember(f Foreign) {
	for a, o := range s.others {
		if !s.recent(o) {
			delete(s.others, a)
		}
	}
	old, known := s.others[f.Server]
	if !known && len(s.others) >= mostOthers {
		return
	}
	if f.MAC == (segment.MAC{}) {
		f.MAC = old.MAC
	}
	s.others[f.Server] = Other{Foreign: f, LastSeen: s.cfg.Clock.Now()}
}

// recent reports whether a server was heard since it was last asked for a few times.
func (s *Server) recent(o Other) bool { return s.cfg.Clock.Now().Sub(o.LastSeen) <= 3*s.cfg.ProbeEvery }

// deliver calls the callbacks, one after the other.
func (s *Server) deliver(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event := <-s.events:
			switch e := event.(type) {
			case Unknown:
				if s.cfg.Unknown != nil {
					s.cfg.Unknown(e)
				}
			case Foreign:
				if s.cfg.Foreign != nil {
					s.cfg.Foreign(e)
				}
			}
		}
	}
}

// Package ra informs the machines of a segment, by router advertisements (RFC 4861), that IPv6 has nothing for them
// here. Without one some boot firmware waits: the iPXE of Debian 12 for 16 seconds.
//
// The advertisements carry no prefix and a router lifetime of zero: no host gets an address or a route from them, and
// those of a real router are not affected.
package ra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/mdlayher/ndp"
	"golang.org/x/net/ipv6"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

// Config describes the service on one network device.
type Config struct {
	Interface string
	Clock     clock.Clock
	Log       *slog.Logger
}

// Times of RFC 4861, 6.2.1: unasked, an advertisement every 3 to 10 seconds.
const (
	shortest = 3 * time.Second
	longest  = 10 * time.Second
	// look is how often the device is looked at: whether it is there, has its address, and carries.
	look = 500 * time.Millisecond
	// mostAnswers bounds the answers between two looks, so that no host makes us flood the segment.
	mostAnswers = 100
)

// Server advertises on one network device.
type Server struct {
	cfg Config
}

// New checks the configuration. Nothing is opened before Run.
func New(cfg Config) (*Server, error) {
	if cfg.Interface == "" || cfg.Clock == nil || cfg.Log == nil {
		return nil, errors.New("router advertisements need an interface, a clock and a log")
	}
	return &Server{cfg: cfg}, nil
}

// Run advertises until ctx ends. A device that is not there, or has no link-local address (yet), is waited for.
func (s *Server) Run(ctx context.Context) error {
	tick := s.cfg.Clock.NewTicker(look)
	defer tick.Stop()
	told := ""
	for failed := 1; ; failed++ {
		err := s.onDevice(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// A new device has no usable address for the first second or two (RFC 4862, 5.4).
		if now := fmt.Sprint(err); failed%10 == 0 && now != told {
			told = now
			s.cfg.Log.Warn("no router advertisements for now", "interface", s.cfg.Interface, "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C():
		}
	}
}

// onDevice advertises until the device changes or something fails.
func (s *Server) onDevice(ctx context.Context) error {
	device, err := net.InterfaceByName(s.cfg.Interface)
	if err != nil {
		return fmt.Errorf("find network device %s: %w", s.cfg.Interface, err)
	}
	conn, address, err := ndp.Listen(device, ndp.LinkLocal)
	if err != nil {
		return fmt.Errorf("open socket for neighbour discovery: %w", err)
	}
	a := &advertiser{Server: s, conn: conn, device: *device, address: address}
	if err := a.tune(); err != nil {
		return errors.Join(err, conn.Close())
	}
	g, _ := task.New(ctx)
	g.Go("solicitations", a.listen)
	g.Go("advertisements", func(ctx context.Context) error {
		return errors.Join(a.advertise(ctx), conn.Close())
	})
	return g.Wait()
}

// advertiser is a Server on a device that is there.
type advertiser struct {
	*Server
	conn    *ndp.Conn
	device  net.Interface
	address netip.Addr

	mu sync.Mutex
	// answers is how many more solicitations are answered until the next look.
	answers int
}

var (
	allNodes   = netip.MustParseAddr("ff02::1")
	allRouters = netip.MustParseAddr("ff02::2")
)

// tune lets only solicitations in. Those to all routers come only after joining.
func (a *advertiser) tune() error {
	if !a.address.IsLinkLocalUnicast() {
		return fmt.Errorf("network device %s has no link-local address of IPv6", a.device.Name)
	}
	filter := ipv6.ICMPFilter{}
	filter.SetAll(true)
	filter.Accept(ipv6.ICMPTypeRouterSolicitation)
	if err := a.conn.SetICMPFilter(&filter); err != nil {
		return fmt.Errorf("filter neighbour discovery: %w", err)
	}
	if err := a.conn.SetControlMessage(ipv6.FlagHopLimit|ipv6.FlagInterface, true); err != nil {
		return fmt.Errorf("ask for hop limits: %w", err)
	}
	if err := a.conn.JoinGroup(allRouters); err != nil {
		return fmt.Errorf("join the group of routers: %w", err)
	}
	return nil
}

// advertise sends at once, whenever the device begins to carry, and every few seconds.
func (a *advertiser) advertise(ctx context.Context) error {
	tick := a.cfg.Clock.NewTicker(look)
	defer tick.Stop()
	var next time.Time
	carried := false
	for {
		now := a.cfg.Clock.Now()
		device, err := a.same()
		if err != nil {
			return err
		}
		carries := device.Flags&net.FlagRunning != 0
		if carries && (!carried || !now.Before(next)) {
			if err := a.send(device, allNodes); err != nil {
				return err
			}
			next = now.Add(shortest + rand.N(longest-shortest))
		}
		carried = carries
		a.refill()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C():
		}
	}
}

// same returns the device as it is now, if it still is the one that the socket is for.
func (a *advertiser) same() (*net.Interface, error) {
	device, err := net.InterfaceByName(a.device.Name)
	if err != nil {
		return nil, fmt.Errorf("find network device %s: %w", a.device.Name, err)
	}
	if device.Index != a.device.Index {
		return nil, fmt.Errorf("network device %s was made anew", device.Name)
	}
	addresses, err := device.Addrs()
	if err != nil {
		return nil, fmt.Errorf("read the addresses of network device %s: %w", device.Name, err)
	}
	for _, have := range addresses {
		if p, err := netip.ParsePrefix(have.String()); err == nil && p.Addr() == a.address.WithZone("") {
			return device, nil
		}
	}
	return nil, fmt.Errorf("network device %s no longer has the address %v", device.Name, a.address)
}

// message is the advertisement. Our card's address in it spares its readers a question.
func message(card net.HardwareAddr) *ndp.RouterAdvertisement {
	m := &ndp.RouterAdvertisement{}
	if len(card) == 6 {
		m.Options = []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: card}}
	}
	return m
}

func (a *advertiser) send(device *net.Interface, to netip.Addr) error {
	if err := a.conn.WriteTo(message(device.HardwareAddr), nil, to); err != nil {
		return fmt.Errorf("send router advertisement: %w", err)
	}
	return nil
}

// listen answers solicitations at once.
func (a *advertiser) listen(ctx context.Context) error {
	b := make([]byte, 2048)
	for {
		n, control, from, err := a.conn.ReadRaw(b)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("read router solicitation: %w", err)
		}
		if control == nil || control.IfIndex != a.device.Index {
			continue
		}
		to, ok := answerTo(b[:n], control.HopLimit, from.WithZone(""))
		if !ok || !a.may() {
			continue
		}
		if err := a.send(&a.device, to); err != nil {
			a.cfg.Log.Debug("solicitation is not answered", "interface", a.device.Name, "error", err)
		}
	}
}

// answerTo decides to whom the answer to a packet goes: to who asked, or to all where they have no address yet. What
// RFC 4861, 6.1.1 calls invalid gets none.
func answerTo(packet []byte, hops int, from netip.Addr) (netip.Addr, bool) {
	m, err := ndp.ParseMessage(packet)
	if err != nil || hops != ndp.HopLimit {
		return netip.Addr{}, false
	}
	solicitation, ok := m.(*ndp.RouterSolicitation)
	if !ok {
		return netip.Addr{}, false
	}
	if from.IsLinkLocalUnicast() || from.IsGlobalUnicast() {
		return from, true
	}
	if !from.IsUnspecified() || hasSource(solicitation.Options) {
		return netip.Addr{}, false
	}
	return allNodes, true
}

// hasSource reports whether a card's address is given, which one that has no address must not do.
func hasSource(options []ndp.Option) bool {
	for _, o := range options {
		if l, ok := o.(*ndp.LinkLayerAddress); ok && l.Direction == ndp.Source {
			return true
		}
	}
	return false
}

func (a *advertiser) may() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers--
	return a.answers >= 0
}

func (a *advertiser) refill() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers = mostAnswers
}

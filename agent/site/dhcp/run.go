package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/net/ipv4"

	"github.com/ingot-metal/ingot/agent/site/lease"
	"github.com/ingot-metal/ingot/agent/site/netdev"
	"github.com/ingot-metal/ingot/internal/task"
)

// Sizes of the work that is done at once. A packet that is bigger than a buffer is cut off and ignored.
const (
	batch      = 64
	packetSize = 1500
	// receiveBuffer is for machines that all start together; the kernel may give less.
	receiveBuffer = 4 << 20
)

// Run serves until ctx ends, or the device goes away, or a socket fails. It may be called again afterwards.
func (s *Server) Run(ctx context.Context) error {
	if err := s.load(ctx); err != nil {
		return err
	}
	var device *net.Interface
	for _, seg := range s.cfg.Segments {
		var err error
		if device, err = netdev.Find(s.device, seg.Address.Addr()); err != nil {
			return err
		}
	}
	requests, err := s.socket(ctx, serverPort)
	if err != nil {
		return err
	}
	defer func() { _ = requests.Close() }() // it may be closed already
	boots, err := s.socket(ctx, bootPort)
	if err != nil {
		return err
	}
	defer func() { _ = boots.Close() }() // it may be closed already
	wire, err := openWire(device)
	if err != nil {
		return err
	}
	defer func() { _ = wire.Close() }() // it may be closed already
	return s.serveAll(ctx, device, requests, boots, wire)
}

// socket is ready before any task runs: one that is stopped at once closes what another is still setting up.
func (s *Server) socket(ctx context.Context, port uint16) (*net.UDPConn, error) {
	conn, err := netdev.ListenUDP(ctx, s.device, netip.AddrPortFrom(netip.IPv4Unspecified(), port))
	if err != nil {
		return nil, err
	}
	if err := conn.SetReadBuffer(receiveBuffer); err != nil {
		return nil, errors.Join(fmt.Errorf("set receive buffer of port %d: %w", port, err), conn.Close())
	}
	return conn, nil
}

func (s *Server) serveAll(ctx context.Context, device *net.Interface, requests, boots *net.UDPConn, w *wire) error {
	g, _ := task.New(ctx)
	g.Go("dhcp", func(ctx context.Context) error { return s.serve(ctx, requests, serverPort, device.Index) })
	g.Go("pxe", func(ctx context.Context) error { return s.serve(ctx, boots, bootPort, device.Index) })
	g.Go("wire", func(ctx context.Context) error { return s.listen(ctx, w) })
	g.Go("probe", func(ctx context.Context) error { return s.probe(ctx, w) })
	g.Go("events", s.deliver)
	g.Go("device", func(ctx context.Context) error {
		// It ends with ctx, which another task's failure ends as well; then the sockets must wake their readers.
		err := netdev.Watch(ctx, s.cfg.Clock, device, s.cfg.Segments[0].Address.Addr())
		return errors.Join(err, requests.Close(), boots.Close(), w.Close())
	})
	s.once.Do(func() { close(s.ready) })
	s.cfg.Log.Info("serve DHCP", "interface", s.device, "segments", len(s.cfg.Segments))
	return g.Wait()
}

// serve reads a batch of requests, decides, saves, answers.
func (s *Server) serve(ctx context.Context, conn *net.UDPConn, port uint16, index int) error {
	pc := ipv4.NewPacketConn(conn)
	in := make([]ipv4.Message, batch)
	for i := range in {
		in[i].Buffers = [][]byte{make([]byte, packetSize)}
	}
	out := newSender(pc, index)
	for {
		n, err := pc.ReadBatch(in, 0)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("read from port %d: %w", port, err)
		}
		if err := out.send(s.answer(ctx, in[:n], port)); err != nil && ctx.Err() == nil {
			return fmt.Errorf("write from port %d: %w", port, err)
		}
	}
}

// answer returns the replies that may go: those of leases only once they are stored.
func (s *Server) answer(ctx context.Context, in []ipv4.Message, port uint16) []*reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Clock.Now()
	replies := make([]*reply, 0, len(in))
	for _, m := range in {
		from, ok := m.Addr.(*net.UDPAddr)
		if !ok {
			continue
		}
		source := from.AddrPort()
		source = netip.AddrPortFrom(source.Addr().Unmap(), source.Port())
		if r := s.handler.packet(m.Buffers[0][:m.N], source, port, now); r != nil {
			replies = append(replies, r)
		}
	}
	if err := s.save(ctx); err != nil {
		s.cfg.Log.Error("leases are not stored, so they are not acknowledged", "interface", s.device, "error", err)
		replies = s.withoutLeases(replies)
	}
	return replies
}

// save stores the leases that have changed since its last success.
func (s *Server) save(ctx context.Context) error {
	var changes []lease.Lease
	for _, seg := range s.handler.segments {
		if seg.pool != nil {
			changes = append(changes, seg.pool.Changes()...)
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if err := s.cfg.Store.SaveLeases(ctx, changes); err != nil {
		return fmt.Errorf("save %d leases: %w", len(changes), err)
	}
	for _, seg := range s.handler.segments {
		if seg.pool != nil {
			seg.pool.Saved()
		}
	}
	return nil
}

func (s *Server) withoutLeases(replies []*reply) []*reply {
	kept := replies[:0]
	for _, r := range replies {
		if r.needsSave {
			s.handler.count.Unsaved++
			continue
		}
		kept = append(kept, r)
	}
	return kept
}

// sender writes replies in batches, each from the address of its segment and through the one device.
type sender struct {
	pc    *ipv4.PacketConn
	index int
	oob   map[netip.Addr][]byte
	out   []ipv4.Message
}

func newSender(pc *ipv4.PacketConn, index int) *sender {
	return &sender{pc: pc, index: index, oob: map[netip.Addr][]byte{}}
}

func (s *sender) control(from netip.Addr) []byte {
	if s.oob[from] == nil {
		s.oob[from] = (&ipv4.ControlMessage{Src: from.AsSlice(), IfIndex: s.index}).Marshal()
	}
	return s.oob[from]
}

// send leaves out what cannot be sent, such as to a relay without a route: its client asks again.
func (s *sender) send(replies []*reply) error {
	s.out = s.out[:0]
	for _, r := range replies {
		s.out = append(s.out, ipv4.Message{
			Buffers: [][]byte{r.payload}, OOB: s.control(r.from), Addr: net.UDPAddrFromAddrPort(r.to),
		})
	}
	for left := s.out; len(left) > 0; {
		n, err := s.pc.WriteBatch(left, 0)
		if errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ENODEV) {
			return err
		}
		if err != nil {
			n = max(n, 0) + 1 // the first that was not sent is the one that cannot be
		}
		left = left[min(n, len(left)):]
	}
	return nil
}

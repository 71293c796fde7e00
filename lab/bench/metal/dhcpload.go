package metal

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/lab/measure"
	"github.com/ingot-metal/ingot/lab/network"
)

// asker is a machine that wants an address.
type asker struct {
	began, sent time.Time
	message     []byte
}

// loader keeps a window of machines busy.
type loader struct {
	conn              net.PacketConn
	waiting           map[dhcpv4.TransactionID]*asker
	next              uint32
	times             []time.Duration
	repeated, refused int
}

// patience is how long a machine waits before it asks again.
const patience = time.Second

// loadDHCP waits for the server to answer one machine, then measures.
func loadDHCP(ctx context.Context, rack *network.Namespace, length time.Duration, window int) (s served, err error) {
	l := &loader{waiting: map[dhcpv4.TransactionID]*asker{}}
	if err := rack.Do(func() (err error) { l.conn, err = listen(ctx); return err }); err != nil {
		return s, err
	}
	defer func() { _ = l.conn.Close() }() // nothing is sent any more
	if err := l.warmUp(ctx); err != nil {
		return s, err
	}
	start := time.Now()
	if err := l.fill(window); err != nil {
		return s, err
	}
	for time.Since(start) < length {
		if err := errors.Join(ctx.Err(), l.step(window)); err != nil {
			return s, err
		}
	}
	if len(l.times) == 0 {
		return s, errors.New("no machine got an address")
	}
	return served{Latency: measure.Percentiles(l.times), rate: float64(len(l.times)) / time.Since(start).Seconds(),
		repeated: l.repeated, refused: l.refused}, nil
}

// listen opens the port of clients on the switch.
func listen(ctx context.Context) (net.PacketConn, error) {
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		failed := raw.Control(func(fd uintptr) {
			err = errors.Join(unix.BindToDevice(int(fd), clientDevice),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<20))
		})
		return errors.Join(failed, err)
	}}
	return c.ListenPacket(ctx, "udp4", ":68")
}

// warmUp is one machine, which asks until the server is there.
func (l *loader) warmUp(ctx context.Context) error {
	deadline := time.Now().Add(20 * time.Second)
	if err := l.fill(1); err != nil {
		return err
	}
	for len(l.times) == 0 {
		if err := l.step(0); err != nil {
			return err
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return errors.Join(ctx.Err(), errors.New("the server does not answer"))
		}
	}
	l.times, l.repeated = nil, 0
	return nil
}

// fill starts machines until so many wait.
func (l *loader) fill(window int) error {
	for len(l.waiting) < window {
		l.next++
		id := dhcpv4.TransactionID{byte(l.next >> 24), byte(l.next >> 16), byte(l.next >> 8), byte(l.next)}
		discover, err := dhcpv4.New(dhcpv4.WithTransactionID(id), dhcpv4.WithBroadcast(true),
			dhcpv4.WithHwAddr(append(net.HardwareAddr{2, 0xbe}, id[:]...)), dhcpv4.WithMessageType(dhcpv4.MessageTypeDiscover),
			dhcpv4.WithRequestedOptions(dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter, dhcpv4.OptionDomainNameServer))
		if err != nil {
			return err
		}
		l.waiting[id] = &asker{began: time.Now(), message: discover.ToBytes()}
		if err := l.send(l.waiting[id]); err != nil {
			return err
		}
	}
	return nil
}

var servers = net.UDPAddrFromAddrPort(netip.MustParseAddrPort("255.255.255.255:67"))

func (l *loader) send(m *asker) error {
	m.sent = time.Now()
	if _, err := l.conn.WriteTo(m.message, servers); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// step reads for a tenth of a second at most, keeps the window full, and repeats messages without an answer.
func (l *loader) step(window int) error {
	if err := l.conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	var b [1600]byte
	for range 256 {
		n, _, err := l.conn.ReadFrom(b[:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		answer, err := dhcpv4.FromBytes(b[:n])
		if err != nil {
			return fmt.Errorf("read an answer: %w", err)
		}
		if err := errors.Join(l.take(answer), l.fill(window)); err != nil {
			return err
		}
	}
	for _, m := range l.waiting {
		if time.Since(m.sent) >= patience {
			l.repeated++
			if err := l.send(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// take does the next step of the machine that an answer is for.
func (l *loader) take(answer *dhcpv4.DHCPv4) error {
	m, ok := l.waiting[answer.TransactionID]
	if !ok {
		return nil
	}
	switch answer.MessageType() {
	case dhcpv4.MessageTypeOffer:
		request, err := dhcpv4.NewRequestFromOffer(answer, dhcpv4.WithBroadcast(true))
		if err != nil {
			return err
		}
		m.message = request.ToBytes()
		return l.send(m)
	case dhcpv4.MessageTypeAck:
		l.times = append(l.times, time.Since(m.began))
		delete(l.waiting, answer.TransactionID)
	case dhcpv4.MessageTypeNak:
		l.refused++
		delete(l.waiting, answer.TransactionID)
	}
	return nil
}

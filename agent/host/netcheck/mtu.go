package netcheck

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	echoTries = 3
	echoWait  = 700 * time.Millisecond
	// smallEcho is a packet that every path takes: 68 bytes is the least of IPv4 (RFC 791).
	smallEcho = 64
)

// probe is an examination of the path to an address over an interface.
type probe struct {
	to   netip.Addr
	over string
	// ordered is 0 where the configuration leaves the MTU alone.
	ordered int
	// onLink: no router is on the way that could name a smaller MTU.
	onLink bool
}

// echoed is how a packet of one size has ended.
type echoed struct {
	answered bool
	// tooBig: the kernel or a router on the way does not take the size. limit is what they take, 0 where they don't say.
	tooBig bool
	limit  int
	err    error
}

// pathMTU sends ICMP echoes (RFC 792, RFC 4443) of the interface's MTU with the flag against fragments. A small one
// goes first: where that is not answered, a large one proves nothing.
func pathMTU(ctx context.Context, p probe) Check {
	link, err := netlink.LinkByName(p.over)
	if err != nil {
		return unknown("find the interface: %v", err)
	}
	e, err := newEchoes(p, link)
	if err != nil {
		return unknown("open an ICMP socket: %v", err)
	}
	defer func() { _ = unix.Close(e.fd) }() // nothing is owed to it
	small := e.send(ctx, smallEcho)
	if !small.answered {
		return judgeMTU(p, link.Attrs().MTU, small, echoed{})
	}
	return judgeMTU(p, link.Attrs().MTU, small, e.send(ctx, link.Attrs().MTU))
}

// judgeMTU: a path that swallows full packets is a failure where the MTU was ordered. Where it was left alone, no
// rollback would mend that, and it is a warning.
func judgeMTU(p probe, mtu int, small, large echoed) Check {
	lost := Fail
	if p.ordered == 0 {
		lost = Warn
	}
	switch {
	case small.err != nil || large.err != nil:
		return unknown("%v", errors.Join(small.err, large.err))
	case !small.answered:
		return unknown("no ICMP echo is answered, not even a small one")
	case large.answered:
		return pass("packets of %d bytes arrive", mtu)
	case large.tooBig && !p.onLink && large.limit > 0:
		return pass("packets of %d bytes arrive; routers say so for larger ones", large.limit)
	case large.tooBig && !p.onLink:
		return pass("routers refuse packets of %d bytes, and say so", mtu)
	case large.tooBig:
		return Check{Result: lost, Detail: fmt.Sprintf("packets of %d bytes are refused on the link", mtu)}
	}
	return Check{Result: lost,
		Detail: fmt.Sprintf("small packets are answered; packets of %d bytes are lost without a word", mtu)}
}

// echoes is a raw socket that is connected to one address.
type echoes struct {
	fd      int
	v6      bool
	id, seq uint16
}

func newEchoes(p probe, link netlink.Link) (e *echoes, err error) {
	e = &echoes{v6: p.to.Is6(), id: uint16(rand.Uint32())}
	family, protocol := unix.AF_INET, unix.IPPROTO_ICMP
	var to unix.Sockaddr
	if e.v6 {
		family, protocol = unix.AF_INET6, unix.IPPROTO_ICMPV6
		s := &unix.SockaddrInet6{Addr: p.to.As16()}
		if p.to.IsLinkLocalUnicast() {
			s.ZoneId = uint32(link.Attrs().Index)
		}
		to = s
	} else {
		to = &unix.SockaddrInet4{Addr: p.to.As4()}
	}
	if e.fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol); err != nil {
		return nil, err
	}
	if err := e.tune(p); err != nil {
		return nil, errors.Join(err, unix.Close(e.fd))
	}
	if err := unix.Connect(e.fd, to); err != nil {
		return nil, errors.Join(err, unix.Close(e.fd))
	}
	return e, nil
}

// tune keeps packets whole. PROBE disregards what the kernel has learnt of the path, DO does not (ip(7)): on the link
// itself nothing can have been learnt for good.
func (e *echoes) tune(p probe) error {
	if err := unix.BindToDevice(e.fd, p.over); err != nil {
		return fmt.Errorf("bind to %s: %w", p.over, err)
	}
	if e.v6 {
		mode := unix.IPV6_PMTUDISC_DO
		if p.onLink {
			mode = unix.IPV6_PMTUDISC_PROBE
		}
		return errors.Join(unix.SetsockoptInt(e.fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, mode),
			unix.SetsockoptInt(e.fd, unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1))
	}
	mode := unix.IP_PMTUDISC_DO
	if p.onLink {
		mode = unix.IP_PMTUDISC_PROBE
	}
	return unix.SetsockoptInt(e.fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, mode)
}

// send tries a packet of a size, IP header and all, until it is answered.
func (e *echoes) send(ctx context.Context, size int) (out echoed) {
	for range echoTries {
		e.seq++
		switch _, err := unix.Write(e.fd, e.request(size)); {
		case errors.Is(err, unix.EMSGSIZE):
			return echoed{tooBig: true, limit: e.pathLimit()}
		case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.ECONNREFUSED):
			// Of the packet before; this one was not sent.
		case errors.Is(err, unix.ENOBUFS):
			// Dropped by the interface, which is a loss like any other (IPv4 does not tell).
		case err != nil:
			return echoed{err: fmt.Errorf("send: %w", err)}
		}
		for end := time.Now().Add(echoWait); time.Now().Before(end); {
			if out = e.receive(); out != (echoed{}) {
				return out
			}
			if err := pause(ctx); err != nil {
				return echoed{err: err}
			}
		}
	}
	return echoed{}
}

// pathLimit is what the kernel knows of the path, 0 where it does not.
func (e *echoes) pathLimit() int {
	level, option := unix.IPPROTO_IP, unix.IP_MTU
	if e.v6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU
	}
	n, err := unix.GetsockoptInt(e.fd, level, option)
	if err != nil {
		return 0
	}
	return n
}

// receive reads the waiting messages, and returns the zero value if none is an answer.
func (e *echoes) receive() echoed {
	buffer := make([]byte, 1<<16)
	for {
		n, err := unix.Read(e.fd, buffer)
		switch {
		case errors.Is(err, unix.EMSGSIZE):
			return echoed{tooBig: true, limit: e.pathLimit()}
		case errors.Is(err, unix.EAGAIN), err != nil:
			return echoed{} // others, such as EHOSTUNREACH, are no answer
		}
		if e.isReply(buffer[:n]) {
			return echoed{answered: true}
		}
	}
}

const (
	echoHeader = 8
	ip6Header  = 40
)

// request is an echo request. The kernel makes the IP header, and the checksum of ICMPv6.
func (e *echoes) request(size int) []byte {
	kind, header := byte(8), 20
	if e.v6 {
		kind, header = 128, ip6Header
	}
	b := make([]byte, max(size-header, echoHeader))
	b[0] = kind
	binary.BigEndian.PutUint16(b[4:], e.id)
	binary.BigEndian.PutUint16(b[6:], e.seq)
	if !e.v6 {
		binary.BigEndian.PutUint16(b[2:], checksum(b))
	}
	return b
}

// isReply reports whether a packet answers the last request. IPv4 comes with its header.
func (e *echoes) isReply(b []byte) bool {
	kind := byte(129)
	if !e.v6 {
		if len(b) < 20 {
			return false
		}
		b, kind = b[min(len(b), int(b[0]&0xf)*4):], 0
	}
	return len(b) >= echoHeader && b[0] == kind && binary.BigEndian.Uint16(b[4:]) == e.id &&
		binary.BigEndian.Uint16(b[6:]) == e.seq
}

// checksum is that of RFC 1071.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

package netcheck

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/netdump"
	"github.com/ingot-metal/ingot/internal/clock"
)

const (
	// arpProbes is PROBE_NUM of RFC 5227. The pauses are shorter than its 1 to 2 s, because the address is in use already.
	arpProbes = 3
	arpEvery  = 400 * time.Millisecond
	arpWait   = time.Second
	// dadWait is more than IPv6 takes by default: one second after up to one second of delay (RFC 4862).
	dadWait = 3 * time.Second
	poll    = 50 * time.Millisecond
)

// duplicate looks for another owner of an address. One that had the address before the change is a warning: no rollback
// takes it away.
func duplicate(ctx context.Context, name string, a Address) Check {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return unknown("find the interface: %v", err)
	}
	var c Check
	if a.Addr.Is4() {
		c = duplicate4(ctx, link, a.Addr)
	} else {
		c = duplicate6(ctx, link, a.Addr)
	}
	if c.Result == Fail && !a.New {
		c.Result = Warn
	}
	return c
}

// duplicate4 sends ARP probes (RFC 5227, 2.1.1) and listens for anybody who has the address or probes for it as well.
func duplicate4(ctx context.Context, link netlink.Link, a netip.Addr) Check {
	if link.Attrs().EncapType != "ether" {
		return unknown("not Ethernet: %s", link.Attrs().EncapType)
	}
	own, err := ownMACs()
	if err != nil {
		return unknown("%v", err)
	}
	owner, err := probeARP(ctx, link, a, own)
	switch {
	case err != nil:
		return unknown("send ARP probes: %v", err)
	case owner != nil:
		return fail("%s has the address too", owner)
	}
	return pass("no answer to %d ARP probes", arpProbes)
}

// ownMACs are of all interfaces of the host: members of a bond hear each other.
func ownMACs() (map[string]bool, error) {
	list, err := netdump.Links()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	own := map[string]bool{}
	for _, l := range list {
		own[l.Attrs().HardwareAddr.String()] = true
	}
	return own, nil
}

func probeARP(
	ctx context.Context, link netlink.Link, a netip.Addr, own map[string]bool,
) (owner net.HardwareAddr, err error) {
	const arpInNetworkOrder = unix.ETH_P_ARP<<8&0xff00 | unix.ETH_P_ARP>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: arpInNetworkOrder,
		Ifindex: link.Attrs().Index}); err != nil {
		return nil, fmt.Errorf("bind a packet socket: %w", err)
	}
	frame := arpProbe(link.Attrs().HardwareAddr, a)
	buffer := make([]byte, 2048)
	for sent, end := 0, time.Now(); ; {
		if sent < arpProbes && !time.Now().Before(end) {
			if _, err := unix.Write(fd, frame); err != nil {
				return nil, fmt.Errorf("send: %w", err)
			}
			sent++
			end = time.Now().Add(arpEvery)
			if sent == arpProbes {
				end = time.Now().Add(arpWait)
			}
		}
		if sent == arpProbes && !time.Now().Before(end) {
			return nil, nil
		}
		n, err := unix.Read(fd, buffer)
		switch {
		case err == nil:
			if mac := arpClaims(buffer[:n], a); mac != nil && !own[mac.String()] {
				return mac, nil
			}
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			return nil, fmt.Errorf("receive: %w", err)
		default:
			if err := pause(ctx); err != nil {
				return nil, err
			}
		}
	}
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-clock.Real().After(poll):
		return nil
	}
}

// Ethernet and ARP for IPv4 over Ethernet (RFC 826): offsets in the frame.
const (
	etherHeader = 14
	arpLen      = etherHeader + 28
	arpRequest  = 1
)

// arpProbe asks for an address without saying that it is ours: the sender's address is 0.
func arpProbe(from net.HardwareAddr, a netip.Addr) []byte {
	f := bytes.Repeat([]byte{0xff}, 6)
	f = append(f, from...)
	f = binary.BigEndian.AppendUint16(f, unix.ETH_P_ARP)
	f = append(f, 0, 1, 8, 0, 6, 4, 0, arpRequest)
	f = append(f, from...)
	f = append(f, 0, 0, 0, 0)
	f = append(f, 0, 0, 0, 0, 0, 0)
	return append(f, a.AsSlice()...)
}

// arpClaims returns the sender of a frame that has the address, or probes for it, and nil for other frames.
func arpClaims(frame []byte, a netip.Addr) net.HardwareAddr {
	if len(frame) < arpLen || !bytes.Equal(frame[12:20], []byte{8, 6, 0, 1, 8, 0, 6, 4}) {
		return nil
	}
	body := frame[etherHeader:]
	sender, target := netip.AddrFrom4([4]byte(body[14:18])), netip.AddrFrom4([4]byte(body[24:28]))
	probes := binary.BigEndian.Uint16(body[6:]) == arpRequest && sender.IsUnspecified() && target == a
	if sender != a && !probes {
		return nil
	}
	return net.HardwareAddr(bytes.Clone(body[8:14]))
}

// duplicate6 reads what the kernel's own detection has found (RFC 4862, 5.4).
func duplicate6(ctx context.Context, link netlink.Link, a netip.Addr) Check {
	for end := time.Now().Add(dadWait); ; {
		flags, found, err := flagsOf(link, a)
		switch {
		case err != nil:
			return unknown("%v", err)
		case !found:
			return unknown("the interface does not have the address")
		case flags&unix.IFA_F_DADFAILED != 0:
			return fail("the kernel's detection has found another owner")
		case flags&unix.IFA_F_NODAD != 0:
			return unknown("the address is exempt from detection")
		case flags&unix.IFA_F_TENTATIVE == 0:
			return pass("the kernel's detection has found no other owner")
		case time.Now().After(end):
			return unknown("the kernel's detection has not ended after %s", dadWait)
		}
		if err := pause(ctx); err != nil {
			return unknown("%v", err)
		}
	}
}

func flagsOf(link netlink.Link, a netip.Addr) (flags int, found bool, err error) {
	list, err := netdump.Addresses(link, netlink.FAMILY_V6)
	if err != nil {
		return 0, false, fmt.Errorf("list addresses: %w", err)
	}
	for _, x := range list {
		if ip, ok := netip.AddrFromSlice(x.IP); ok && ip == a {
			return x.Flags, true, nil
		}
	}
	return 0, false, nil
}

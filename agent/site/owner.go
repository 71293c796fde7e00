package site

import (
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/netdump"
	"github.com/ingot-metal/ingot/agent/site/lease"
	"github.com/ingot-metal/ingot/agent/site/segment"
)

// ownerByLease is whom the address is lent to now.
func ownerByLease(leases []lease.Lease, a netip.Addr, now time.Time) (segment.MAC, bool) {
	for _, l := range leases {
		if l.Address == a && l.State == lease.Bound && now.Before(l.Ends) {
			return l.MAC, true
		}
	}
	return segment.MAC{}, false
}

// settled are the states in which the kernel believes a neighbour's address (ip-neighbour(8)).
const settled = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE | unix.NUD_PERMANENT

// neighbour is the network card that answered the kernel for the address on a device. A machine that talks to us over
// TCP is always among them, unless it is behind a router.
func neighbour(device string, a netip.Addr) (segment.MAC, bool) {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return segment.MAC{}, false
	}
	list, err := netdump.Neighbours(link.Attrs().Index, netlink.FAMILY_V4)
	if err != nil {
		return segment.MAC{}, false
	}
	for _, n := range list {
		if ip, ok := netip.AddrFromSlice(n.IP.To4()); ok && ip == a && n.State&settled != 0 {
			return segment.MACOf(n.HardwareAddr)
		}
	}
	return segment.MAC{}, false
}

// agree returns the card of the lease, unless the kernel knows another card behind the address. Beside another DHCP
// server there are no leases, and only the kernel's entry counts.
func agree(mode segment.Mode, lent segment.MAC, isLent bool, seen segment.MAC, isSeen bool) (segment.MAC, bool) {
	switch {
	case mode == segment.ModeProxy, mode == segment.ModeStatic:
		return seen, isSeen
	case isSeen && isLent && seen != lent:
		return segment.MAC{}, false
	}
	return lent, isLent
}

package netcheck

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/netdump"
)

// neighbourWait is more than the kernel's three solicitations, a second apart (arp(7), mcast_solicit).
const neighbourWait = 5 * time.Second

// neighbour has the kernel ask for a gateway now, whatever it knows from before, and waits for the answer.
func neighbour(ctx context.Context, name string, a netip.Addr) Check {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return unknown("find the interface: %v", err)
	}
	entry, err := findNeighbour(link, a)
	if err != nil {
		return unknown("%v", err)
	}
	if entry.State&(unix.NUD_PERMANENT|unix.NUD_NOARP) != 0 {
		return unknown("its entry is fixed: the network is not asked for it")
	}
	if err := solicit(entry); err != nil {
		return unknown("have the kernel ask for it: %v", err)
	}
	for end := time.Now().Add(neighbourWait); ; {
		if entry, err = findNeighbour(link, a); err != nil {
			return unknown("%v", err)
		}
		switch {
		case entry.State&unix.NUD_REACHABLE != 0:
			return pass("%s answers for it", entry.HardwareAddr)
		case entry.State&(unix.NUD_PERMANENT|unix.NUD_NOARP) != 0:
			return unknown("the interface needs no neighbours")
		case entry.State&unix.NUD_FAILED != 0:
			return fail("no neighbour answers for it")
		case time.Now().After(end):
			return fail("no neighbour has answered for it in %s", neighbourWait)
		}
		if err := pause(ctx); err != nil {
			return unknown("%v", err)
		}
	}
}

// findNeighbour returns an entry without a state where the kernel has none.
func findNeighbour(link netlink.Link, a netip.Addr) (netlink.Neigh, error) {
	family := netlink.FAMILY_V4
	if a.Is6() {
		family = netlink.FAMILY_V6
	}
	list, err := netdump.Neighbours(link.Attrs().Index, family)
	if err != nil {
		return netlink.Neigh{}, fmt.Errorf("list neighbours: %w", err)
	}
	for _, n := range list {
		if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == a {
			return n, nil
		}
	}
	return netlink.Neigh{LinkIndex: link.Attrs().Index, Family: family, IP: a.AsSlice()}, nil
}

// solicit makes a known entry prove itself, and has the kernel look for an unknown one (NTF_USE, linux/neighbour.h).
func solicit(n netlink.Neigh) error {
	const known = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE
	ask := netlink.Neigh{LinkIndex: n.LinkIndex, Family: n.Family, IP: n.IP, State: unix.NUD_NONE, Flags: unix.NTF_USE}
	if n.State&known != 0 {
		ask.State, ask.Flags, ask.HardwareAddr = unix.NUD_PROBE, 0, n.HardwareAddr
	}
	return netlink.NeighSet(&ask)
}

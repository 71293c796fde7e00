// Package netdump reads lists of the kernel's network that are complete. The kernel marks a list as interrupted when an
// entry came or went while it was read (NLM_F_DUMP_INTR, Linux's Documentation/userspace-api/netlink/intro.rst).
package netdump

import (
	"errors"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/ingot-metal/ingot/internal/clock"
)

// A list takes well under a millisecond, and a change of the network comes in bursts of some seconds.
const (
	tries = 50
	pause = 20 * time.Millisecond
)

// Read calls list again, for about a second, while the kernel reports an interrupted answer. Other errors are returned
// as they are, the last interruption as netlink.ErrDumpInterrupted with what was read.
func Read[T any](list func() ([]T, error)) ([]T, error) {
	for range tries - 1 {
		got, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return got, err
		}
		<-clock.Real().After(pause)
	}
	return list()
}

// Links are all interfaces.
func Links() ([]netlink.Link, error) { return Read(netlink.LinkList) }

// Addresses are those of an interface, of one family (netlink.FAMILY_V4, FAMILY_V6) or of FAMILY_ALL.
func Addresses(link netlink.Link, family int) ([]netlink.Addr, error) {
	return Read(func() ([]netlink.Addr, error) { return netlink.AddrList(link, family) })
}

// Routes are those of a family that match the filter in the fields that mask names (netlink.RT_FILTER_OIF and others).
func Routes(family int, filter *netlink.Route, mask uint64) ([]netlink.Route, error) {
	return Read(func() ([]netlink.Route, error) { return netlink.RouteListFiltered(family, filter, mask) })
}

// Rules are the policy rules of a family.
func Rules(family int) ([]netlink.Rule, error) {
	return Read(func() ([]netlink.Rule, error) { return netlink.RuleList(family) })
}

// Neighbours are those of an interface, by its index.
func Neighbours(index, family int) ([]netlink.Neigh, error) {
	return Read(func() ([]netlink.Neigh, error) { return netlink.NeighList(index, family) })
}

package netcheck

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// checkLink looks for a carrier. An interface is configured whether or not a cable is plugged in, so that none is a
// warning.
func checkLink(i Interface) Check {
	c := Check{Name: Link, Subject: i.Name}
	link, err := netlink.LinkByName(i.Name)
	switch {
	case err != nil:
		c.Result, c.Detail = Unknown, fmt.Sprintf("find the interface: %v", err)
	case !hasCarrier(link):
		c.Result, c.Detail = Warn, "no carrier"
	default:
		c.Result, c.Detail = Pass, fmt.Sprintf("up, MTU %d", link.Attrs().MTU)
	}
	return c
}

func hasCarrier(l netlink.Link) bool { return l.Attrs().RawFlags&unix.IFF_LOWER_UP != 0 }

// member is one that is ordered for a bond, as the kernel shows it.
type member struct {
	name     string
	enslaved bool
	up       bool // by the bond's own monitor
}

// checkBond reads the members and the partner.
func checkBond(i Interface) []Check {
	bond, err := netlink.LinkByName(i.Name)
	if err != nil {
		return []Check{{Name: BondMembers, Subject: i.Name, Result: Unknown, Detail: fmt.Sprintf("find the bond: %v", err)}}
	}
	var members []member
	for _, name := range i.Members {
		m := member{name: name}
		if l, err := netlink.LinkByName(name); err == nil {
			m.enslaved = l.Attrs().MasterIndex == bond.Attrs().Index
			s, ok := l.Attrs().Slave.(*netlink.BondSlave)
			m.up = m.enslaved && ok && s.MiiStatus == netlink.BondLinkUp && hasCarrier(l)
		}
		members = append(members, m)
	}
	c := judgeMembers(members)
	c.Name, c.Subject = BondMembers, i.Name
	out := []Check{c}
	if i.LACP {
		p := judgePartner(readPartner(i.Name), len(i.Members))
		p.Name, p.Subject = BondPartner, i.Name
		out = append(out, p)
	}
	return out
}

// judgeMembers: one that is not in the bond is not what was ordered. One without a link may get its cable later, as
// long as another carries the bond.
func judgeMembers(members []member) Check {
	var outside, down []string
	for _, m := range members {
		switch {
		case !m.enslaved:
			outside = append(outside, m.name)
		case !m.up:
			down = append(down, m.name)
		}
	}
	switch {
	case len(outside) > 0:
		return fail("not members of the bond: %s", strings.Join(outside, ", "))
	case len(down) == len(members):
		return fail("no member has a link: %s", strings.Join(down, ", "))
	case len(down) > 0:
		return warn("members without a link: %s", strings.Join(down, ", "))
	}
	return pass("%d members with a link", len(members))
}

// partner is what a bond shows of LACP. The zero value is what cannot be read.
type partner struct {
	mac   string
	ports int // members in the active aggregate
}

// readPartner reads what the bonding driver shows below /sys (bonding.txt, "ad_partner_mac"), since the netlink library
// does not decode it. The driver shows nothing without CAP_NET_ADMIN.
func readPartner(bond string) partner {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join("/sys/class/net", bond, "bonding", name))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	ports, err := strconv.Atoi(read("ad_num_ports"))
	if err != nil {
		return partner{}
	}
	return partner{mac: read("ad_partner_mac"), ports: ports}
}

// judgePartner reads what IEEE 802.1AX calls the partner's system identifier: all zeroes mean no answer. Frames are
// sent all the same, over one member.
func judgePartner(p partner, members int) Check {
	switch {
	case p.mac == "":
		return unknown("the kernel shows no state of LACP")
	case strings.Trim(p.mac, "0:") == "":
		return warn("no LACP partner has answered: the switch does not take the members for one link")
	case p.ports < members:
		return warn("%d of %d members are in one aggregate with partner %s", p.ports, members, p.mac)
	}
	return pass("partner %s, %d members in one aggregate", p.mac, p.ports)
}

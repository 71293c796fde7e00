package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/netdump"
)

// kernelOthers reads them.
func kernelOthers() (SavedOthers, error) {
	names, err := linkNames()
	if err != nil {
		return SavedOthers{}, err
	}
	var out SavedOthers
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, err := netdump.Rules(family)
		if err != nil {
			return out, fmt.Errorf("list rules: %w", err)
		}
		for _, r := range rules {
			r.Family = family
			if !builtIn(r) {
				out.Rules = append(out.Rules, r)
			}
		}
		routes, err := netdump.Routes(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return out, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range routes {
			r.Family = family
			if s, ok := savedRoute(r, names); ok {
				out.Routes = append(out.Routes, s)
			}
		}
	}
	return out, nil
}

func linkNames() (map[int]string, error) {
	list, err := netdump.Links()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	names := map[int]string{}
	for _, l := range list {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	return names, nil
}

// builtIn rules are those that every kernel starts with (ip-rule(8)).
func builtIn(r netlink.Rule) bool {
	return r.Priority == 0 && r.Table == unix.RT_TABLE_LOCAL ||
		r.Priority == 32766 && r.Table == unix.RT_TABLE_MAIN || r.Priority == 32767 && r.Table == unix.RT_TABLE_DEFAULT
}

// savedRoute leaves out what the kernel, router advertisements and DHCP clients set by themselves, and what SavedLink
// has.
func savedRoute(r netlink.Route, names map[int]string) (SavedRoute, bool) {
	own := []netlink.RouteProtocol{unix.RTPROT_KERNEL, unix.RTPROT_REDIRECT, unix.RTPROT_RA, unix.RTPROT_DHCP}
	if r.Table == unix.RT_TABLE_LOCAL || slices.Contains(own, r.Protocol) || r.Encap != nil {
		return SavedRoute{}, false
	}
	if _, plain := staticRoute(r, r.Family); plain && r.Table == unix.RT_TABLE_MAIN {
		return SavedRoute{}, false
	}
	s := SavedRoute{Route: r}
	if r.LinkIndex != 0 {
		s.Links = append(s.Links, names[r.LinkIndex])
	}
	for _, hop := range r.MultiPath {
		if hop.Encap != nil {
			return SavedRoute{}, false
		}
		s.Links = append(s.Links, names[hop.LinkIndex])
	}
	return s, len(s.Links) > 0 || slices.Contains(linkless, r.Type)
}

// linkless are the types of routes that lead nowhere (rtnetlink(7), rtm_type). In IPv4 they have no link.
var linkless = []int{unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_THROW}

func anyOf(family int) netip.Addr {
	if family == netlink.FAMILY_V6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// ruleText describes all of a rule.
func ruleText(r netlink.Rule) string {
	text := fmt.Sprintf("rule %d family %d from %v to %v iif %q oif %q mark %#x table %d goto %d",
		r.Priority, r.Family, r.Src, r.Dst, r.IifName, r.OifName, r.Mark, r.Table, r.Goto)
	text += fmt.Sprintf(" protocol %d type %d tos %d ipproto %d not %t", r.Protocol, r.Type, r.Tos, r.IPProto, r.Invert)
	text += fmt.Sprintf(" suppress %d/%d", r.SuppressPrefixlen, r.SuppressIfgroup)
	if r.Mask != nil {
		text += fmt.Sprintf(" mask %#x", *r.Mask)
	}
	for _, p := range []*netlink.RulePortRange{r.Sport, r.Dport} {
		if p != nil {
			text += fmt.Sprintf(" ports %d-%d", p.Start, p.End)
		}
	}
	if r.UIDRange != nil {
		text += fmt.Sprintf(" uids %d-%d", r.UIDRange.Start, r.UIDRange.End)
	}
	return text
}

// othersLines are the rules and routes as text, to compare.
func othersLines(o SavedOthers) map[string]bool {
	out := map[string]bool{}
	for _, r := range o.Rules {
		out[ruleText(r)] = true
	}
	for _, r := range o.Routes {
		out[r.String()] = true
	}
	return out
}

// missingOthers is what of the saved things is not there now.
func missingOthers(o SavedOthers, now SavedOthers) SavedOthers {
	there := othersLines(now)
	var out SavedOthers
	for _, r := range o.Rules {
		if !there[ruleText(r)] {
			out.Rules = append(out.Rules, r)
		}
	}
	for _, r := range o.Routes {
		if !there[r.String()] {
			out.Routes = append(out.Routes, r)
		}
	}
	return out
}

// restoreOthers adds the saved settings that are missing. The error names those that could not be added.
func restoreOthers(saved SavedOthers) error {
	now, err := kernelOthers()
	if err != nil {
		return err
	}
	lost := missingOthers(saved, now)
	var errs []error
	for _, r := range lost.Rules {
		if err := netlink.RuleAdd(&r); err != nil && !errors.Is(err, unix.EEXIST) {
			errs = append(errs, fmt.Errorf("add %s: %w", ruleText(r), err))
		}
	}
	for _, r := range lost.Routes {
		if err := addRoute(r); err != nil && !errors.Is(err, unix.EEXIST) {
			errs = append(errs, fmt.Errorf("add %s: %w", r, err))
		}
	}
	return errors.Join(errs...)
}

// addRoute makes the route on the links of the same names.
func addRoute(s SavedRoute) error {
	r := s.Route
	index := make([]int, len(s.Links))
	for i, name := range s.Links {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		index[i] = l.Attrs().Index
	}
	if len(r.MultiPath) == 0 {
		r.LinkIndex = 0
		if len(index) > 0 {
			r.LinkIndex = index[0]
		}
		return netlink.RouteAdd(&r)
	}
	r.MultiPath = slices.Clone(r.MultiPath)
	for i, hop := range r.MultiPath {
		again := *hop
		again.LinkIndex = index[i]
		again.Flags &= unix.RTNH_F_ONLINK
		r.MultiPath[i] = &again
	}
	return netlink.RouteAdd(&r)
}

// dependents are the links on top of the named ones, or below the bridges that these are part of: they go or change
// with them, though they were not named.
func dependents(named, now []SavedLink) []SavedLink {
	touched := slices.Clone(named)
	var out []SavedLink
	for again := true; again; {
		again = false
		for _, l := range now {
			if _, ok := findLink(touched, l.Name); ok {
				continue
			}
			_, below := findLink(touched, l.Parent)
			if _, member := findLink(touched, l.Master); below || member {
				touched, out, again = append(touched, l), append(out, l), true
			}
		}
	}
	return out
}

// keepDependents makes those anew that went with a link which was made anew.
func keepDependents(before []SavedLink) error {
	now, err := kernelLinks()
	if err != nil {
		return err
	}
	var lost []SavedLink
	for _, l := range before {
		is, there := findLink(now, l.Name)
		_, parent := findLink(now, l.Parent)
		_, master := findLink(now, l.Master)
		gone := !there && l.Kind == "vlan" && parent
		left := there && is.Master == "" && master
		if gone || left {
			lost = append(lost, l)
		}
	}
	return reconcile(lost)
}

package network

import (
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
)

// SavedRoute is a foreign route, as the kernel's library reads it, with its links by name: a link that is made anew has
// another index.
type SavedRoute struct {
	Links []string      `json:"links"`
	Route netlink.Route `json:"route"`
}

// SavedOthers is what no configuration of ours can say, and what a change may take away all the same: rules, and routes
// of other tables, types and daemons.
type SavedOthers struct {
	Rules  []netlink.Rule `json:"rules,omitempty"`
	Routes []SavedRoute   `json:"routes,omitempty"`
}

// String describes the route without numbers of links.
func (s SavedRoute) String() string {
	r := s.Route
	var b strings.Builder
	fmt.Fprintf(&b, "route %s table %d protocol %d type %d metric %d",
		destinationOf(r), r.Table, r.Protocol, r.Type, r.Priority)
	if r.Tos != 0 {
		fmt.Fprintf(&b, " tos %d", r.Tos)
	}
	if r.Src != nil {
		fmt.Fprintf(&b, " from %s", r.Src)
	}
	if r.Gw != nil {
		fmt.Fprintf(&b, " via %s", r.Gw)
	}
	if r.MTU != 0 {
		fmt.Fprintf(&b, " mtu %d", r.MTU)
	}
	for i, link := range s.Links {
		if len(r.MultiPath) > 0 {
			fmt.Fprintf(&b, " via %s weight %d", r.MultiPath[i].Gw, r.MultiPath[i].Hops+1)
		}
		fmt.Fprintf(&b, " on %s", link)
	}
	return b.String()
}

func destinationOf(r netlink.Route) string {
	if r.Dst == nil {
		return defaultOf(anyOf(r.Family)).String()
	}
	return r.Dst.String()
}

package network

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
)

// Resolved is systemd-resolved's name on the system bus.
const Resolved = "org.freedesktop.resolve1"

// resolvConf is resolv.conf(5) with the servers and domains of all interfaces, each once. The resolver of glibc takes
// the first three servers.
func resolvConf(c Config) string {
	var b strings.Builder
	b.WriteString(FileHeader)
	var search []string
	seen := map[netip.Addr]bool{}
	for _, i := range c.Interfaces {
		for _, d := range i.DNS {
			if !seen[d] {
				fmt.Fprintf(&b, "nameserver %s\n", d)
			}
			seen[d] = true
		}
		search = append(search, i.Search...)
	}
	if len(search) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(search, " "))
	}
	return b.String()
}

// writesResolv reports whether resolv.conf must be written: not where the manager passes the servers on.
func writesResolv(ctx context.Context, m Manager, c Config) bool {
	return namesServers(c) && (m == nil || !m.TellsResolver(ctx))
}

// namesServers reports whether the configuration has a say in whom to ask for names.
func namesServers(c Config) bool {
	for _, i := range c.Interfaces {
		if len(i.DNS) > 0 {
			return true
		}
	}
	return false
}

package transport

import (
	"context"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
)

// resolvConf names the name servers (resolv.conf(5)).
const resolvConf = "/etc/resolv.conf"

type sourceKey struct{}

// WithSource makes NetDialer's connections prove the network as it is now. Connections and DNS queries come from the
// address. Names are resolved by the servers in the present resolv.conf, where Go would use those of up to five seconds
// ago. The zero Addr leaves that choice to the kernel.
func WithSource(ctx context.Context, from netip.Addr) context.Context {
	return context.WithValue(ctx, sourceKey{}, from)
}

// fromSource binds a dialer to the address of the context.
func fromSource(ctx context.Context, d net.Dialer) net.Dialer {
	from, ok := ctx.Value(sourceKey{}).(netip.Addr)
	if !ok {
		return d
	}
	ask := net.Dialer{Timeout: d.Timeout}
	if from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	var asked atomic.Int32
	d.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, server string) (net.Conn, error) {
		ask := ask
		server = present(server, nameServers(resolvConf), int(asked.Add(1))-1)
		// A resolver on this machine (systemd-resolved) takes questions from loopback addresses only.
		if to, err := netip.ParseAddrPort(server); err == nil && from.IsValid() && !to.Addr().IsLoopback() &&
			to.Addr().Is4() == from.Is4() {
			ask.LocalAddr = local(network, from)
		}
		return ask.DialContext(ctx, network, server)
	}}
	return d
}

// present keeps a server that is still one, and else takes the next of those that are.
func present(server string, now []string, asked int) string {
	if len(now) == 0 || slices.Contains(now, server) {
		return server
	}
	return now[asked%len(now)]
}

// nameServers reads the servers, with the port that questions go to. None is what a machine without the file has.
func nameServers(path string) []string {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(f[1]); err == nil {
			out = append(out, netip.AddrPortFrom(a, 53).String())
		}
	}
	return out
}

func local(network string, from netip.Addr) net.Addr {
	if strings.HasPrefix(network, "udp") {
		return net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
}

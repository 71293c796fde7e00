package transport

import (
	"context"
	"net"
	"net/netip"
)

type sourceKey struct{}

// WithSource makes NetDialer's connections come from an address, and so do its questions to name servers. The zero Addr
// leaves the choice to the kernel.
func WithSource(ctx context.Context, from netip.Addr) context.Context {
	if !from.IsValid() {
		return ctx
	}
	return context.WithValue(ctx, sourceKey{}, from)
}

// fromSource binds a dialer to the address of the context.
func fromSource(ctx context.Context, d net.Dialer) net.Dialer {
	from, ok := ctx.Value(sourceKey{}).(netip.Addr)
	if !ok {
		return d
	}
	ask := net.Dialer{Timeout: d.Timeout}
	d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	d.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, server string) (net.Conn, error) {
		ask := ask
		// A resolver on this machine (systemd-resolved) takes questions from loopback addresses only.
		if to, err := netip.ParseAddrPort(server); err == nil && !to.Addr().IsLoopback() && to.Addr().Is4() == from.Is4() {
			ask.LocalAddr = local(network, from)
		}
		return ask.DialContext(ctx, network, server)
	}}
	return d
}

func local(network string, from netip.Addr) net.Addr {
	if network == "udp" || network == "udp4" || network == "udp6" {
		return net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
}

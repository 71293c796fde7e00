// Package cloudmeta names the addresses at which clouds serve the metadata of an instance, credentials included. A
// user who makes the product call one of them would read the credentials of the product's own host.
package cloudmeta

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// services are metadata services at addresses that are not link-local, or that IPv6 alone has.
var services = []netip.Addr{
	// Alibaba Cloud: alibabacloud.com/help/en/ecs/user-guide/view-instance-metadata
	netip.MustParseAddr("100.100.100.200"),
	// Azure: learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
	netip.MustParseAddr("168.63.129.16"),
	// Oracle Cloud, classic
	netip.MustParseAddr("192.0.0.192"),
	// AWS: docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html
	netip.MustParseAddr("fd00:ec2::254"),
	// Google Cloud: cloud.google.com/compute/docs/metadata/querying-metadata
	netip.MustParseAddr("fd20:ce::254"),
	// OpenStack: docs.openstack.org/nova/latest/user/metadata.html
	netip.MustParseAddr("fe80::a9fe:a9fe"),
}

// linkLocal4 holds 169.254.169.254 and the other services of most clouds.
var linkLocal4 = netip.MustParsePrefix("169.254.0.0/16")

// embedded are networks whose addresses carry an IPv4 address in their last four bytes: NAT64 (RFC 6052, RFC 8215),
// IPv4-compatible (RFC 4291).
var embedded = []netip.Prefix{
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/96"), netip.MustParsePrefix("::/96"),
}

// sixToFour carries an IPv4 address in the bytes after its first two (RFC 3056).
var sixToFour = netip.MustParsePrefix("2002::/16")

// Serves reports whether an address is that of a metadata service, in any form in which it may be written.
func Serves(addr netip.Addr) bool {
	a := plain(addr)
	return linkLocal4.Contains(a) || slices.Contains(services, a)
}

// plain returns the address that another form of it leads to.
func plain(addr netip.Addr) netip.Addr {
	a := addr.Unmap().WithZone("")
	if !a.Is6() {
		return a
	}
	b := a.As16()
	if sixToFour.Contains(a) {
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	if slices.ContainsFunc(embedded, func(p netip.Prefix) bool { return p.Contains(a) }) && !a.IsLoopback() {
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return a
}

// Control refuses to connect to a metadata service. It is the Control of a net.Dialer, which calls it with the address
// after its name was resolved: no second look-up can disagree.
func Control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("the address %q: %w", address, err)
	}
	return check(to.Addr())
}

func check(addr netip.Addr) error {
	if Serves(addr) {
		return fmt.Errorf("%s is the address of a cloud's metadata service, which is not called", addr)
	}
	return nil
}

// Resolve returns an address of a host that may be called, for libraries that dial by themselves. An address is
// returned as it is. Of a name, none of whose addresses may be a metadata service, it is the first.
func Resolve(ctx context.Context, host string) (string, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return host, check(addr)
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return "", fmt.Errorf("resolve %s: %w", host, err)
	}
	for _, a := range addrs {
		if err := check(a); err != nil {
			return "", fmt.Errorf("resolve %s: %w", host, err)
		}
	}
	return addrs[0].Unmap().String(), nil
}

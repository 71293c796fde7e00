package webhook

import (
	"context"
	"errors"
	"fmt"
	"github.com/ingot-metal/ingot/internal/weburl"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/internal/cloudmeta"
)

// Policy is the set of addresses that may be called. Public ones always may.
type Policy struct {
	// AllowLoopback allows 127.0.0.0/8 and ::1, and http there.
	AllowLoopback bool
	// AllowLinkLocal allows 169.254.0.0/16 and fe80::/10, where clouds keep their metadata services. Those elsewhere are
	// never called, unless Allow names them.
	AllowLinkLocal bool
	// DenyPrivate refuses the private networks (RFC 1918, RFC 4193, RFC 6598), where machines usually are.
	DenyPrivate bool
	// Allow are networks whose addresses may be called whatever kind they are.
	Allow []netip.Prefix
}

// Dialer connects to allowed addresses alone. It looks at the address after its name was resolved, right before the
// connection is made: there is no second look-up to disagree with the first.
func (p Policy) Dialer(timeout time.Duration, resolver *net.Resolver) *net.Dialer {
	return &net.Dialer{
		Timeout: timeout, Resolver: resolver,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error { return p.checkDial(address) },
	}
}

const maxURL = 2048

// CheckURL refuses what may not be called whatever its name resolves to.
func (p Policy) CheckURL(raw string) error {
	if len(raw) > maxURL {
		return fmt.Errorf("longer than %d bytes", maxURL)
	}
	u, err := weburl.Parse(raw)
	switch {
	case errors.Is(err, weburl.ErrPort):
		return err
	case err != nil:
		return errors.New("not an absolute https address")
	case u.User != nil:
		return errors.New("a user and a password do not belong into it")
	case u.Fragment != "" || strings.Contains(raw, "#"):
		return errors.New("a fragment does not belong into it")
	case u.Scheme != "https" && u.Scheme != "http":
		return errors.New("not an absolute https address")
	case u.Scheme == "http" && (!p.AllowLoopback || !isLoopbackName(u.Hostname())):
		return errors.New("http is for loopback only, and only where the server allows it; use https")
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		return p.CheckAddr(addr)
	}
	return nil
}

func isLoopbackName(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

var (
	// sharedSpace is RFC 6598.
	sharedSpace = netip.MustParsePrefix("100.64.0.0/10")
	// reserved leads nowhere, or to an address inside of another: "this network", protocol assignments (NAT64 and 6to4
	// carry an IPv4 address), benchmarking, class E and broadcast.
	reserved = []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
		netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"),
		netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("::/96"),
	}
)

// CheckAddr refuses an address that may not be called. It is asked after names have been resolved, for the address that
// is about to be dialled.
func (p Policy) CheckAddr(addr netip.Addr) error {
	a := addr.Unmap().WithZone("")
	if p.allows(a) {
		return nil
	}
	switch {
	case a.IsLoopback():
		return refuse(p.AllowLoopback, a, "loopback")
	case a.IsUnspecified(), a.IsMulticast(), a.IsInterfaceLocalMulticast():
		return refuse(false, a, "unspecified or multicast")
	case a.IsLinkLocalUnicast():
		return refuse(p.AllowLinkLocal, a, "link-local")
	case slices.ContainsFunc(reserved, func(r netip.Prefix) bool { return r.Contains(a) }):
		return refuse(false, a, "reserved")
	case cloudmeta.Serves(a):
		return refuse(false, a, "metadata")
	case a.IsPrivate(), sharedSpace.Contains(a):
		return refuse(!p.DenyPrivate, a, "private")
	}
	return nil
}

// allows reports whether an admin has listed the address. A network does not list the metadata service in the middle of
// it.
func (p Policy) allows(a netip.Addr) bool {
	alone := cloudmeta.Serves(a) && !a.IsLinkLocalUnicast()
	return slices.ContainsFunc(p.Allow, func(n netip.Prefix) bool { return n.Contains(a) && (!alone || n.IsSingleIP()) })
}

func refuse(allowed bool, a netip.Addr, kind string) error {
	if allowed {
		return nil
	}
	return &RefusedError{Addr: a, Kind: kind}
}

// RefusedError is returned when an address may not be called.
type RefusedError struct {
	Addr netip.Addr
	// Kind is "loopback", "link-local", "private", "reserved" and so on.
	Kind string
}

// Error names address and kind.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s is a %s address, which may not be called", e.Addr, e.Kind)
}

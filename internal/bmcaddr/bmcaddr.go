// Package bmcaddr reads the addresses of BMCs and decides which of them a credential may be sent to. The controller and
// the site agent share it, so that both read an address in the same way.
package bmcaddr

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ingot-metal/ingot/internal/cloudmeta"
)

// Address is where a BMC is.
type Address struct {
	// Scheme is "redfish", "redfish+http", "ipmi" or empty.
	Scheme string
	// Host is a name in lower case or an IP address, without brackets. An IPv6 address may have a zone: fe80::1%eth0.
	Host string
	// Port is empty where the protocol's own is meant.
	Port string
	// System is the path of one system of a Redfish service that has several; empty where none is named.
	System string
}

// Plain reports whether the password would travel without TLS.
func (a Address) Plain() bool { return a.Scheme == "redfish+http" }

var schemes = []string{"redfish", "redfish+http", "ipmi"}

// Errors of Parse. They never repeat the address, which may hold a password by mistake.
var (
	ErrScheme   = errors.New("its scheme is not redfish, redfish+http or ipmi")
	ErrPassword = errors.New("credentials don't belong into an endpoint")
	ErrRest     = errors.New("after the scheme there must be a host and nothing else but a port")
	ErrHost     = errors.New("it has no host")
	ErrPort     = errors.New("its port is none")
	ErrMetadata = errors.New(
		"it is the address of a cloud's metadata service, or link-local (169.254.0.0/16), and no BMC's",
	)
	ErrSystem = errors.New(
		"its path is not that of a system, such as /redfish/v1/Systems/System_0, of a Redfish service")
)

// systemPath is the path of a member of the collection that every service has at this place (DSP0266, "Resource URIs").
var systemPath = regexp.MustCompile(`^/redfish/v1/Systems/[A-Za-z0-9._~-]*[A-Za-z0-9_~-][A-Za-z0-9._~-]*$`)

// Parse reads [scheme://]host[:port]; after a scheme of Redfish the path of a system may follow.
func Parse(s string) (Address, error) {
	a, rest := Address{}, s
	if scheme, after, ok := strings.Cut(s, "://"); ok {
		if !slices.Contains(schemes, scheme) {
			return Address{}, ErrScheme
		}
		a.Scheme, rest = scheme, strings.TrimSuffix(after, "/")
		if i := strings.IndexByte(rest, '/'); i > 0 && !strings.Contains(rest, "@") && strings.HasPrefix(scheme, "redfish") {
			if rest, a.System = rest[:i], rest[i:]; !systemPath.MatchString(a.System) {
				return Address{}, ErrSystem
			}
		}
	}
	if strings.Contains(rest, "@") {
		return Address{}, ErrPassword
	}
	if strings.ContainsAny(rest, "/?# \t\r\n") || rest == "" {
		return Address{}, ErrRest
	}
	if a.Scheme != "" {
		rest = strings.Replace(rest, "%25", "%", 1) // as a URL has a zone (RFC 6874)
	}
	if isIP(rest) {
		a.Host = rest
		return a, notMetadata(rest)
	}
	u := url.URL{Host: rest}
	a.Host, a.Port = lower(u.Hostname()), u.Port()
	bracketed := strings.HasPrefix(rest, "[")
	if a.Host == "" || strings.ContainsAny(a.Host, "[]") || strings.Contains(a.Host, ":") != bracketed ||
		bracketed && !isIP(a.Host) || !bracketed && strings.Contains(a.Host, "%") {
		return Address{}, ErrHost
	}
	if strings.HasSuffix(rest, ":") {
		return Address{}, ErrPort
	}
	if a.Port != "" {
		if n, err := strconv.Atoi(a.Port); err != nil || n < 1 || n > 65535 {
			return Address{}, ErrPort
		}
	}
	return a, notMetadata(a.Host)
}

// Key is the same for all addresses of one system behind one BMC, however they are written: host, port where it is no
// protocol's own, and the system's path.
func (a Address) Key() string {
	host := a.Host
	if addr, err := netip.ParseAddr(host); err == nil {
		host = addr.String()
	}
	if a.Port != "" && !slices.Contains(ownPorts, a.Port) {
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		host += ":" + a.Port
	}
	return host + a.System
}

// ownPorts are those of Redfish and of IPMI.
var ownPorts = []string{"443", "623"}

// Spellings are the ways in which the addresses with a's Key are written.
func (a Address) Spellings() []string {
	hosts := []string{a.Host}
	if addr, err := netip.ParseAddr(a.Host); err == nil {
		hosts = append(hosts, addr.String(), addr.StringExpanded())
	}
	var out []string
	for _, host := range hosts {
		ports := []string{a.Port}
		if a.Port == "" || slices.Contains(ownPorts, a.Port) {
			ports = append([]string{""}, ownPorts...)
		}
		for _, port := range ports {
			at := []string{host}
			if strings.Contains(host, ":") {
				at = append(at, "["+host+"]")
			}
			if port != "" {
				at = []string{at[len(at)-1] + ":" + port}
			}
			for _, one := range at {
				out = append(out, one)
				for _, scheme := range schemes {
					out = append(out, scheme+"://"+one+a.System, scheme+"://"+one+a.System+"/")
				}
			}
		}
	}
	if a.System != "" {
		out = slices.DeleteFunc(out, func(s string) bool { return !strings.Contains(s, a.System) })
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// notMetadata refuses the address of a metadata service, whose answers hold credentials of the calling host. A name is
// judged when it is dialled.
func notMetadata(host string) error {
	addr, err := netip.ParseAddr(host)
	if err == nil && cloudmeta.Serves(addr) {
		return ErrMetadata
	}
	return nil
}

// zone is the name or the number of a network interface (IFNAMSIZ of Linux: 15 bytes).
var zone = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,15}$`)

// isIP reports whether s is an IP address. One of IPv6 may have a zone (RFC 4007, 11).
func isIP(s string) bool {
	addr, err := netip.ParseAddr(s)
	return err == nil && (addr.Zone() == "" || zone.MatchString(addr.Zone()))
}

// lower leaves the zone as it is: the names of interfaces differ by case.
func lower(host string) string {
	name, zone, zoned := strings.Cut(host, "%")
	if !zoned {
		return strings.ToLower(name)
	}
	return strings.ToLower(name) + "%" + zone
}

// Allowance is the endpoints that one credential may be sent to: host, host:port, or a network in CIDR form. A host
// without a port covers every port of it. A network covers IP addresses only: what a name resolves to can change.
type Allowance []string

// CheckEntry returns the error of one entry of an allowance, or nil.
func CheckEntry(entry string) error {
	if strings.Contains(entry, "/") {
		p, err := netip.ParsePrefix(entry)
		if err != nil {
			return fmt.Errorf("not a network such as 10.20.0.0/24: %w", err)
		}
		if p != p.Masked() {
			return fmt.Errorf("has bits after its prefix; the network is %s", p.Masked())
		}
		return nil
	}
	a, err := Parse(entry)
	if err == nil && a.Scheme != "" {
		err = ErrScheme
	}
	return err
}

// Covers reports whether the credential may be sent to a host and port. An empty port stands for the protocol's own.
func (l Allowance) Covers(a Address) bool {
	return slices.ContainsFunc(l, func(entry string) bool { return covers(entry, a) })
}

func covers(entry string, a Address) bool {
	addr, err := netip.ParseAddr(a.Host)
	isAddr := err == nil
	if p, err := netip.ParsePrefix(entry); err == nil {
		return isAddr && p.Contains(addr.Unmap()) // which contains none that has a zone
	}
	e, err := Parse(entry)
	if err != nil || e.Scheme != "" || e.Port != "" && e.Port != a.Port {
		return false
	}
	if other, err := netip.ParseAddr(e.Host); err == nil && isAddr {
		return other.Unmap() == addr.Unmap()
	}
	return strings.EqualFold(e.Host, a.Host)
}

package validate

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

const (
	maxSegments = 64
	maxRelays   = 64
	maxDNS      = 8
	maxPool     = 1 << 16
	minLease    = 60
	maxLease    = 7 * 24 * 3600
)

// Linux: at most 15 bytes (IFNAMSIZ), no slash, colon or white space (dev_valid_name).
var deviceForm = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,15}$`)

// Segments checks the segments of a site and returns copies with the defaults filled, without fields that only the
// server can know. IPv4 only.
func Segments(path string, list []*baremetalv1.Segment) ([]*baremetalv1.Segment, error) {
	if len(list) > maxSegments {
		return nil, Fault(path, "more than %d segments", maxSegments)
	}
	var f faults
	out := make([]*baremetalv1.Segment, 0, len(list))
	for i, g := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		full := segmentDefaults(g)
		segment(&f, at, full)
		for _, before := range out {
			clash(&f, at, before, full)
		}
		out = append(out, full)
	}
	return out, f.err()
}

func segmentDefaults(g *baremetalv1.Segment) *baremetalv1.Segment {
	out := proto.CloneOf(g)
	if out == nil {
		out = &baremetalv1.Segment{}
	}
	out.State, out.ForeignDhcpServer, out.PoolSize, out.PoolUsed = "", "", 0, 0
	out.Mode, out.Discovery = cmp.Or(out.GetMode(), "dhcp"), cmp.Or(out.GetDiscovery(), "report")
	if out.GetLeaseSeconds() == 0 {
		out.LeaseSeconds = 3600
	}
	if out.GetHttpPort() == 0 {
		out.HttpPort = 8080
	}
	return out
}

func segment(f *faults, at string, g *baremetalv1.Segment) {
	if !nameForm.MatchString(g.GetName()) {
		f.add(at+".name", "1 to 63 characters of a-z, 0-9 and inner -")
	}
	if !deviceForm.MatchString(g.GetInterface()) || g.GetInterface() == "." || g.GetInterface() == ".." {
		f.add(at+".interface", "the name of a network device: 1 to 15 characters of a-z, A-Z, 0-9, ., _, @ and -")
	}
	f.add(at+".mode", among(g.GetMode(), "dhcp", "proxy", "static"))
	f.add(at+".discovery", among(g.GetDiscovery(), "off", "report", "boot"))
	if n := g.GetLeaseSeconds(); n < minLease || n > maxLease {
		f.add(at+".lease_seconds", fmt.Sprintf("%d to %d; 0 means 3600", minLease, maxLease))
	}
	if n := g.GetHttpPort(); n < 1 || n > 65535 {
		f.add(at+".http_port", "1 to 65535; 0 means 8080")
	}
	own, ok := ownAddress(g.GetAddress())
	if !ok {
		f.add(at+".address", "the site agent's own IPv4 address with a prefix length from 8 to 30, such as 10.20.0.1/24")
		return
	}
	pool(f, at, g, own)
	router(f, at, g, own)
	addresses(f, at+".dns", g.GetDns(), maxDNS)
	addresses(f, at+".relays", g.GetRelays(), maxRelays)
}

// ownAddress reads an address that a host can have, with its prefix.
func ownAddress(s string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(s)
	if err != nil || !p.Addr().Is4() || p.Bits() < 8 || p.Bits() > 30 || !hostAddress(p, p.Addr()) {
		return netip.Prefix{}, false
	}
	return p, true
}

// hostAddress reports whether a host of the prefix can have the address: neither the network's own nor its broadcast.
func hostAddress(p netip.Prefix, a netip.Addr) bool {
	return usable(a) && p.Contains(a) && a != p.Masked().Addr() && p.Contains(a.Next())
}

func usable(a netip.Addr) bool {
	return a.Is4() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// withoutPool has why the segments of a mode have no pool.
var withoutPool = map[string]string{
	"proxy": "in mode proxy another server assigns the addresses", "static": "in mode static no server assigns addresses",
}

// installAddress is empty, or an IPv4 address that a host can have, with its prefix.
func installAddress(s string) string {
	if s == "" {
		return ""
	}
	if _, ok := ownAddress(s); !ok {
		return "an IPv4 address with a prefix length from 8 to 30, such as 10.42.0.17/24"
	}
	return ""
}

func pool(f *faults, at string, g *baremetalv1.Segment, own netip.Prefix) {
	if without := withoutPool[g.GetMode()]; without != "" {
		if g.GetPoolStart() != "" || g.GetPoolEnd() != "" {
			f.add(at+".pool_start", without)
		}
		return
	}
	start, startOK := poolAddress(f, at+".pool_start", g.GetPoolStart(), own)
	end, endOK := poolAddress(f, at+".pool_end", g.GetPoolEnd(), own)
	if !startOK || !endOK {
		return
	}
	switch {
	case end.Less(start):
		f.add(at+".pool_end", "before pool_start")
	case number(end)-number(start) >= maxPool:
		f.add(at+".pool_end", fmt.Sprintf("more than %d addresses", maxPool))
	case within(start, end, own.Addr()):
		f.add(at+".address", "inside the pool")
	}
	if r, err := netip.ParseAddr(g.GetRouter()); err == nil && within(start, end, r) {
		f.add(at+".router", "inside the pool")
	}
}

func poolAddress(f *faults, path, s string, own netip.Prefix) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || !hostAddress(own, a) {
		f.add(path, fmt.Sprintf("an address of a host in %s", own.Masked()))
		return netip.Addr{}, false
	}
	return a, true
}

func number(a netip.Addr) int64 {
	b := a.As4()
	return int64(b[0])<<24 | int64(b[1])<<16 | int64(b[2])<<8 | int64(b[3])
}

func within(start, end, a netip.Addr) bool { return !a.Less(start) && !end.Less(a) }

func router(f *faults, at string, g *baremetalv1.Segment, own netip.Prefix) {
	if g.GetRouter() == "" {
		return
	}
	if a, err := netip.ParseAddr(g.GetRouter()); err != nil || !hostAddress(own, a) {
		f.add(at+".router", fmt.Sprintf("an address of a host in %s, or empty", own.Masked()))
	}
}

func addresses(f *faults, path string, list []string, most int) {
	if len(list) > most {
		f.add(path, fmt.Sprintf("more than %d addresses", most))
		return
	}
	for i, s := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		if a, err := netip.ParseAddr(s); err != nil || !usable(a) {
			f.add(at, "an IPv4 address")
		} else if slices.Contains(list[:i], s) {
			f.add(at, "there twice")
		}
	}
}

// clash notes what two segments of a site cannot both have.
func clash(f *faults, at string, a, b *baremetalv1.Segment) {
	if a.GetName() != "" && a.GetName() == b.GetName() {
		f.add(at+".name", "there twice: "+shown(b.GetName()))
	}
	if a.GetInterface() != "" && a.GetInterface() == b.GetInterface() {
		f.add(at+".interface", "serves segment "+shown(a.GetName())+" already")
	}
	pa, okA := ownAddress(a.GetAddress())
	pb, okB := ownAddress(b.GetAddress())
	if okA && okB && pa.Masked().Overlaps(pb.Masked()) {
		f.add(at+".address", "overlaps with segment "+shown(a.GetName()))
	}
}

package validate

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/ingot-metal/ingot/internal/hwid"
)

// MAC returns an EUI-48 in lower case with colons; ok is false for anything else, and for an address of no card.
func MAC(s string) (mac string, ok bool) {
	mac, err := hwid.MAC(s)
	return mac, err == nil
}

const macRule = "not an EUI-48 such as 52:54:00:12:34:56"

// macs normalizes a list and reports malformed and repeated addresses.
func macs(f *faults, path string, list []string) []string {
	var out []string
	seen := map[string]bool{}
	for i, s := range list {
		at := path + "[" + strconv.Itoa(i) + "]"
		mac, ok := MAC(s)
		switch {
		case !ok:
			f.add(at, macRule)
		case seen[mac]:
			f.add(at, "there twice: "+mac)
		}
		seen[mac] = true
		out = append(out, mac)
	}
	return out
}

// endpoint returns the fault of host[:port], where host is a name, an IPv4 address, or an IPv6 address (in brackets
// when a port follows). Empty is fine.
func endpoint(s string) string {
	const rule = "must be host or host:port"
	if s == "" || validHost(s) {
		return ""
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		if inner, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(inner, "]") && validHost(inner[:len(inner)-1]) {
			return ""
		}
		return rule
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return rule + ", with a port from 1 to 65535"
	}
	if !validHost(host) {
		return rule
	}
	return ""
}

func validHost(s string) bool {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Zone() == ""
	}
	// What looks like an IPv4 address and is none (300.1.2.3) is not taken for a name: RFC 1123, 2.1.
	last := s[strings.LastIndexByte(s, '.')+1:]
	if _, err := strconv.ParseUint(last, 10, 64); err == nil {
		return false
	}
	return len(s) <= 253 && dnsName(s)
}

// hostname returns the fault of a host name: RFC 1123 labels, and Linux's limit of 64 bytes (HOST_NAME_MAX).
func hostname(s string) string {
	if len(s) > 64 || !dnsName(s) {
		return "at most 64 bytes: labels of letters, digits and inner hyphens, with dots between them (RFC 1123)"
	}
	return ""
}

func dnsName(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if !dnsLabel(label) {
			return false
		}
	}
	return true
}

func dnsLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !letter && (r < '0' || r > '9') && r != '-'
	}) < 0
}

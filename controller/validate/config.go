package validate

import (
	"fmt"
	"net/netip"
	"regexp"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

const (
	maxConfirmSeconds = 3600
	maxRules          = 1000
)

// NetReconfig checks a host configuration. Whether the host can apply it is its agent's to say.
func NetReconfig(path string, c *baremetalv1.NetReconfig) error {
	var f faults
	if c.GetHostname() == "" && c.GetFirewall() == nil && len(c.GetInterfaces()) == 0 {
		f.add(path, "names no hostname, no firewall policy and no interfaces")
	}
	if c.GetHostname() != "" {
		f.add(path+".hostname", hostname(c.GetHostname()))
	}
	if n := c.GetConfirmTimeoutSeconds(); n < 0 || n > maxConfirmSeconds {
		f.add(path+".confirm_timeout_seconds", fmt.Sprintf("0 to %d", maxConfirmSeconds))
	}
	if d := c.GetAcceptedDrift(); d != "" {
		f.add(path+".accepted_drift", driftDigest(d, c.GetAcceptDrift()))
	}
	firewall(&f, path+".firewall", c.GetFirewall())
	interfaces(&f, path+".interfaces", c.GetInterfaces())
	return f.err()
}

var digest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

func driftDigest(d string, all bool) string {
	switch {
	case !digest.MatchString(d):
		return "sha256: and 64 hex digits, as the refusal names it"
	case all:
		return "accept_drift accepts every difference: give one of the two"
	}
	return ""
}

func firewall(f *faults, path string, p *baremetalv1.FirewallPolicy) {
	switch p.GetDefaultInput() {
	case "", "accept", "drop":
	default:
		f.add(path+".default_input", "accept or drop")
	}
	if len(p.GetAllow()) > maxRules {
		f.add(path+".allow", fmt.Sprintf("more than %d rules", maxRules))
		return
	}
	for i, r := range p.GetAllow() {
		rule(f, fmt.Sprintf("%s.allow[%d]", path, i), r)
	}
}

func rule(f *faults, path string, r *baremetalv1.FirewallRule) {
	switch r.GetProtocol() {
	case "tcp", "udp":
		ports(f, path, r.GetPortFrom(), r.GetPortTo())
	case "icmp":
		if r.GetPortFrom() != 0 || r.GetPortTo() != 0 {
			f.add(path+".port_from", "icmp has no ports")
		}
		if r.GetSourceCidr() != "" || r.GetRatePerSecond() != 0 {
			f.add(path+".protocol", "icmp is always let in, from everywhere: it takes no source and no rate")
		}
	default:
		f.add(path+".protocol", "tcp, udp or icmp")
	}
	if s := r.GetSourceCidr(); s != "" {
		f.add(path+".source_cidr", cidr(s))
	}
}

func ports(f *faults, path string, from, to uint32) {
	switch {
	case from == 0 || from > 65535:
		f.add(path+".port_from", "1 to 65535")
	case to != 0 && (to < from || to > 65535):
		f.add(path+".port_to", "0, or port_from to 65535")
	}
}

func cidr(s string) string {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return "not a network such as 10.0.0.0/8"
	case p != p.Masked():
		return "has bits below its mask; " + p.Masked().String() + " is meant?"
	}
	return ""
}

package firewall

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// fwRule is one rule of ours: a comment that people see in `nft list`, and its expressions.
type fwRule struct {
	comment string
	exprs   []expr.Any
}

// fwChain is one base chain of ours.
type fwChain struct {
	name     string
	hook     uint32
	priority int32
	policy   nftables.ChainPolicy
	rules    []fwRule
}

// Digest names the content of the policy's table: equal digests mean equal rules in equal order. The
// generation is not part of it.
func (p Policy) Digest() string { return digestChains(p.chains(), nil) }

// chains translates the policy. The order of rules is the promise of Policy: what must always work is
// accepted before anything else is looked at.
func (p Policy) chains() []fwChain {
	policy := nftables.ChainPolicyAccept
	if p.InputDefault == VerdictDrop {
		policy = nftables.ChainPolicyDrop
	}
	chains := []fwChain{
		{name: "input", hook: unix.NF_INET_LOCAL_IN, policy: policy, rules: p.inputRules()},
		{name: "output", hook: unix.NF_INET_LOCAL_OUT, policy: nftables.ChainPolicyAccept, rules: p.outputRules()},
	}
	if !p.SMTPEgressAllowed {
		// What namespaces and containers behind this host send passes neither of the others. Their own traffic to a
		// controller is no agent's and needs no exception.
		chains = append(chains, fwChain{name: "forward", hook: unix.NF_INET_FORWARD, policy: nftables.ChainPolicyAccept,
			rules: append([]fwRule{established()}, mailRules()...)})
	}
	return chains
}

func (p Policy) inputRules() []fwRule {
	rules := []fwRule{
		established(),
		rule("loopback", loopback(), accept()),
	}
	for _, c := range p.Controllers {
		rules = append(rules, rule("controller "+c.String(), l4(unix.IPPROTO_TCP), addr(c.Addr(), saddr),
			port(sport, c.Port(), 0), accept()))
	}
	rules = append(rules,
		rule("icmp", l4(unix.IPPROTO_ICMP), accept()),
		rule("icmpv6", l4(unix.IPPROTO_ICMPV6), accept()),
		rule("dhcpv4 replies", l4(unix.IPPROTO_UDP), port(sport, 67, 0), port(dport, 68, 0), accept()),
		rule("dhcpv6 replies", l4(unix.IPPROTO_UDP), port(sport, 547, 0), port(dport, 546, 0), accept()),
	)
	for _, l := range p.RateLimits {
		rules = append(rules, l.rule())
	}
	for _, a := range p.Allow {
		rules = append(rules, a.rule())
	}
	return rules
}

func (p Policy) outputRules() []fwRule {
	rules := []fwRule{established()}
	for _, c := range p.Controllers {
		rules = append(rules, rule("controller "+c.String(), l4(unix.IPPROTO_TCP), addr(c.Addr(), daddr),
			port(dport, c.Port(), 0), accept()))
	}
	if p.SMTPEgressAllowed {
		return rules
	}
	return append(rules, mailRules()...)
}

func established() fwRule {
	return rule("established", ctState(expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED), accept())
}

// mailRules drop new connections to the ports of RFC 5321 (25), RFC 8314 (465) and RFC 6409 (587).
func mailRules() []fwRule {
	var rules []fwRule
	for _, smtp := range []uint16{25, 465, 587} {
		rules = append(rules, rule(fmt.Sprintf("smtp egress %d", smtp), l4(unix.IPPROTO_TCP), port(dport, smtp, 0), drop()))
	}
	return rules
}

func (l RateLimit) rule() fwRule {
	burst := l.Burst
	if burst == 0 {
		burst = 5
	}
	limit := &expr.Limit{Type: expr.LimitTypePkts, Rate: l.PerSecond, Over: true, Unit: expr.LimitTimeSecond, Burst: burst}
	return rule(fmt.Sprintf("limit %s %d-%d", l.Protocol, l.FromPort, max(l.FromPort, l.ToPort)),
		ctState(expr.CtStateBitNEW), l4(protocol(l.Protocol)), port(dport, l.FromPort, l.ToPort), []expr.Any{limit}, drop())
}

func (a AllowRule) rule() fwRule {
	parts := [][]expr.Any{l4(protocol(a.Protocol))}
	from := "any"
	if a.Source.IsValid() {
		parts = append(parts, source(a.Source))
		from = a.Source.Masked().String()
	}
	parts = append(parts, port(dport, a.FromPort, a.ToPort), accept())
	return rule(fmt.Sprintf("allow %s %d-%d from %s", a.Protocol, a.FromPort, max(a.FromPort, a.ToPort), from), parts...)
}

func rule(comment string, parts ...[]expr.Any) fwRule {
	return fwRule{comment: comment, exprs: slices.Concat(parts...)}
}

func protocol(name string) byte {
	if name == "udp" {
		return unix.IPPROTO_UDP
	}
	return unix.IPPROTO_TCP
}

func accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }
func drop() []expr.Any   { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} }

func l4(proto byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
	}
}

// loopback matches the interface by type (ARPHRD_LOOPBACK), which holds whatever its index is.
func loopback() []expr.Any {
	const arphrdLoopback = 772
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFTYPE, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint16(arphrdLoopback)},
	}
}

func ctState(bits uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bits),
			Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

// Offsets of ports in the TCP and UDP headers.
const (
	sport = 0
	dport = 2
)

func port(offset uint32, from, to uint16) []expr.Any {
	load := &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2}
	if to == 0 || to == from {
		return []expr.Any{load, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: be16(from)}}
	}
	return []expr.Any{
		load,
		&expr.Cmp{Op: expr.CmpOpGte, Register: 1, Data: be16(from)},
		&expr.Cmp{Op: expr.CmpOpLte, Register: 1, Data: be16(to)},
	}
}

func be16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }

// side is where an address sits in the IPv4 and IPv6 headers.
type side struct{ v4, v6 uint32 }

var (
	saddr = side{v4: 12, v6: 8}
	daddr = side{v4: 16, v6: 24}
)

func addr(a netip.Addr, s side) []expr.Any {
	a = a.Unmap().WithZone("")
	return network(netip.PrefixFrom(a, a.BitLen()), s)
}

func source(p netip.Prefix) []expr.Any { return network(p, saddr) }

func network(p netip.Prefix, s side) []expr.Any {
	family, offset := byte(unix.NFPROTO_IPV4), s.v4
	if p.Addr().Is6() {
		family, offset = unix.NFPROTO_IPV6, s.v6
	}
	size := p.Addr().BitLen() / 8
	out := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
	}
	if p.Bits() == 0 {
		return out
	}
	out = append(out, &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset,
		Len: uint32(size)})
	if p.Bits() < p.Addr().BitLen() {
		out = append(out, &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: uint32(size), Mask: mask(p.Bits(), size),
			Xor: make([]byte, size)})
	}
	return append(out, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: p.Masked().Addr().AsSlice()})
}

func mask(bits, size int) []byte {
	m := make([]byte, size)
	for i := range bits {
		m[i/8] |= 0x80 >> (i % 8)
	}
	return m
}

// digestChains hashes chains in the form that both sides have in common: what we are about to send, and what
// the kernel gave back. extra names objects in our table that we never make, such as sets.
func digestChains(chains []fwChain, extra []string) string {
	lines := make([]string, 0, len(chains)+len(extra))
	for _, c := range chains {
		lines = append(lines, c.canonical())
	}
	lines = append(lines, extra...)
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:])
}

func (c fwChain) canonical() string {
	var b strings.Builder
	fmt.Fprintf(&b, "chain %s hook %d priority %d policy %d\n", c.name, c.hook, c.priority, c.policy)
	for _, r := range c.rules {
		fmt.Fprintf(&b, "%q", r.comment)
		for _, e := range r.exprs {
			fmt.Fprintf(&b, " %T%s", e, exprJSON(e))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func exprJSON(e expr.Any) string {
	b, err := json.Marshal(e)
	if err != nil {
		// An expression of a kind that JSON cannot hold is not one of ours; its Go form still distinguishes it.
		return fmt.Sprintf("%+v", e)
	}
	return string(b)
}

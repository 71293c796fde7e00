// Package firewall holds one table of the kernel's packet filter (nftables, inet ingot). The table itself has the
// generation and the digest of the policy, so that a restarted agent can identify it without other memory. The table
// does not survive a reboot.
package firewall

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/ingot-metal/ingot/agent/host/effect"
)

// Verdict is what happens to a packet that no rule matched.
type Verdict string

const (
	// VerdictAccept lets it in.
	VerdictAccept Verdict = "accept"
	// VerdictDrop drops it.
	VerdictDrop Verdict = "drop"
)

// ClosedGeneration marks the table that a boot loads where no policy can be read. No policy has this generation.
const ClosedGeneration = 0

// Policy is the wanted content of our own nftables table. Loopback, established traffic, the needs of IPv6 and DHCP,
// and the controllers are always allowed, whatever the policy.
type Policy struct {
	// Generation names this version of the policy. 0 is not a generation.
	Generation        uint64      `json:"generation"`
	InputDefault      Verdict     `json:"input_default"`
	Allow             []AllowRule `json:"allow,omitempty"`
	RateLimits        []RateLimit `json:"rate_limits,omitempty"`
	SMTPEgressAllowed bool        `json:"smtp_egress_allowed"`
	// Controllers are the addresses that the agent must never lose.
	Controllers []netip.AddrPort `json:"controllers,omitempty"`
	// OverwriteDrift replaces the table even after a foreign change. It is not part of the digest.
	OverwriteDrift bool `json:"overwrite_drift,omitempty"`
	// OverwriteDigest is the one changed table that may be replaced, by State.Digest. "": none.
	OverwriteDigest string `json:"overwrite_digest,omitempty"`
	// Renew replaces a table of the same generation that another version of the agent has made. It is not written down.
	Renew bool `json:"-"`
}

// AllowRule lets new connections in. An invalid (zero) Source means from anywhere.
type AllowRule struct {
	Protocol string       `json:"protocol"` // tcp or udp
	FromPort uint16       `json:"from_port"`
	ToPort   uint16       `json:"to_port,omitempty"` // 0: the same as FromPort
	Source   netip.Prefix `json:"source,omitzero"`
}

// RateLimit drops new connections (for udp: flows) to a port range above a rate, counted over all sources.
type RateLimit struct {
	Protocol  string `json:"protocol"`
	FromPort  uint16 `json:"from_port"`
	ToPort    uint16 `json:"to_port,omitempty"`
	PerSecond uint64 `json:"per_second"`
	Burst     uint32 `json:"burst,omitempty"` // 0: the kernel tools' default of 5
}

// State is our table as read from the kernel.
type State struct {
	Present    bool   `json:"present"`
	Generation uint64 `json:"generation"`
	// Digest is measured over the chains and rules that the kernel holds now.
	Digest string `json:"digest"`
	// Recorded is the digest that was written into the table when it was applied. If it differs from Digest, the table has
	// had a foreign change since.
	Recorded string `json:"recorded"`
}

// Drifted reports whether the table was changed since it was applied.
func (s State) Drifted() bool { return s.Present && s.Digest != s.Recorded }

// Holds reports whether the kernel holds exactly this policy.
func (s State) Holds(p Policy) bool {
	return s.Present && s.Generation == p.Generation && s.Digest == p.Digest() && !s.Drifted()
}

// Admits reports whether p must be applied to a host in this state: false when the policy is there already. A foreign
// change is refused with ErrDrift unless the policy overwrites it, and one generation with two contents with
// ErrInvalid.
func (s State) Admits(p Policy) (apply bool, err error) {
	want := p.Digest()
	switch {
	case !s.Present:
		return true, nil
	case s.Drifted() && !p.OverwriteDrift && p.OverwriteDigest != s.Digest:
		return false, effect.Refuse(
			effect.ErrDrift,
			effect.ReasonFirewallDrift,
			"table holds digest %s, generation %d was applied with %s",
			s.Digest,
			s.Generation,
			s.Recorded,
		)
	case s.Drifted() || s.Generation != p.Generation:
		return true, nil
	case p.Renew && s.Outdated(p):
		return true, nil
	case s.Digest != want:
		return false, effect.Refuse(
			effect.ErrInvalid,
			effect.ReasonGenerationReused,
			"generation %d is applied with digest %s, not %s",
			s.Generation,
			s.Digest,
			want,
		)
	}
	return false, nil
}

// Validate reports the first thing that is wrong with the policy, as ErrInvalid.
func (p Policy) Validate() error {
	if p.Generation == 0 {
		return effect.Refuse(effect.ErrInvalid, effect.ReasonInvalid, "generation is 0")
	}
	if p.InputDefault != VerdictAccept && p.InputDefault != VerdictDrop {
		return effect.Refuse(
			effect.ErrInvalid,
			effect.ReasonInvalid,
			"input_default is %q, not accept or drop",
			p.InputDefault,
		)
	}
	for i, a := range p.Allow {
		if err := validPorts(fmt.Sprintf("allow[%d]", i), a.Protocol, a.FromPort, a.ToPort); err != nil {
			return err
		}
	}
	for i, l := range p.RateLimits {
		what := fmt.Sprintf("rate_limits[%d]", i)
		if err := validPorts(what, l.Protocol, l.FromPort, l.ToPort); err != nil {
			return err
		}
		if l.PerSecond == 0 {
			return effect.Refuse(effect.ErrInvalid, effect.ReasonInvalid, "%s: per_second is 0", what)
		}
	}
	for i, c := range p.Controllers {
		if !c.IsValid() || c.Port() == 0 {
			return effect.Refuse(effect.ErrInvalid, effect.ReasonInvalid, "controllers[%d] has no address or port", i)
		}
	}
	return nil
}

func validPorts(what, protocol string, from, to uint16) error {
	if protocol != "tcp" && protocol != "udp" {
		return effect.Refuse(effect.ErrInvalid, effect.ReasonInvalid, "%s: protocol is %q, not tcp or udp", what, protocol)
	}
	if from == 0 {
		return effect.Refuse(effect.ErrInvalid, effect.ReasonInvalid, "%s: from_port is 0", what)
	}
	if to != 0 && to < from {
		return effect.Refuse(effect.ErrInvalid, effect.ReasonInvalid, "%s: ports %d-%d run backwards", what, from, to)
	}
	return nil
}

// Closed reports whether the table is the closed policy's, which a boot has loaded for want of another.
func (s State) Closed() bool {
	return s.Present && s.Generation == ClosedGeneration && !s.Drifted()
}

// Outdated reports whether the table is ours and untouched and yet not what this version makes of the policy: an older
// version has made it, or a boot that could not read the policy.
func (s State) Outdated(p Policy) bool {
	return s.Closed() || s.Present && !s.Drifted() && s.Generation == p.Generation && s.Digest != p.Digest()
}

// ErrPolicyFile: the policy for the boot cannot be read, and the closed policy takes its place.
var ErrPolicyFile = errors.New("the packet filter's policy cannot be read")

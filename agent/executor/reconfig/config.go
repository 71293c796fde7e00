package reconfig

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/system"
)

// settings are what a command can set. An empty host name, and nil, leave things as they are.
type settings struct {
	Hostname string           `json:"hostname,omitempty"`
	Firewall *firewall.Policy `json:"firewall,omitempty"`
	Network  *network.Config  `json:"network,omitempty"`
}

// over returns the settings with those of before where they leave something open.
func (s settings) over(before settings) settings {
	s.Hostname = cmp.Or(s.Hostname, before.Hostname)
	s.Firewall = cmp.Or(s.Firewall, before.Firewall)
	s.Network = cmp.Or(s.Network, before.Network)
	return s
}

// committed is the configuration that has proved itself.
type committed struct {
	Generation int64    `json:"generation"`
	Digest     string   `json:"digest"` // of the configuration as ordered
	Settings   settings `json:"settings"`
}

// ordered is what a command asks for.
type ordered struct {
	settings
	acceptDrift   bool
	acceptedDrift string
}

// parse turns the order into settings, or returns the refusal.
func parse(a *fleetv1.ReconfigAction, controllers []netip.AddrPort) (ordered, *executor.Result) {
	order := &baremetalv1.NetReconfig{}
	if err := proto.Unmarshal(a.GetConfig(), order); err != nil {
		return ordered{}, refuse(baremetalv1.Reason_INVALID_FIELD, "decode configuration: %v", err)
	}
	if a.GetGeneration() <= 0 {
		return ordered{}, refuse(baremetalv1.Reason_INVALID_FIELD, "generation %d", a.GetGeneration())
	}
	s, err := settingsOf(order, uint64(a.GetGeneration()), controllers)
	if err != nil {
		return ordered{}, refuse(baremetalv1.Reason_INVALID_FIELD, "%v", err)
	}
	return ordered{settings: s, acceptDrift: order.GetAcceptDrift(), acceptedDrift: order.GetAcceptedDrift()}, nil
}

func settingsOf(order *baremetalv1.NetReconfig, generation uint64, controllers []netip.AddrPort) (settings, error) {
	s := settings{Hostname: order.GetHostname()}
	if s.Hostname != "" {
		if err := system.ValidateHostname(s.Hostname); err != nil {
			return s, err
		}
	}
	if order.GetFirewall() != nil {
		p, err := policyOf(order.GetFirewall(), generation, controllers)
		if err == nil {
			err = p.Validate()
		}
		if err != nil {
			return s, err
		}
		p.OverwriteDrift = order.GetAcceptDrift()
		s.Firewall = &p
	}
	if len(order.GetInterfaces()) > 0 {
		c, err := networkOf(order.GetInterfaces())
		if err == nil {
			err = c.Validate()
		}
		if err != nil {
			return s, err
		}
		s.Network = &c
	}
	return s, nil
}

func refuse(reason baremetalv1.Reason, format string, args ...any) *executor.Result {
	r := executor.Refused(reason, format, args...)
	return &r
}

func policyOf(
	f *baremetalv1.FirewallPolicy, generation uint64, controllers []netip.AddrPort,
) (firewall.Policy, error) {
	p := firewall.Policy{
		Generation: generation, InputDefault: firewall.VerdictAccept, SMTPEgressAllowed: f.GetSmtpEgressAllowed(),
		Controllers: controllers,
	}
	if f.GetDefaultInput() != "" {
		p.InputDefault = firewall.Verdict(f.GetDefaultInput())
	}
	for i, r := range f.GetAllow() {
		if r.GetProtocol() == "icmp" {
			continue // the table always lets it in
		}
		if r.GetPortFrom() > 65535 || r.GetPortTo() > 65535 {
			return p, fmt.Errorf("allow[%d]: ports %d-%d", i, r.GetPortFrom(), r.GetPortTo())
		}
		rule := firewall.AllowRule{
			Protocol: r.GetProtocol(),
			FromPort: uint16(r.GetPortFrom()),
			ToPort:   uint16(r.GetPortTo()),
		}
		if r.GetSourceCidr() != "" {
			source, err := netip.ParsePrefix(r.GetSourceCidr())
			if err != nil {
				return p, fmt.Errorf("allow[%d]: %w", i, err)
			}
			rule.Source = source
		}
		p.Allow = append(p.Allow, rule)
		if n := r.GetRatePerSecond(); n > 0 {
			p.RateLimits = append(p.RateLimits, firewall.RateLimit{
				Protocol: rule.Protocol, FromPort: rule.FromPort, ToPort: rule.ToPort, PerSecond: uint64(n),
			})
		}
	}
	return p, nil
}

func digestOf(config []byte) string {
	sum := sha256.Sum256(config)
	return "sha256:" + hex.EncodeToString(sum[:])
}

package bmc

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/bmcaddr"
)

// Protocol is how a BMC is spoken to.
type Protocol string

// Protocols.
const (
	Unknown Protocol = "" // to be probed
	Redfish Protocol = "redfish"
	IPMI    Protocol = "ipmi"
)

// Endpoint is where a BMC is.
type Endpoint struct {
	Protocol Protocol
	// Plain is Redfish without TLS.
	Plain bool
	Host  string // name or address, without brackets; an IPv6 address may have a zone, as in fe80::1%eth0
	Port  string // empty: that of the protocol
	// System is the path of the system that is meant where a Redfish service has several; empty: it is recognized.
	System string

	address bmcaddr.Address
}

var schemes = map[string]Endpoint{
	"": {}, "redfish": {Protocol: Redfish}, "redfish+http": {Protocol: Redfish, Plain: true}, "ipmi": {Protocol: IPMI},
}

// ParseEndpoint reads one of the forms of the package comment. Its error is a refusal with effect.ErrInvalid.
func ParseEndpoint(s string) (Endpoint, error) {
	a, err := bmcaddr.Parse(s)
	switch {
	case errors.Is(err, bmcaddr.ErrPassword):
		return Endpoint{}, badEndpoint("…@…", err.Error()) // not repeated: it would be a password
	case err != nil:
		return Endpoint{}, badEndpoint(s, err.Error())
	}
	e := schemes[a.Scheme]
	e.Host, e.Port, e.System, e.address = a.Host, a.Port, a.System, a
	return e, nil
}

func badEndpoint(s, why string) error {
	return &effect.Refusal{Kind: effect.ErrInvalid, Reason: effect.ReasonInvalid,
		Detail: fmt.Sprintf("BMC endpoint %q: %s", s, why)}
}

// Key is the same for all ways to write the same BMC. A port is part of it only where it is not the usual one.
func (e Endpoint) Key() string {
	if e.Port == "" || e.Port == "443" || e.Port == "623" {
		return e.Host
	}
	return net.JoinHostPort(e.Host, e.Port)
}

// url is what a Redfish client wants. The zone of an address is escaped there (RFC 6874).
func (e Endpoint) url() string {
	scheme, where := "https://", e.tcp()
	if e.Plain {
		scheme, where = "http://", net.JoinHostPort(e.Host, cmp.Or(e.Port, "80"))
	}
	return scheme + strings.Replace(where, "%", "%25", 1)
}

// name is what a certificate must be made for. A zone means something on this host alone and is in no certificate.
func (e Endpoint) name() string {
	name, _, _ := strings.Cut(e.Host, "%")
	return name
}

// tcp is where Redfish listens with TLS.
func (e Endpoint) tcp() string { return net.JoinHostPort(e.Host, cmp.Or(e.Port, "443")) }

// rmcp is what an IPMI client wants.
func (e Endpoint) rmcp() string { return net.JoinHostPort(e.Host, cmp.Or(e.Port, "623")) }

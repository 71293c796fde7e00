package bmc

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/ingot-metal/ingot/agent/host"
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
	Host  string // name or address, without brackets
	Port  string // empty: that of the protocol
}

var schemes = map[string]Endpoint{
	"redfish": {Protocol: Redfish}, "redfish+http": {Protocol: Redfish, Plain: true}, "ipmi": {Protocol: IPMI},
}

// ParseEndpoint reads one of the forms of the package comment. Its error is a refusal with host.ErrInvalid.
func ParseEndpoint(s string) (Endpoint, error) {
	e, rest := Endpoint{}, s
	if scheme, after, ok := strings.Cut(s, "://"); ok {
		if e, ok = schemes[scheme]; !ok {
			return Endpoint{}, badEndpoint(s, "its scheme is not redfish, redfish+http or ipmi")
		}
		rest = strings.TrimSuffix(after, "/")
	}
	if strings.Contains(rest, "@") {
		// Not repeated: it would be a password.
		return Endpoint{}, badEndpoint("…@…", "credentials don't belong into an endpoint")
	}
	if strings.ContainsAny(rest, "/?# \t\r\n") || rest == "" {
		return Endpoint{}, badEndpoint(s, "after the scheme there must be a host and nothing else but a port")
	}
	if ip := net.ParseIP(rest); ip != nil {
		e.Host = rest
		return e, nil
	}
	u := url.URL{Host: rest}
	e.Host, e.Port = strings.ToLower(u.Hostname()), u.Port()
	bracketed := strings.HasPrefix(rest, "[")
	if e.Host == "" || strings.ContainsAny(e.Host, "[]") || strings.Contains(e.Host, ":") != bracketed || bracketed && net.ParseIP(e.Host) == nil {
		return Endpoint{}, badEndpoint(s, "it has no host")
	}
	if n, err := strconv.Atoi(cmp.Or(e.Port, "1")); err != nil || n < 1 || n > 65535 || strings.HasSuffix(rest, ":") {
		return Endpoint{}, badEndpoint(s, "its port is none")
	}
	return e, nil
}

func badEndpoint(s, why string) error {
	return &host.Refusal{Kind: host.ErrInvalid, Reason: host.ReasonInvalid, Detail: fmt.Sprintf("BMC endpoint %q: %s", s, why)}
}

// Key is the same for all ways to write the same BMC. A port is part of it only where it is not the usual one.
func (e Endpoint) Key() string {
	if e.Port == "" || e.Port == "443" || e.Port == "623" {
		return e.Host
	}
	return net.JoinHostPort(e.Host, e.Port)
}

// url is what a Redfish client wants.
func (e Endpoint) url() string {
	if e.Plain {
		return "http://" + net.JoinHostPort(e.Host, cmp.Or(e.Port, "80"))
	}
	return "https://" + net.JoinHostPort(e.Host, cmp.Or(e.Port, "443"))
}

// rmcp is what an IPMI client wants.
func (e Endpoint) rmcp() string { return net.JoinHostPort(e.Host, cmp.Or(e.Port, "623")) }

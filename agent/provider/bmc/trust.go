package bmc

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/cloudmeta"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Certificates are those of one BMC, as SHA-256 of their DER in lower hex.
type Certificates struct {
	// Pinned is the one that is trusted; empty before the first contact.
	Pinned string
	// Offered is another one that the BMC shows now; empty while it shows the pinned one.
	Offered string
}

// Pin makes the certificate that the controller knows of a BMC the trusted one. An empty one changes nothing.
func (p *Provider) Pin(endpoint, sha256Hex string) {
	e, err := ParseEndpoint(endpoint)
	if err != nil || sha256Hex == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pins[e.Key()] = sha256Hex
}

// Unpark has a BMC asked again at once, whatever it has refused or left unanswered before. at is when an admin asked
// for it: each time counts once, restarts included.
func (p *Provider) Unpark(endpoint string, at time.Time) {
	e, err := ParseEndpoint(endpoint)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if at.After(p.unparked[e.Key()]) {
		p.unparked[e.Key()] = at
	}
}

func (p *Provider) unparkedAt(key string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unparked[key]
}

func (p *Provider) pin(key string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pins[key]
}

// seen publishes the certificates of a link. The caller has its turn.
func (p *Provider) seen(l *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.certificates[l.key] = Certificates{Pinned: l.record.Pin, Offered: l.record.Offered}
}

func (p *Provider) certificatesOf(endpoint string) Certificates {
	e, err := ParseEndpoint(endpoint)
	if err != nil {
		return Certificates{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.certificates[e.Key()]
}

// mayGoTo refuses an endpoint that the credentials were not made for.
func mayGoTo(c Credentials, e Endpoint, ref string) error {
	if !c.Allowed.Covers(e.address) {
		return failure.Precondition("BMC_ENDPOINT_NOT_ALLOWED",
			"the credentials %s are not for BMC %s; nothing was sent. An admin allows it: ingot bmc credentials allow", ref,
			e.Key())
	}
	if e.Plain && !c.PlainHTTP {
		return failure.Precondition("BMC_PLAIN_HTTP_NOT_ALLOWED",
			"the credentials %s may not be sent without TLS; nothing was sent to BMC %s", ref, e.Key())
	}
	return nil
}

// trust verifies by the configured authorities, or else by the pin.
func (p *Provider) trust(l *conn, name string, creds Credentials) *tls.Config {
	if p.cfg.RootCAs != nil {
		return &tls.Config{RootCAs: p.cfg.RootCAs, ServerName: name, MinVersion: tls.VersionTLS12}
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true} //nolint:gosec // see VerifyConnection, or an admin's choice
	if creds.UnverifiedTLS {
		return cfg
	}
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		before, shown := l.record, fingerprint(s)
		switch l.record.Pin {
		case "":
			l.record.Pin, l.record.Offered = shown, ""
		case shown:
			l.record.Offered = ""
		default:
			l.record.Offered = shown
		}
		if err := p.save(l, before); err != nil {
			return err
		}
		if l.record.Offered != "" {
			return provider.ErrCertificate
		}
		return nil
	}
	return cfg
}

func fingerprint(s tls.ConnectionState) string {
	sum := sha256.Sum256(s.PeerCertificates[0].Raw)
	return hex.EncodeToString(sum[:])
}

// recheck makes one TLS handshake, without credentials, to see whether the pinned certificate is back.
func (p *Provider) recheck(ctx context.Context, l *conn, e Endpoint) error {
	if e.Protocol == IPMI || e.Plain {
		return nil // an admin has chosen a protocol without certificates since
	}
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	d := tls.Dialer{Config: p.trust(l, e.name(), Credentials{}), NetDialer: &net.Dialer{Control: cloudmeta.Control}}
	conn, err := d.DialContext(ctx, "tcp", e.tcp())
	if err == nil {
		return conn.Close()
	}
	var network *net.OpError
	if errors.Is(err, provider.ErrCertificate) || !errors.As(err, &network) && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", provider.ErrCertificate, err)
	}
	return fmt.Errorf("%w: %w", provider.ErrSilent, err)
}

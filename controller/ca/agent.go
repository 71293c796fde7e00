package ca

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/url"
	"time"

	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/pki"
)

// SignAgent issues a client certificate for the request's public key in the name of agentID. lifetime counts from now;
// 0 means DefaultAgentLifetime. Times are cut to whole seconds, as X.509 has no finer ones.
func (a *Authority) SignAgent(
	ctx context.Context, csr *x509.CertificateRequest, agentID string, lifetime time.Duration, now time.Time,
) (*Issued, error) {
	if !ids.Valid(ids.Agent, agentID) {
		return nil, fmt.Errorf("sign agent certificate: %q is not an agent id", agentID)
	}
	if lifetime < 0 {
		return nil, fmt.Errorf("sign agent certificate: lifetime %v is negative", lifetime)
	}
	if lifetime == 0 {
		lifetime = DefaultAgentLifetime
	}
	if err := pki.CheckKey(csr.PublicKey); err != nil {
		return nil, fmt.Errorf("sign agent certificate: %w", err)
	}
	by := a.signing()
	leaf, err := by.sign(ctx, csr, agentTemplate(agentID, lifetime, now))
	if err != nil {
		return nil, fmt.Errorf("sign agent certificate: %w", err)
	}
	a.signed.Add(1)
	return &Issued{
		LeafDER:     leaf.Raw,
		ChainPEM:    pki.EncodeCerts(leaf, by.keys.intermediate),
		Fingerprint: pki.Fingerprint(leaf.Raw),
		Serial:      leaf.SerialNumber.String(),
		Generation:  by.number,
		NotBefore:   leaf.NotBefore,
		NotAfter:    leaf.NotAfter,
	}, nil
}

// agentTemplate has no server usage: a stolen agent key must not let anybody stand in for the controller.
func agentTemplate(agentID string, lifetime time.Duration, now time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: agentID},
		URIs:        []*url.URL{pki.AgentURI(agentID)},
		NotBefore:   now.Add(-Backdate).UTC().Truncate(time.Second),
		NotAfter:    now.Add(lifetime).UTC().Truncate(time.Second),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},

		BasicConstraintsValid: true,
	}
}

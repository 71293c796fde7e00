package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/ingot-metal/ingot/internal/ids"
)

const (
	identityScheme = "spiffe"
	identityHost   = "ingot"
	identityPath   = "/agent/"
)

// ErrNoIdentity is returned when a certificate does not name an agent.
var ErrNoIdentity = errors.New("certificate carries no agent identity")

// AgentURI is the URI SAN of an agent: spiffe://ingot/agent/<agent_id>.
func AgentURI(agentID string) *url.URL {
	return &url.URL{Scheme: identityScheme, Host: identityHost, Path: identityPath + agentID}
}

// AgentID reads the identity from a certificate: the one URI SAN that it must have, in exactly the form that
// AgentURI writes. Every error wraps ErrNoIdentity.
func AgentID(cert *x509.Certificate) (string, error) {
	if len(cert.URIs) != 1 {
		return "", fmt.Errorf("%w: it has %d URI names, want 1", ErrNoIdentity, len(cert.URIs))
	}
	uri := cert.URIs[0]
	id, ok := strings.CutPrefix(uri.Path, identityPath)
	// The comparison as a whole also rules out what the parts would let through: user info, query, fragment.
	if !ok || !ids.Valid(ids.Agent, id) || uri.String() != AgentURI(id).String() {
		return "", fmt.Errorf("%w: %q is not spiffe://ingot/agent/<agent_id>", ErrNoIdentity, uri)
	}
	return id, nil
}

// NewCSR makes a certificate request in DER, signed by key. With an empty agentID it names no agent: an agent that has
// not enrolled yet does not know its id. The CA takes nothing but the public key from it.
func NewCSR(key crypto.Signer, agentID string) ([]byte, error) {
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: agentID}}
	if agentID != "" {
		template.URIs = []*url.URL{AgentURI(agentID)}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, fmt.Errorf("create certificate request: %w", err)
	}
	return der, nil
}

// ParseCSR reads a certificate request in DER. It checks that its sender holds the key, and that the key is of the kind
// that we use.
func ParseCSR(der []byte) (*x509.CertificateRequest, error) {
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("parse certificate request: %w", err)
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("check signature of certificate request: %w", err)
	}
	if err := CheckKey(csr.PublicKey); err != nil {
		return nil, fmt.Errorf("check certificate request: %w", err)
	}
	return csr, nil
}

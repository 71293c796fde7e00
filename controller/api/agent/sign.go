package agent

import (
	"context"
	"crypto/x509"
	"time"

	"github.com/ingot-metal/ingot/controller/ca"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/pki"
)

// Signer signs one request under whichever agent id the store decides on.
func Signer(
	issuer *ca.Authority, csr *x509.CertificateRequest, lifetime time.Duration, c clock.Clock,
) func(context.Context, string) (*agentstore.Signed, error) {
	return func(ctx context.Context, agentID string) (*agentstore.Signed, error) {
		out, err := issuer.SignAgent(ctx, csr, agentID, lifetime, c.Now())
		if err != nil {
			return nil, err
		}
		return &agentstore.Signed{
			Fingerprint: out.Fingerprint, Serial: out.Serial, ChainPEM: out.ChainPEM, NotBefore: out.NotBefore,
			NotAfter: out.NotAfter, Generation: out.Generation,
		}, nil
	}
}

// ParseCSR reads a certificate request, and returns it with the digest of its key.
func ParseCSR(der []byte) (csr *x509.CertificateRequest, digest []byte, err error) {
	if csr, err = pki.ParseCSR(der); err != nil {
		return nil, nil, failure.Invalid("INVALID_FIELD", "csr: %v", err).WithField("csr",
			"not a valid request for a P-256 key")
	}
	hash, err := pki.PublicKeyHash(csr.PublicKey)
	if err != nil {
		return nil, nil, failure.Invalid("INVALID_FIELD", "csr: %v", err).WithField("csr", "unusable key")
	}
	return csr, hash[:], nil
}

package ca

import (
	"context"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/internal/erasure"
	"github.com/ingot-metal/ingot/internal/pki"
)

// documentLifetime is that of a key which makes one signature. Who verifies it judges by the time of the signature.
const documentLifetime = 10 * time.Minute

// DocumentSigner makes a key for one signature of a document, and its chain with intermediate and root. The key lives
// in memory only.
func (a *Authority) DocumentSigner(ctx context.Context) (crypto.Signer, []*x509.Certificate, error) {
	key, csr, err := newRequest()
	if err != nil {
		return nil, nil, fmt.Errorf("sign document certificate: %w", err)
	}
	by := a.signing()
	leaf, err := by.sign(ctx, csr, documentTemplate(a.clock.Now()))
	if err != nil {
		return nil, nil, fmt.Errorf("sign document certificate: %w", err)
	}
	return key, []*x509.Certificate{leaf, by.keys.intermediate, by.keys.root}, nil
}

// documentTemplate has neither client nor server usage: it opens no connection.
func documentTemplate(now time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:            pkix.Name{CommonName: "ingot-erasure-certificate"},
		NotBefore:          now.Add(-Backdate).UTC().Truncate(time.Second),
		NotAfter:           now.Add(documentLifetime).UTC().Truncate(time.Second),
		KeyUsage:           x509.KeyUsageDigitalSignature,
		UnknownExtKeyUsage: []asn1.ObjectIdentifier{erasure.Usage},

		BasicConstraintsValid: true,
	}
}

// newRequest makes a key and the request that proves it.
func newRequest() (crypto.Signer, *x509.CertificateRequest, error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, nil, err
	}
	der, err := pki.NewCSR(key, "")
	if err != nil {
		return nil, nil, err
	}
	csr, err := pki.ParseCSR(der)
	return key, csr, err
}

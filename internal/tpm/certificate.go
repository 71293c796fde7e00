package tpm

import (
	"crypto"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Roots are the certificates that an admin trusts to certify endorsement keys. The zero value trusts none.
type Roots struct{ roots, intermediates *x509.CertPool }

// ParseRoots reads certificates in PEM. Self-signed ones are roots, the others intermediates: the certificate of an
// endorsement key often names an intermediate that no TPM hands out.
func ParseRoots(certificates []*x509.Certificate) Roots {
	r := Roots{x509.NewCertPool(), x509.NewCertPool()}
	for _, c := range certificates {
		if c.CheckSignatureFrom(c) == nil {
			r.roots.AddCert(c)
		} else {
			r.intermediates.AddCert(c)
		}
	}
	return r
}

// ErrCertificate is wrapped by the errors of VerifyCertificate.
var ErrCertificate = errors.New("the endorsement key's certificate does not verify")

// subjectAltName is critical in certificates of endorsement keys. It names manufacturer and model in a form that
// package x509 doesn't read (TCG EK Credential Profile, section 3.2.9).
var subjectAltName = asn1.ObjectIdentifier{2, 5, 29, 17}

// VerifyCertificate checks that a certificate in DER is of this key and leads to one of the roots. Some TPMs pad it, so
// bytes after it are ignored.
func (k *EndorsementKey) VerifyCertificate(der []byte, roots Roots, now time.Time) error {
	if len(der) > MaxCertificate {
		return fmt.Errorf("%w: it has %d bytes", ErrCertificate, len(der))
	}
	var one asn1.RawValue
	if _, err := asn1.Unmarshal(der, &one); err != nil {
		return fmt.Errorf("%w: not DER", ErrCertificate)
	}
	cert, err := x509.ParseCertificate(one.FullBytes)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCertificate, err)
	}
	key, err := k.PublicKey()
	if err != nil {
		return err
	}
	certified, ok := cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !certified.Equal(key) {
		return fmt.Errorf("%w: it is of another key", ErrCertificate)
	}
	if roots.roots == nil {
		return fmt.Errorf("%w: no root is configured", ErrCertificate)
	}
	cert.UnhandledCriticalExtensions = slices.DeleteFunc(cert.UnhandledCriticalExtensions, subjectAltName.Equal)
	_, err = cert.Verify(x509.VerifyOptions{
		Roots: roots.roots, Intermediates: roots.intermediates, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCertificate, err)
	}
	return nil
}

// Package agenttest has a scripted controller for tests of the agent: real gRPC over real mTLS on loopback, with an
// authority of its own. It has hooks at every point where a controller can misbehave, be late, or be gone.
package agenttest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/pki"
)

// authority is a certificate authority with one root.
type authority struct {
	key  *ecdsa.PrivateKey
	root *x509.Certificate
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "test root"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(10 * 365 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign,
	}
	a := &authority{key: key}
	a.root = a.sign(t, template, template, key.Public())
	return a
}

func (a *authority) sign(t testing.TB, template, parent *x509.Certificate, pub crypto.PublicKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, pub, a.key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (a *authority) hash() [sha256.Size]byte { return sha256.Sum256(a.root.Raw) }

// server makes a certificate for 127.0.0.1; the chain ends with the root, as pinned agents need.
func (a *authority) server(t testing.TB) tls.Certificate {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	leaf := a.sign(t, &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.root, key.Public())
	return tls.Certificate{Certificate: [][]byte{leaf.Raw, a.root.Raw}, PrivateKey: key, Leaf: leaf}
}

// agent certifies an agent's key from notBefore to notAfter.
func (a *authority) agent(t testing.TB, id string, pub crypto.PublicKey, notBefore, notAfter time.Time) []byte {
	t.Helper()
	leaf := a.sign(t, &x509.Certificate{
		URIs: []*url.URL{pki.AgentURI(id)}, NotBefore: notBefore, NotAfter: notAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.root, pub)
	return pki.EncodeCerts(leaf)
}

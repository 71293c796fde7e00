package kubetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority is the CA of a cluster: of its API server, and of those who speak to it.
type Authority struct {
	PEM  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes a CA.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	key := newKey(t)
	tmpl := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{PEM: pemOf("CERTIFICATE", der), cert: cert, key: key}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func keyPEM(t testing.TB, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pemOf("EC PRIVATE KEY", der)
}

// Client makes a client certificate for a user of groups.
func (a *Authority) Client(t testing.TB, user string, groups ...string) (cert, key []byte) {
	t.Helper()
	k := newKey(t)
	return a.Sign(t, pkix.Name{CommonName: user, Organization: groups}, &k.PublicKey, x509.ExtKeyUsageClientAuth),
		keyPEM(t, k)
}

// Server makes the certificate of a server on the loopback.
func (a *Authority) Server(t testing.TB, name string) (cert, key []byte) {
	t.Helper()
	return a.ServerOf(t, name)
}

// ServerOf makes the certificate of a server on the loopback that has further names.
func (a *Authority) ServerOf(t testing.TB, name string, names ...string) (cert, key []byte) {
	t.Helper()
	k := newKey(t)
	return a.sign(t, pkix.Name{CommonName: name}, &k.PublicKey, x509.ExtKeyUsageServerAuth, names), keyPEM(t, k)
}

// Sign certifies a public key.
func (a *Authority) Sign(t testing.TB, subject pkix.Name, pub any, usage x509.ExtKeyUsage) []byte {
	t.Helper()
	return a.sign(t, subject, pub, usage, nil)
}

func (a *Authority) sign(t testing.TB, subject pkix.Name, pub any, usage x509.ExtKeyUsage, names []string) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		Subject: subject, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(12 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: append([]string{"localhost"}, names...),
	}, a.cert, pub, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return pemOf("CERTIFICATE", der)
}

// flags writes what an API server needs of it into a directory.
func (a *Authority) flags(t testing.TB, dir string) []string {
	t.Helper()
	put := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	accounts := put("accounts.key", keyPEM(t, newKey(t)))
	cert, key := a.Server(t, "kube-apiserver")
	return []string{
		"--client-ca-file=" + put("ca.crt", a.PEM),
		"--tls-cert-file=" + put("serving.crt", cert), "--tls-private-key-file=" + put("serving.key", key),
		"--service-account-key-file=" + accounts, "--service-account-signing-key-file=" + accounts,
	}
}

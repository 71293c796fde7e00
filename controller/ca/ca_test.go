package ca

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/task"
)

var start = time.Date(2026, 3, 4, 5, 6, 7, 890, time.UTC)

func newCA(t *testing.T) (*Authority, *clock.Fake) {
	t.Helper()
	fake := clock.NewFake(start)
	a, err := New(Config{Dir: filepath.Join(t.TempDir(), "ca"), Clock: fake})
	if err != nil {
		t.Fatal(err)
	}
	return a, fake
}

// greedyCSR asks for all that it must not get.
func greedyCSR(t *testing.T) *x509.CertificateRequest {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	basicConstraints := pkix.Extension{Id: []int{2, 5, 29, 19}, Critical: true,
		Value: []byte{0x30, 0x03, 0x01, 0x01, 0xff}}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:         pkix.Name{CommonName: "root", Organization: []string{"Evil"}},
		DNSNames:        []string{"controller.example"},
		EmailAddresses:  []string{"root@controller.example"},
		IPAddresses:     []net.IP{net.IPv4(127, 0, 0, 1)},
		URIs:            []*url.URL{pki.AgentURI(ids.New(ids.Agent)), {Scheme: "spiffe", Host: "ingot", Path: "/controller"}},
		ExtraExtensions: []pkix.Extension{basicConstraints},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.ParseCSR(der)
	if err != nil {
		t.Fatal(err)
	}
	return csr
}

func sign(t *testing.T, a *Authority, agentID string, lifetime time.Duration, now time.Time) *x509.Certificate {
	t.Helper()
	issued, err := a.SignAgent(t.Context(), greedyCSR(t), agentID, lifetime, now)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(issued.LeafDER)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

func TestAgentLeafHasExactlyWhatItShould(t *testing.T) {
	t.Parallel()
	a, _ := newCA(t)
	agentID, csr := ids.New(ids.Agent), greedyCSR(t)
	issued, err := a.SignAgent(t.Context(), csr, agentID, 0, start)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(issued.LeafDER)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pki.AgentID(leaf); err != nil || got != agentID {
		t.Errorf("identity %q, %v; want %q", got, err, agentID)
	}
	if len(leaf.DNSNames)+len(leaf.EmailAddresses)+len(leaf.IPAddresses) != 0 || len(leaf.URIs) != 1 {
		t.Errorf("names %v %v %v %v, want one URI only", leaf.DNSNames, leaf.EmailAddresses, leaf.IPAddresses, leaf.URIs)
	}
	if got := leaf.Subject.String(); got != "CN="+agentID {
		t.Errorf("subject %q", got)
	}
	if !slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) ||
		len(leaf.UnknownExtKeyUsage) != 0 {
		t.Errorf("extended usages %v, want client authentication only", leaf.ExtKeyUsage)
	}
	if leaf.IsCA || leaf.KeyUsage != x509.KeyUsageDigitalSignature {
		t.Errorf("CA %v, usage %b", leaf.IsCA, leaf.KeyUsage)
	}
	second := start.Truncate(time.Second)
	if !leaf.NotBefore.Equal(second.Add(-2*time.Hour)) || !leaf.NotAfter.Equal(second.Add(7*24*time.Hour)) {
		t.Errorf("valid from %v to %v", leaf.NotBefore, leaf.NotAfter)
	}
	key, ok := csr.PublicKey.(*ecdsa.PublicKey)
	if !ok || !key.Equal(leaf.PublicKey) {
		t.Error("the leaf is for another key")
	}
	checkIssued(t, a, issued, leaf)
}

func checkIssued(t *testing.T, a *Authority, issued *Issued, leaf *x509.Certificate) {
	t.Helper()
	if issued.Fingerprint != pki.Fingerprint(leaf.Raw) || issued.Serial != leaf.SerialNumber.String() ||
		!issued.NotBefore.Equal(leaf.NotBefore) || !issued.NotAfter.Equal(leaf.NotAfter) {
		t.Errorf("Issued %+v does not describe its leaf", issued)
	}
	chain, err := pki.DecodeCerts(issued.ChainPEM)
	if err != nil || len(chain) != 2 || !chain[0].Equal(leaf) {
		t.Fatalf("chain of %d, %v", len(chain), err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(chain[1])
	opts := x509.VerifyOptions{Roots: a.Roots(), Intermediates: pool, CurrentTime: start,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := leaf.Verify(opts); err != nil {
		t.Errorf("does not verify as a client: %v", err)
	}
	opts.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if _, err := leaf.Verify(opts); err == nil {
		t.Error("verifies as a server")
	}
}

func TestSignAgentRefuses(t *testing.T) {
	t.Parallel()
	a, _ := newCA(t)
	good, agentID := greedyCSR(t), ids.New(ids.Agent)
	tampered := *good
	other, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	tampered.PublicKey = &other.PublicKey
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range map[string]func() (*Issued, error){
		"machine id as agent": func() (*Issued, error) {
			return a.SignAgent(t.Context(), good, ids.New(ids.Machine), 0,
				start)
		},
		"path in the id":    func() (*Issued, error) { return a.SignAgent(t.Context(), good, agentID+"/../x", 0, start) },
		"negative lifetime": func() (*Issued, error) { return a.SignAgent(t.Context(), good, agentID, -1, start) },
		"key not proven":    func() (*Issued, error) { return a.SignAgent(t.Context(), &tampered, agentID, 0, start) },
		"RSA key":           func() (*Issued, error) { return a.SignAgent(t.Context(), rsaCSR(t), agentID, 0, start) },
		"P-384 key":         func() (*Issued, error) { return a.SignAgent(t.Context(), p384CSR(t), agentID, 0, start) },
		"canceled":          func() (*Issued, error) { return a.SignAgent(canceled, good, agentID, 0, start) },
		"after the issuer's end": func() (*Issued, error) {
			return a.SignAgent(t.Context(), good, agentID, 0, a.Expiries()["intermediate"].Add(time.Hour))
		},
	} {
		if issued, err := call(); err == nil {
			t.Errorf("%s: signed %v", name, issued.Serial)
		}
	}
	if n := a.Signatures(); n != 0 {
		t.Errorf("%d signatures counted for refusals", n)
	}
}

func rsaCSR(t *testing.T) *x509.CertificateRequest {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return csrOf(t, key)
}

func p384CSR(t *testing.T) *x509.CertificateRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return csrOf(t, key)
}

func csrOf(t *testing.T, key any) *x509.CertificateRequest {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	return csr
}

func TestLeafDoesNotOutlastItsIssuer(t *testing.T) {
	t.Parallel()
	a, _ := newCA(t)
	late := a.Expiries()["intermediate"].Add(-time.Hour)
	leaf := sign(t, a, ids.New(ids.Agent), 48*time.Hour, late)
	if !leaf.NotAfter.Equal(a.Expiries()["intermediate"]) {
		t.Fatalf("leaf ends %v, issuer %v", leaf.NotAfter, a.Expiries()["intermediate"])
	}
	_, err := a.SignAgent(t.Context(), greedyCSR(t), ids.New(ids.Agent), 0, a.Expiries()["intermediate"])
	if !errors.Is(err, ErrIssuerExpired) {
		t.Fatalf("at the issuer's end: %v", err)
	}
}

func TestConcurrentSigns(t *testing.T) {
	t.Parallel()
	a, _ := newCA(t)
	const n = 32
	issued := make([]*Issued, n)
	wanted := make([]string, n)
	g, ctx := task.New(t.Context())
	for i := range n {
		csr := greedyCSR(t)
		wanted[i] = ids.New(ids.Agent)
		g.Go("sign", func(context.Context) (err error) {
			issued[i], err = a.SignAgent(ctx, csr, wanted[i], time.Duration(i+1)*time.Hour, start)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	serials := map[string]bool{}
	for i, is := range issued {
		leaf, err := x509.ParseCertificate(is.LeafDER)
		if err != nil {
			t.Fatal(err)
		}
		if id, err := pki.AgentID(leaf); err != nil || id != wanted[i] {
			t.Errorf("sign %d: identity %q, %v; want %q", i, id, err, wanted[i])
		}
		if want := start.Truncate(time.Second).Add(time.Duration(i+1) * time.Hour); !leaf.NotAfter.Equal(want) {
			t.Errorf("sign %d: ends %v, want %v", i, leaf.NotAfter, want)
		}
		serials[is.Serial] = true
	}
	if len(serials) != n || a.Signatures() != n {
		t.Fatalf("%d serials, %d signatures, want %d", len(serials), a.Signatures(), n)
	}
}

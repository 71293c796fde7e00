package pki_test

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net/url"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/pki"
)

var start = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue makes a certificate for one day from start; without a parent it signs itself.
func issue(
	t *testing.T, change func(*x509.Certificate), parent *x509.Certificate, parentKey *ecdsa.PrivateKey,
) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key := newKey(t)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: ids.Secret(6)}, BasicConstraintsValid: true,
		NotBefore: start, NotAfter: start.Add(24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
	}
	change(c)
	if parent == nil {
		parent, parentKey = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func asCA(c *x509.Certificate) { c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign }

func asServer(c *x509.Certificate) {
	c.DNSNames = []string{"controller.example"}
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
}

func TestAgentIDTakesOnlyTheOneForm(t *testing.T) {
	t.Parallel()
	id := ids.New(ids.Agent)
	uri := func(raw string) *url.URL {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	good := uri("spiffe://ingot/agent/" + id)
	if got, err := pki.AgentID(&x509.Certificate{URIs: []*url.URL{good}}); err != nil || got != id {
		t.Fatalf("got %q, %v", got, err)
	}
	for name, uris := range map[string][]*url.URL{
		"none":         nil,
		"two":          {good, good},
		"other scheme": {uri("https://ingot/agent/" + id)},
		"other domain": {uri("spiffe://ingot.example/agent/" + id)},
		"port":         {uri("spiffe://ingot:1/agent/" + id)},
		"user":         {uri("spiffe://x@ingot/agent/" + id)},
		"query":        {uri("spiffe://ingot/agent/" + id + "?a=b")},
		"fragment":     {uri("spiffe://ingot/agent/" + id + "#x")},
		"machine id":   {uri("spiffe://ingot/agent/" + ids.New(ids.Machine))},
		"longer path":  {uri("spiffe://ingot/agent/" + id + "/x")},
		"other path":   {uri("spiffe://ingot/controller/" + id)},
		"escaped":      {uri("spiffe://ingot/%61gent/" + id)},
	} {
		if got, err := pki.AgentID(&x509.Certificate{URIs: uris}); !errors.Is(err, pki.ErrNoIdentity) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestCSR(t *testing.T) {
	t.Parallel()
	key, id := newKey(t), ids.New(ids.Agent)
	der, err := pki.NewCSR(key, id)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.ParseCSR(der)
	if err != nil {
		t.Fatal(err)
	}
	if len(csr.URIs) != 1 || csr.URIs[0].String() != "spiffe://ingot/agent/"+id || !key.PublicKey.Equal(csr.PublicKey) {
		t.Fatalf("CSR names %v", csr.URIs)
	}
	der[len(der)-1] ^= 1
	if _, err := pki.ParseCSR(der); err == nil {
		t.Fatal("a CSR with a broken signature passed")
	}
	if _, err := pki.ParseCSR([]byte("x")); err == nil {
		t.Fatal("garbage passed")
	}
}

func TestPinRefusesBadChains(t *testing.T) {
	t.Parallel()
	root, rootKey := issue(t, asCA, nil, nil)
	inter, interKey := issue(t, asCA, root, rootKey)
	leaf, _ := issue(t, asServer, inter, interKey)
	clientLeaf, _ := issue(t, func(c *x509.Certificate) {
		asServer(c)
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}, inter, interKey)
	loner, _ := issue(t, asServer, nil, nil)
	evil, evilKey := issue(t, asCA, nil, nil)
	evilLeaf, _ := issue(t, asServer, evil, evilKey)
	pin := sha256.Sum256(root.Raw)
	for name, tc := range map[string]struct {
		chain  []*x509.Certificate
		pin    [sha256.Size]byte
		server string
		at     time.Time
		ok     bool
	}{
		"good":                   {[]*x509.Certificate{leaf, inter, root}, pin, "controller.example", start, true},
		"root before issuer":     {[]*x509.Certificate{leaf, root, inter}, pin, "controller.example", start, true},
		"root not sent":          {[]*x509.Certificate{leaf, inter}, pin, "controller.example", start, false},
		"issuer not sent":        {[]*x509.Certificate{leaf, root}, pin, "controller.example", start, false},
		"root beside other leaf": {[]*x509.Certificate{evilLeaf, evil, root}, pin, "controller.example", start, false},
		"self-signed, pinned":    {[]*x509.Certificate{loner}, sha256.Sum256(loner.Raw), "controller.example", start, false},
		"no CA, pinned": {[]*x509.Certificate{leaf, loner}, sha256.Sum256(loner.Raw), "controller.example", start,
			false},
		"client usage": {[]*x509.Certificate{clientLeaf, inter, root}, pin, "controller.example", start, false},
		"no name":      {[]*x509.Certificate{leaf, inter, root}, pin, "", start, false},
		"other name":   {[]*x509.Certificate{leaf, inter, root}, pin, "x.example", start, false},
		"too early":    {[]*x509.Certificate{leaf, inter, root}, pin, "controller.example", start.Add(-time.Second), false},
		"too late":     {[]*x509.Certificate{leaf, inter, root}, pin, "controller.example", start.Add(25 * time.Hour), false},
		"nothing":      {nil, pin, "controller.example", start, false},
	} {
		cfg := pki.TLSConfigPinned(tc.pin, tc.server, func() time.Time { return tc.at })
		err := cfg.VerifyConnection(tls.ConnectionState{PeerCertificates: tc.chain})
		if (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEffectiveNow(t *testing.T) {
	t.Parallel()
	clock, build, seen := time.Unix(0, 0), start, start.Add(time.Hour)
	if got := pki.EffectiveNow(clock, build, time.Time{}, seen); !got.Equal(seen) {
		t.Fatalf("got %v, want the last controller time", got)
	}
	if got := pki.EffectiveNow(seen.Add(time.Minute), build, seen); !got.Equal(seen.Add(time.Minute)) {
		t.Fatalf("got %v, want the clock", got)
	}
	if !pki.EffectiveNow().IsZero() {
		t.Fatal("no candidates must give the zero time")
	}
}

func TestCheckTimes(t *testing.T) {
	t.Parallel()
	c := &x509.Certificate{NotBefore: start, NotAfter: start.Add(time.Hour)}
	for name, tc := range map[string]struct {
		at   time.Time
		want error
	}{
		"before": {start.Add(-time.Second), pki.ErrNotYetValid},
		"first":  {start, nil},
		"last":   {start.Add(time.Hour), nil},
		"after":  {start.Add(time.Hour + time.Second), pki.ErrExpired},
	} {
		if err := pki.CheckTimes(c, tc.at); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

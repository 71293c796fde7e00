package state_test

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/pki"
)

// credentials are a new key with a certificate over it.
func credentials(t *testing.T) state.Credentials {
	t.Helper()
	key, err := pki.NewKey()
	must(t, err)
	c, err := state.NewCredentials(key, pki.EncodeCerts(certificate(t, key)))
	must(t, err)
	return c
}

func certificate(t *testing.T, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: t0, NotAfter: t0.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return cert
}

// inTheWay puts a directory with something in it where a file belongs.
func inTheWay(t *testing.T, parts ...string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(append(parts, "x")...), 0o700))
}

// TestAnIdentityIsStoredLast: whatever of an enrolment cannot be stored, the agent does not count as enrolled, and
// keeps the key that it enrols with.
func TestAnIdentityIsStoredLast(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"credentials.pem", "trust.pem", "identity", "enroll.key", ""} {
		d := state.Dir(t.TempDir())
		c := credentials(t)
		if name == "enroll.key" {
			inTheWay(t, string(d), name)
		} else {
			_, err := d.EnrollKey()
			must(t, err)
		}
		if name != "" && name != "enroll.key" {
			inTheWay(t, string(d), name)
		}
		err := d.SaveEnrolled(state.Identity{AgentID: "a"}, c, pki.EncodeCerts(c.Chain...))
		if (err == nil) != (name == "") {
			t.Errorf("%q in the way: %v", name, err)
		}
		enrolled, err := d.Enrolled()
		switch name {
		case "", "enroll.key":
			if !enrolled || err != nil {
				t.Errorf("%q: enrolled %t, %v", name, enrolled, err)
			}
			continue
		case "identity":
			if err == nil || errors.Is(err, state.ErrNotEnrolled) {
				t.Errorf("an identity that cannot be read: %v", err)
			}
		default:
			if err != nil {
				t.Error(err)
			}
		}
		if enrolled {
			t.Errorf("enrolled without %s", name)
		}
		if _, err := os.Stat(filepath.Join(string(d), "enroll.key")); err != nil {
			t.Errorf("%s: the key to enrol with is gone: %v", name, err)
		}
	}
}

// TestADamagedIdentityIsNotNone: an agent that took it for none would enrol again.
func TestADamagedIdentityIsNotNone(t *testing.T) {
	t.Parallel()
	d := state.Dir(t.TempDir())
	if enrolled, err := d.Enrolled(); enrolled || err != nil {
		t.Errorf("an empty directory: %t, %v", enrolled, err)
	}
	must(t, os.WriteFile(filepath.Join(string(d), "identity"), []byte("{"), 0o600))
	if _, err := d.Enrolled(); err == nil {
		t.Error("a damaged identity is taken for none")
	}
	far := state.Identity{AgentID: "a", TokenIssuedAt: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}
	if err := d.SaveIdentity(far); err == nil {
		t.Error("an identity was stored that cannot be encoded")
	}
}

// TestCredentialsMustBelongTogether: a certificate over another key, or no key at all, is refused, stored or received.
func TestCredentialsMustBelongTogether(t *testing.T) {
	t.Parallel()
	d, c, other := state.Dir(t.TempDir()), credentials(t), credentials(t)
	if _, err := state.NewCredentials(c.Key, pki.EncodeCerts(other.Chain...)); err == nil {
		t.Error("the certificate of another key is taken")
	}
	if _, err := state.NewCredentials(c.Key, []byte("none")); err == nil {
		t.Error("no certificate is taken")
	}
	must(t, d.ReplaceCredentials(c))
	got, err := d.Credentials()
	must(t, err)
	if !got.Key.Equal(c.Key) || !got.Leaf().Equal(c.Leaf()) || !got.TLS().Leaf.Equal(c.Leaf()) ||
		len(got.TLS().Certificate) != 1 {
		t.Error("what is read is not what was stored")
	}
	key, err := pki.EncodeKey(c.Key)
	must(t, err)
	for name, text := range map[string][]byte{
		"nothing": nil, "a key alone": key, "a certificate alone": pki.EncodeCerts(c.Chain...),
		"the certificate of another key": append(key, pki.EncodeCerts(other.Chain...)...),
	} {
		must(t, os.WriteFile(filepath.Join(string(d), "credentials.pem"), text, 0o600))
		if _, err := d.Credentials(); err == nil {
			t.Errorf("credentials of %s", name)
		}
	}
}

// TestARotationThatCannotGoOn returns an error, and keeps the credentials in use.
func TestARotationThatCannotGoOn(t *testing.T) {
	t.Parallel()
	d, c, next := state.Dir(t.TempDir()), credentials(t), credentials(t)
	must(t, d.ReplaceCredentials(c))
	if _, found, err := d.Next(); found || err != nil {
		t.Errorf("before a rotation: %t, %v", found, err)
	}
	if err := d.Promote(); err == nil {
		t.Error("promoted nothing")
	}
	key, err := d.NextKey()
	must(t, err)
	if again, err := d.NextKey(); err != nil || !again.Equal(key) {
		t.Errorf("a rotation under way has another key: %v", err)
	}
	must(t, d.SaveNext(next))
	if got, found, err := d.Next(); err != nil || !found || !got.Leaf().Equal(next.Leaf()) {
		t.Errorf("next: %t, %v", found, err)
	}
	must(t, d.Promote())
	if got, err := d.Credentials(); err != nil || !got.Leaf().Equal(next.Leaf()) {
		t.Errorf("after the rotation: %v", err)
	}
	if _, err := os.Stat(filepath.Join(string(d), "next")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is left of it: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(string(d), "next"), nil, 0o600))
	if _, err := d.NextKey(); err == nil {
		t.Error("a key in no directory")
	}
	gone := state.Dir(filepath.Join(string(d), "gone"))
	if err := gone.DropNext(); err == nil {
		t.Error("dropped in a directory that is not there")
	}
	if err := gone.DropEnrollKey(); err == nil {
		t.Error("the enrolment's key is dropped in a directory that is not there")
	}
}

// TestTrustIsReplacedByCertificatesOnly: what holds none is refused, since it would lock the agent out.
func TestTrustIsReplacedByCertificatesOnly(t *testing.T) {
	t.Parallel()
	d, a, b := state.Dir(t.TempDir()), credentials(t), credentials(t)
	must(t, d.SaveTrust(pki.EncodeCerts(a.Chain...)))
	if err := d.SaveTrust([]byte("none")); err == nil {
		t.Error("no certificates are trusted")
	}
	trusts := func(c state.Credentials) bool {
		t.Helper()
		pool, err := d.Trust()
		must(t, err)
		want := x509.NewCertPool()
		want.AddCert(c.Leaf())
		return pool.Equal(want)
	}
	if !trusts(a) {
		t.Error("the roots were lost")
	}
	before, err := os.Stat(filepath.Join(string(d), "trust.pem"))
	must(t, err)
	must(t, d.SaveTrust(pki.EncodeCerts(a.Chain...)))
	after, err := os.Stat(filepath.Join(string(d), "trust.pem"))
	must(t, err)
	if !os.SameFile(before, after) {
		t.Error("the same roots were written again")
	}
	must(t, d.SaveTrust(pki.EncodeCerts(b.Chain...)))
	if !trusts(b) {
		t.Error("the roots were not replaced")
	}
}

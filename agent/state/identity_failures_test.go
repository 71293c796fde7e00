package state_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/pki"
)

// TestReenrollingEndsARotation: the next certificate that was under way is of an identity that is over.
func TestReenrollingEndsARotation(t *testing.T) {
	t.Parallel()
	d := state.Dir(t.TempDir())
	_, err := d.NextKey()
	must(t, err)
	must(t, d.SaveNext(credentials(t)))
	fresh := credentials(t)
	must(t, d.ReplaceCredentials(fresh))
	if _, found, err := d.Next(); found || err != nil {
		t.Errorf("a rotation is under way: %t, %v", found, err)
	}
	if got, err := d.Credentials(); err != nil || !got.Leaf().Equal(fresh.Leaf()) {
		t.Error(err)
	}
	must(t, d.DropEnrollKey()) // there is none any more
}

// TestAnIdentitysFilesThatCannotBeWritten: each failure is said, whatever would have followed.
func TestAnIdentitysFilesThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	c := credentials(t)
	for name, use := range map[string]func(d state.Dir) error{
		"replace":    func(d state.Dir) error { return d.ReplaceCredentials(c) },
		"next key":   func(d state.Dir) error { _, err := d.NextKey(); return err },
		"save next":  func(d state.Dir) error { return d.SaveNext(c) },
		"promote":    func(d state.Dir) error { return d.Promote() },
		"drop next":  func(d state.Dir) error { return d.DropNext() },
		"enroll key": func(d state.Dir) error { _, err := d.EnrollKey(); return err },
		"trust":      func(d state.Dir) error { _, err := d.Trust(); return err },
		"identity":   func(d state.Dir) error { return d.SaveIdentity(state.Identity{}) },
		"claim":      func(d state.Dir) error { _, err := state.Claim(string(d)); return err },
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "file")
		must(t, os.WriteFile(file, nil, 0o600))
		if err := use(state.Dir(file)); err == nil {
			t.Errorf("%s: no error in a directory that is a file", name)
		}
		if name == "next key" {
			continue // it makes its directory
		}
		if err := use(state.Dir(filepath.Join(dir, "gone"))); err == nil {
			t.Errorf("%s: no error in a directory that is not there", name)
		}
	}
	full := state.Dir(t.TempDir())
	inTheWay(t, string(full), "credentials.pem")
	_, err := full.NextKey()
	must(t, err)
	if err := full.ReplaceCredentials(c); err == nil {
		t.Error("credentials are replaced that are a directory")
	}
	if _, err := os.Stat(filepath.Join(string(full), "next", "key.pem")); err != nil {
		t.Errorf("the rotation ended with credentials that were not stored: %v", err)
	}
	odd := c
	key := *c.Key
	curve := *key.Params()
	key.Curve = &curve
	odd.Key = &key
	if err := state.Dir(t.TempDir()).SaveNext(odd); err == nil {
		t.Error("a key on a curve that has no name is stored")
	}
}

// TestADamagedKeyIsNotReplaced: an answer may be under way that certifies it.
func TestADamagedKeyIsNotReplaced(t *testing.T) {
	t.Parallel()
	d := state.Dir(t.TempDir())
	_, err := d.NextKey()
	must(t, err)
	for name, use := range map[string]func() error{
		"enroll.key":   func() error { _, err := d.EnrollKey(); return err },
		"next/key.pem": func() error { _, err := d.NextKey(); return err },
	} {
		path := filepath.Join(string(d), name)
		must(t, os.WriteFile(path, []byte("damaged"), 0o600))
		if err := use(); err == nil {
			t.Errorf("%s: no error", name)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != "damaged" {
			t.Errorf("%s is now %.20s, %v", name, b, err)
		}
	}
}

// TestDamagedCredentialsAreNotNone: neither those in use nor the next ones.
func TestDamagedCredentialsAreNotNone(t *testing.T) {
	t.Parallel()
	_, other, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(other)
	must(t, err)
	c := credentials(t)
	valid, err := pki.EncodeKey(c.Key)
	must(t, err)
	block, _ := pem.Decode(valid)
	block.Bytes = der
	chain := pki.EncodeCerts(c.Chain...)
	for name, b := range map[string][]byte{
		"no key":          chain,
		"a damaged key":   append(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: []byte("x")}), chain...),
		"an Ed25519 key":  append(pem.EncodeToMemory(block), chain...),
		"no certificates": valid,
	} {
		d := state.Dir(t.TempDir())
		_, err := d.NextKey()
		must(t, err)
		for _, file := range []string{"credentials.pem", "next/credentials.pem"} {
			must(t, os.WriteFile(filepath.Join(string(d), file), b, 0o600))
		}
		if got, err := d.Credentials(); err == nil || got.Key != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, found, err := d.Next(); err == nil || found {
			t.Errorf("%s, the next: %t, %v", name, found, err)
		}
	}
}

// TestAClaimIsGivenUpOnce: a claim that is not held cannot be released.
func TestAClaimIsGivenUpOnce(t *testing.T) {
	t.Parallel()
	release, err := state.Claim(t.TempDir())
	must(t, err)
	must(t, release())
	if err := release(); err == nil {
		t.Error("given up twice")
	}
}

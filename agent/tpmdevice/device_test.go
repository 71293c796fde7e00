package tpmdevice_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/ingot-metal/ingot/agent/tpmdevice"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/internal/tpm"
	"github.com/ingot-metal/ingot/lab/swtpm"
)

// open powers a TPM on until the test ends or off is called.
func open(t *testing.T, dir string) (d *tpmdevice.Device, off func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	chip, conn, err := swtpm.Open(ctx, dir)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	d, err = tpmdevice.Load(conn)
	if err != nil {
		t.Fatal(err)
	}
	done := false
	off = func() {
		if done {
			return
		}
		done = true
		if err := errors.Join(d.Close(), chip.Wait()); err != nil {
			t.Error(err)
		}
		cancel()
	}
	t.Cleanup(off)
	return d, off
}

func challenge(t *testing.T, d *tpmdevice.Device, attestation []byte) tpm.Challenge {
	t.Helper()
	ek, err := tpm.ParseEndorsementKey(d.Endorsement)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tpm.NewChallenge(ek, attestation)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestOnlyTheTPMOfTheKeyActivates: a credential is released by the TPM that it was made for, and by no other; not for
// another attestation key either.
func TestOnlyTheTPMOfTheKeyActivates(t *testing.T) {
	t.Parallel()
	one, _ := open(t, testkit.TempDir(t))
	two, _ := open(t, testkit.TempDir(t))
	c := challenge(t, one, one.Attestation)
	secret, err := one.Activate(c.Blob, c.Seed)
	if err != nil || !bytes.Equal(secret, c.Secret) {
		t.Fatalf("its own TPM gives %x, %v; want %x", secret, err, c.Secret)
	}
	if got, err := two.Activate(c.Blob, c.Seed); err == nil {
		t.Errorf("another TPM gives %x", got)
	}
	c = challenge(t, one, two.Attestation)
	if got, err := one.Activate(c.Blob, c.Seed); err == nil {
		t.Errorf("the TPM gives %x for an attestation key that it does not hold", got)
	}
}

// TestEndorsementKeyStays: over a power cycle the endorsement key is the same, and the attestation key is new.
func TestEndorsementKeyStays(t *testing.T) {
	t.Parallel()
	dir := testkit.TempDir(t)
	before, off := open(t, dir)
	off()
	after, _ := open(t, dir)
	if !bytes.Equal(before.Endorsement, after.Endorsement) {
		t.Error("the endorsement key has changed")
	}
	if bytes.Equal(before.Attestation, after.Attestation) {
		t.Error("the attestation key has stayed")
	}
}

// TestVendorCertificate: a certificate in the TPM leads to the vendor's root, to no other, and vouches for no other
// key.
func TestVendorCertificate(t *testing.T) {
	t.Parallel()
	dir := testkit.TempDir(t)
	paths, err := swtpm.Make(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	d, _ := open(t, dir)
	ek, err := tpm.ParseEndorsementKey(d.Endorsement)
	if err != nil {
		t.Fatal(err)
	}
	if err := ek.VerifyCertificate(d.Certificate, roots(t, paths), time.Now()); err != nil {
		t.Errorf("by its vendor's root: %v", err)
	}
	if err := ek.VerifyCertificate(d.Certificate, tpm.Roots{}, time.Now()); !errors.Is(err, tpm.ErrCertificate) {
		t.Errorf("without a root: %v", err)
	}
	other, _ := open(t, filepath.Join(dir, "other"))
	stranger, err := tpm.ParseEndorsementKey(other.Endorsement)
	if err != nil {
		t.Fatal(err)
	}
	if err := stranger.VerifyCertificate(d.Certificate, roots(t, paths), time.Now()); !errors.Is(err, tpm.ErrCertificate) {
		t.Errorf("for another key: %v", err)
	}
	if other.Certificate != nil {
		t.Error("a TPM that nobody certified has a certificate")
	}
}

func roots(t *testing.T, paths []string) tpm.Roots {
	t.Helper()
	var list []*x509.Certificate
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(text)
		if block == nil {
			t.Fatalf("%s is not PEM", path)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	return tpm.ParseRoots(list)
}

// TestNoTPM: a machine without a device returns ErrNone.
func TestNoTPM(t *testing.T) {
	t.Parallel()
	if _, err := tpmdevice.Open(t.TempDir()); !errors.Is(err, tpmdevice.ErrNone) {
		t.Errorf("got %v", err)
	}
}

// TestKeptKey: a running system reads the key that the installer proves, from its certificate or where it is kept, and
// makes none.
func TestKeptKey(t *testing.T) {
	t.Parallel()
	if _, err := tpmdevice.KeptKey(t.TempDir()); !errors.Is(err, tpmdevice.ErrNone) {
		t.Errorf("without a TPM: %v", err)
	}
	certified := testkit.TempDir(t)
	if _, err := swtpm.Make(t.Context(), certified); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"certified": certified, "kept": testkit.TempDir(t)} {
		d, off := open(t, dir)
		key, err := tpm.ParseEndorsementKey(d.Endorsement)
		if err != nil {
			t.Fatal(err)
		}
		off()
		want := key.Digest()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		chip, conn, err := swtpm.Open(ctx, dir)
		if err != nil {
			t.Fatal(err)
		}
		if name == "kept" {
			if got, err := tpmdevice.ReadKeptKey(conn); !errors.Is(err, tpmdevice.ErrNotKept) {
				t.Errorf("before it is kept: %q, %v", got, err)
			}
			keep(t, conn)
		}
		if got, err := tpmdevice.ReadKeptKey(conn); err != nil || got != hex.EncodeToString(want[:]) {
			t.Errorf("%s: %q, %v; want %x", name, got, err, want)
		}
		if err := errors.Join(conn.Close(), chip.Wait()); err != nil {
			t.Error(err)
		}
	}
}

// keep makes the endorsement key persistent, as a provisioning tool does.
func keep(t *testing.T, conn io.ReadWriteCloser) {
	t.Helper()
	chip := transport.FromReadWriter(conn)
	made, err := tpm2.CreatePrimary{
		PrimaryHandle: tpm2.TPMRHEndorsement,
		InPublic:      tpm2.New2B(tpm2.RSAEKTemplate),
	}.Execute(
		chip,
	)
	if err != nil {
		t.Fatal(err)
	}
	_, err = tpm2.EvictControl{
		Auth:             tpm2.TPMRHOwner,
		ObjectHandle:     &tpm2.NamedHandle{Handle: made.ObjectHandle, Name: made.Name},
		PersistentHandle: 0x81010001,
	}.Execute(chip)
	if err != nil {
		t.Fatal(err)
	}
}

package tpm_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/ingot-metal/ingot/internal/tpm"
)

// endorsement is a public area of the default template with a modulus that fits.
func endorsement(change func(*tpm2.TPMTPublic)) []byte {
	area := tpm2.RSAEKTemplate
	n := bytes.Repeat([]byte{0xff}, 256)
	area.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgRSA, &tpm2.TPM2BPublicKeyRSA{Buffer: n})
	if change != nil {
		change(&area)
	}
	return tpm2.Marshal(area)
}

// TestOnlyEndorsementKeysAreTaken: a key that can sign, that may leave its TPM, or that is too short is none.
func TestOnlyEndorsementKeysAreTaken(t *testing.T) {
	t.Parallel()
	if _, err := tpm.ParseEndorsementKey(endorsement(nil)); err != nil {
		t.Fatalf("an endorsement key: %v", err)
	}
	for name, bad := range map[string][]byte{
		"nothing":  nil,
		"too long": make([]byte, tpm.MaxPublic+1),
		"a zero":   {0},
		"short":    endorsement(nil)[:100],
		"movable":  endorsement(func(a *tpm2.TPMTPublic) { a.ObjectAttributes.FixedTPM = false }),
		"signing":  endorsement(func(a *tpm2.TPMTPublic) { a.ObjectAttributes.SignEncrypt = true }),
		"free":     endorsement(func(a *tpm2.TPMTPublic) { a.ObjectAttributes.Restricted = false }),
		"1024 bits": endorsement(func(a *tpm2.TPMTPublic) {
			a.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgRSA, &tpm2.TPM2BPublicKeyRSA{Buffer: bytes.Repeat([]byte{0xff}, 128)})
		}),
		"even": endorsement(func(a *tpm2.TPMTPublic) {
			a.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgRSA,
				&tpm2.TPM2BPublicKeyRSA{Buffer: append(bytes.Repeat([]byte{0xff}, 255), 0xfe)})
		}),
	} {
		if _, err := tpm.ParseEndorsementKey(bad); !errors.Is(err, tpm.ErrKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := tpm.ParseAttestationKey(endorsement(nil)); !errors.Is(err, tpm.ErrKey) {
		t.Errorf("an endorsement key as attestation key: %v", err)
	}
}

// TestProofIsForOneConnectionKeyAndChallenge: a change of any part of the binding, or of the secret, breaks the proof.
func TestProofIsForOneConnectionKeyAndChallenge(t *testing.T) {
	t.Parallel()
	part := func(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }
	secret, good := part(1), tpm.Binding{Exported: part(2), KeyDigest: part(3), Sealed: part(4)}
	proof := tpm.Proof(secret, good)
	if err := tpm.Verify(secret, good, proof); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]tpm.Binding{
		"connection": {Exported: part(9), KeyDigest: part(3), Sealed: part(4)},
		"key":        {Exported: part(2), KeyDigest: part(9), Sealed: part(4)},
		"challenge":  {Exported: part(2), KeyDigest: part(3), Sealed: part(9)},
		"shifted":    {Exported: part(2)[:31], KeyDigest: append(part(2)[:1], part(3)...), Sealed: part(4)},
	} {
		if err := tpm.Verify(secret, b, proof); !errors.Is(err, tpm.ErrProof) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := tpm.Verify(part(9), good, proof); !errors.Is(err, tpm.ErrProof) {
		t.Errorf("secret: %v", err)
	}
}

// FuzzParseEndorsementKey: what a box on the segment sends neither panics nor is taken for another key.
func FuzzParseEndorsementKey(f *testing.F) {
	f.Add(endorsement(nil))
	f.Add([]byte{0, 1, 0, 11, 0, 3, 0, 0xb2})
	f.Add([]byte{0, 0x23, 0, 11})
	f.Fuzz(func(t *testing.T, public []byte) {
		k, err := tpm.ParseEndorsementKey(public)
		if err != nil {
			return
		}
		if again, err := tpm.ParseEndorsementKey(k.Bytes()); err != nil || again.Digest() != k.Digest() {
			t.Errorf("%x is not the same after a round trip: %v", public, err)
		}
	})
}

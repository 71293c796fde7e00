package tpm

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
)

// ExporterLabel names the exporter (RFC 8446, 7.5; RFC 5705) whose output ties a proof to one connection.
const ExporterLabel = "EXPORTER-ingot-activate-credential"

const exporterSize = 32

// ErrProof is returned when a proof is not by the secret, or not for this connection, key and challenge.
var ErrProof = errors.New("the proof of credential activation does not verify")

// Challenge is a secret that only the TPM with the endorsement key can release.
type Challenge struct {
	// Secret stays with the controller.
	Secret []byte
	// Blob and Seed go to the TPM: a TPMS_ID_OBJECT and an encrypted seed, each without its size.
	Blob, Seed []byte
}

// NewChallenge draws a secret and encrypts it to the endorsement key and the name of the attestation key.
func NewChallenge(ek *EndorsementKey, attestationKey []byte) (Challenge, error) {
	name, err := ParseAttestationKey(attestationKey)
	if err != nil {
		return Challenge{}, err
	}
	c := Challenge{Secret: make([]byte, SecretSize)}
	rand.Read(c.Secret) //nolint:errcheck // crypto/rand.Read never fails since Go 1.24
	c.Blob, c.Seed, err = ek.credential(name, c.Secret)
	return c, err
}

// Binding is what a proof is about.
type Binding struct {
	// Exported is the exported keying material of the connection that carries the proof.
	Exported []byte
	// KeyDigest is the SHA-256 of the key to certify (SubjectPublicKeyInfo).
	KeyDigest []byte
	// Sealed is the challenge as the controller has sealed it.
	Sealed []byte
}

// Exported derives the keying material of a connection. It must be TLS 1.3 with its handshake complete.
func Exported(cs tls.ConnectionState) ([]byte, error) {
	if !cs.HandshakeComplete || cs.Version < tls.VersionTLS13 {
		return nil, errors.New("export keying material: need a completed TLS 1.3 handshake")
	}
	out, err := cs.ExportKeyingMaterial(ExporterLabel, nil, exporterSize)
	if err != nil {
		return nil, fmt.Errorf("export keying material: %w", err)
	}
	return out, nil
}

// Proof is the HMAC-SHA256 by the activated secret over the binding. Each part has a fixed length.
func Proof(secret []byte, b Binding) []byte {
	sealed := sha256.Sum256(b.Sealed)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(ExporterLabel + "\x00"))
	mac.Write(b.Exported)
	mac.Write(b.KeyDigest)
	mac.Write(sealed[:])
	return mac.Sum(nil)
}

// Verify checks a proof in constant time. Its error is ErrProof.
func Verify(secret []byte, b Binding, proof []byte) error {
	if len(secret) != SecretSize || len(b.Exported) != exporterSize || len(b.KeyDigest) != sha256.Size ||
		!hmac.Equal(Proof(secret, b), proof) {
		return ErrProof
	}
	return nil
}

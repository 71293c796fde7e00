package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
)

const (
	// ReenrollLabel names the exporter (RFC 8446, 7.5; RFC 5705) whose output ties a proof to one connection.
	ReenrollLabel = "EXPORTER-ingot-reenroll"

	exporterSize = 32
)

// ErrReenrollProof is returned when a re-enrolment proof is not by the key, or not for this connection and new key.
var ErrReenrollProof = errors.New("re-enrolment proof does not verify")

// ReenrollMessage is what a re-enrolling agent signs with its old key, and what the controller derives by itself: 32
// bytes of exported keying material of this connection, then PublicKeyHash of the new key. A recorded proof is valid
// neither on another connection nor for another key. The connection must be TLS 1.3 with its handshake complete.
func ReenrollMessage(cs tls.ConnectionState, newKey crypto.PublicKey) ([]byte, error) {
	if !cs.HandshakeComplete || cs.Version < tls.VersionTLS13 {
		return nil, errors.New("derive re-enrolment message: need a completed TLS 1.3 handshake")
	}
	exported, err := cs.ExportKeyingMaterial(ReenrollLabel, nil, exporterSize)
	if err != nil {
		return nil, fmt.Errorf("derive re-enrolment message: %w", err)
	}
	hash, err := PublicKeyHash(newKey)
	if err != nil {
		return nil, fmt.Errorf("derive re-enrolment message: %w", err)
	}
	return append(exported, hash[:]...), nil
}

// SignReenroll signs a ReenrollMessage with the old key (ECDSA, ASN.1, over reenrollDigest).
func SignReenroll(oldKey *ecdsa.PrivateKey, message []byte) ([]byte, error) {
	sig, err := ecdsa.SignASN1(rand.Reader, oldKey, reenrollDigest(message))
	if err != nil {
		return nil, fmt.Errorf("sign re-enrolment proof: %w", err)
	}
	return sig, nil
}

// VerifyReenroll checks a proof against the public key of the old certificate. Its error wraps ErrReenrollProof.
func VerifyReenroll(oldKey crypto.PublicKey, message, sig []byte) error {
	key, ok := oldKey.(*ecdsa.PublicKey)
	if !ok {
		return fmt.Errorf("%w: old key is %T, want ECDSA", ErrReenrollProof, oldKey)
	}
	if !ecdsa.VerifyASN1(key, reenrollDigest(message), sig) {
		return ErrReenrollProof
	}
	return nil
}

// reenrollDigest puts the label before the message, since the old key also signs CSRs and TLS handshakes.
func reenrollDigest(message []byte) []byte {
	sum := sha256.Sum256(append([]byte(ReenrollLabel+"\x00"), message...))
	return sum[:]
}

package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
)

// NewKey makes an ECDSA P-256 key, the only kind that agents and the CA use.
func NewKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate P-256 key: %w", err)
	}
	return key, nil
}

// Fingerprint is the SHA-256 of a certificate's DER form in lower-case hex, 64 characters.
func Fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// PublicKeyHash is the SHA-256 of a public key's SubjectPublicKeyInfo in DER (RFC 5280, 4.1.2.7). Two keys
// are the same exactly when these are.
func PublicKeyHash(pub crypto.PublicKey) ([sha256.Size]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("encode public key: %w", err)
	}
	return sha256.Sum256(der), nil
}

// CheckKey refuses a public key that is not ECDSA P-256.
func CheckKey(pub crypto.PublicKey) error {
	key, ok := pub.(*ecdsa.PublicKey)
	if !ok {
		return fmt.Errorf("public key is %T, want ECDSA P-256", pub)
	}
	if key.Curve != elliptic.P256() {
		return errors.New("public key is ECDSA on another curve, want P-256")
	}
	return nil
}

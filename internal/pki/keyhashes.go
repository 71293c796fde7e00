package pki

import (
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
)

// Certificates reads all certificates of a PEM text, which holds nothing else and at least one.
func Certificates(text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("a block is %.40q, not CERTIFICATE", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse certificate: %w", err)
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, errors.New("no certificate in PEM")
	}
	return out, nil
}

// KeyHashes are "sha256:" and the digest in hex of the SubjectPublicKeyInfo of each certificate of a PEM text, in its
// order: kubeadm pins the CA of a cluster so.
func KeyHashes(text []byte) ([]string, error) {
	certs, err := Certificates(text)
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(certs))
	for _, c := range certs {
		sum, err := PublicKeyHash(c.PublicKey)
		if err != nil {
			return nil, err
		}
		out = append(out, "sha256:"+hex.EncodeToString(sum[:]))
	}
	return out, nil
}

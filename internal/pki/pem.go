package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

const (
	pemKey  = "PRIVATE KEY"
	pemCert = "CERTIFICATE"

	keyMode  fs.FileMode = 0o600
	certMode fs.FileMode = 0o644
)

// EncodeKey writes a private key as PKCS #8 in PEM.
func EncodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}), nil
}

// DecodeKey reads what EncodeKey wrote.
func DecodeKey(data []byte) (crypto.Signer, error) {
	block, rest := pem.Decode(data)
	if block == nil || block.Type != pemKey {
		return nil, errors.New("decode private key: no PEM block of type " + pemKey)
	}
	if len(rest) > 0 {
		return nil, errors.New("decode private key: more data behind the key")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("decode private key: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("decode private key: %T cannot sign", key)
	}
	return signer, nil
}

// EncodeCerts writes certificates in PEM, in the order given.
func EncodeCerts(certs ...*x509.Certificate) []byte {
	var out []byte
	for _, c := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: pemCert, Bytes: c.Raw})...)
	}
	return out
}

// DecodeCerts reads one or more certificates in PEM.
func DecodeCerts(data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		if block.Type != pemCert {
			return nil, fmt.Errorf("decode certificates: PEM block of type %q among them", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("decode certificate %d: %w", len(certs)+1, err)
		}
		certs, data = append(certs, cert), rest
	}
	if len(certs) == 0 {
		return nil, errors.New("decode certificates: no PEM block of type " + pemCert)
	}
	return certs, nil
}

// StoreKey replaces the file at path, mode 0600, by the key. It is durable when StoreKey returns.
func StoreKey(path string, key crypto.Signer) error {
	data, err := EncodeKey(key)
	if err != nil {
		return err
	}
	return WriteFile(path, data, keyMode)
}

// LoadKey reads an ECDSA P-256 key. A file that is not there is fs.ErrNotExist.
func LoadKey(path string) (*ecdsa.PrivateKey, error) {
	signer, err := LoadSigner(path)
	if err != nil {
		return nil, err
	}
	key, ok := signer.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("read %s: key is %T, want ECDSA P-256", path, signer)
	}
	if err := CheckKey(key.Public()); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return key, nil
}

// LoadSigner reads a private key of any kind.
func LoadSigner(path string) (crypto.Signer, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read private key: %w", err)
	}
	signer, err := DecodeKey(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return signer, nil
}

// StoreCerts replaces the file at path, mode 0644, by the certificates. They are durable when it returns.
func StoreCerts(path string, certs ...*x509.Certificate) error {
	return WriteFile(path, EncodeCerts(certs...), certMode)
}

// LoadCerts reads one or more certificates. A file that is not there is fs.ErrNotExist.
func LoadCerts(path string) ([]*x509.Certificate, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	certs, err := DecodeCerts(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return certs, nil
}

package erasure

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Usage is what the signer's certificate is for: signing documents (RFC 9336, id-kp-documentSigning).
var Usage = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 36}

const (
	algorithm = jose.ES256
	mediaType = "ingot-erasure-certificate+json"
	// maxDocument bounds the parsed document, in bytes; a statement of a hundred disks has about 60 kB.
	maxDocument = 1 << 20
	maxChain    = 4
)

// Sign makes the certificate: a JWS with the statement as its payload (RFC 7515, flattened JSON) and the signer's
// chain, root included, in its header x5c. The chain's first certificate is of the key, a P-256 one.
func Sign(s Statement, key crypto.Signer, chain []*x509.Certificate) ([]byte, error) {
	payload, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("sign erasure certificate: %w", err)
	}
	x5c := make([]string, len(chain))
	for i, c := range chain {
		x5c[i] = base64.StdEncoding.EncodeToString(c.Raw)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key},
		(&jose.SignerOptions{}).WithType(mediaType).WithHeader("x5c", x5c))
	if err != nil {
		return nil, fmt.Errorf("sign erasure certificate: %w", err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return nil, fmt.Errorf("sign erasure certificate: %w", err)
	}
	return []byte(signed.FullSerialize()), nil
}

// Errors of Verify.
var (
	// ErrMalformed: it is no erasure certificate at all.
	ErrMalformed = errors.New("not an erasure certificate")
	// ErrUntrusted: it was not signed by a controller of the installation whose root is trusted.
	ErrUntrusted = errors.New("not signed by a controller of this installation")
	// ErrAltered: the statement is not the one that was signed.
	ErrAltered = errors.New("the statement or its signature was altered")
)

// Trust is the root certificate from which a signer must come. One of the two is enough.
type Trust struct {
	Roots *x509.CertPool
	// RootHash is the SHA-256 of the root in DER; the certificate carries the root itself.
	RootHash *[sha256.Size]byte
}

// Verify returns the statement of a certificate, once its signature and its signer are proven. The signer's key lives
// for one signature, so that its chain is judged at the time of that signature and not at today's.
func Verify(document []byte, trust Trust) (Statement, error) {
	var s Statement
	if len(document) > maxDocument {
		return s, fmt.Errorf("%w: it has more than %d bytes", ErrMalformed, maxDocument)
	}
	signed, chain, err := parse(document)
	if err != nil {
		return s, err
	}
	roots, err := trust.pool(chain)
	if err != nil {
		return s, err
	}
	leaf, between := chain[0], x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: leaf.NotBefore,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return s, fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	if !forDocuments(leaf) {
		return s, fmt.Errorf("%w: its key is not for signing documents", ErrUntrusted)
	}
	payload, err := signed.Verify(leaf.PublicKey)
	if err != nil {
		return s, fmt.Errorf("%w: %w", ErrAltered, err)
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return Statement{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return s, s.check(leaf)
}

// parse also refuses every algorithm but one, and headers that are not signed.
func parse(document []byte) (*jose.JSONWebSignature, []*x509.Certificate, error) {
	signed, err := jose.ParseSigned(string(bytes.TrimSpace(document)),
		[]jose.SignatureAlgorithm{algorithm})
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if len(signed.Signatures) != 1 {
		return nil, nil, fmt.Errorf("%w: it has %d signatures", ErrMalformed, len(signed.Signatures))
	}
	header := signed.Signatures[0].Protected
	if header.Algorithm != string(algorithm) || header.ExtraHeaders[jose.HeaderType] != mediaType {
		return nil, nil, fmt.Errorf("%w: it is of another type, or signed with another algorithm than %s", ErrMalformed,
			algorithm)
	}
	chain, err := chainOf(document)
	return signed, chain, err
}

// chainOf reads x5c, which the library returns only with a verdict of its own.
func chainOf(document []byte) ([]*x509.Certificate, error) {
	var outer struct{ Protected string }
	var inner struct{ X5C [][]byte }
	err := json.Unmarshal(document, &outer)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	header, err := base64.RawURLEncoding.DecodeString(outer.Protected)
	if err == nil {
		err = json.Unmarshal(header, &inner)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if n := len(inner.X5C); n == 0 || n > maxChain {
		return nil, fmt.Errorf("%w: it carries %d certificates of its signer", ErrMalformed, n)
	}
	chain := make([]*x509.Certificate, len(inner.X5C))
	for i, der := range inner.X5C {
		if chain[i], err = x509.ParseCertificate(der); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	}
	return chain, nil
}

func (t Trust) pool(chain []*x509.Certificate) (*x509.CertPool, error) {
	if t.Roots != nil {
		return t.Roots, nil
	}
	pool := x509.NewCertPool()
	if t.RootHash == nil {
		return pool, nil
	}
	// Behind the leaf only: one that happened to be pinned must not vouch for itself.
	for _, c := range chain[1:] {
		if sha256.Sum256(c.Raw) == *t.RootHash {
			pool.AddCert(c)
			return pool, nil
		}
	}
	return nil, fmt.Errorf("%w: it carries another root", ErrUntrusted)
}

func forDocuments(leaf *x509.Certificate) bool {
	for _, u := range leaf.UnknownExtKeyUsage {
		if u.Equal(Usage) {
			return true
		}
	}
	return false
}

// check holds the statement against the life of its signer's key.
func (s Statement) check(leaf *x509.Certificate) error {
	switch {
	case s.Version != Version:
		return fmt.Errorf("%w: its form is %d, and this program knows %d: take a newer ingot", ErrMalformed, s.Version,
			Version)
	case len(s.Disks) == 0:
		return fmt.Errorf("%w: it names no disk", ErrMalformed)
	case s.IssuedAt.Before(leaf.NotBefore) || s.IssuedAt.After(leaf.NotAfter):
		return fmt.Errorf("%w: issued at %s, which is not when its signer's key was in use", ErrUntrusted,
			s.IssuedAt.Format(time.RFC3339))
	}
	return nil
}

// Seal is how a certificate is signed. It is not verified: see Verify.
type Seal struct {
	Algorithm string
	// Signature is in base64url, as in the document.
	Signature    string
	Signer, Root *x509.Certificate
}

// SignerSHA256 is the hash of the signer's certificate.
func (s Seal) SignerSHA256() [sha256.Size]byte { return sha256.Sum256(s.Signer.Raw) }

// RootSHA256 is the hash of the root's certificate.
func (s Seal) RootSHA256() [sha256.Size]byte { return sha256.Sum256(s.Root.Raw) }

// SealOf reads how a document is signed.
func SealOf(document []byte) (Seal, error) {
	signed, chain, err := parse(document)
	if err != nil {
		return Seal{}, err
	}
	return Seal{
		Algorithm: string(algorithm), Signature: base64.RawURLEncoding.EncodeToString(signed.Signatures[0].Signature),
		Signer: chain[0], Root: chain[len(chain)-1],
	}, nil
}

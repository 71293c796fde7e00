package state

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ingot-metal/ingot/internal/pki"
)

// Names of the files of an identity, in the state directory.
const (
	fileIdentity    = "identity"
	fileCredentials = "credentials.pem" // key and chain in one file, so that they change together
	fileTrust       = "trust.pem"
	fileEnrollKey   = "enroll.key"
	dirNext         = "next"
	fileNextKey     = "key.pem"
)

// ErrNotEnrolled is returned when the directory holds no identity.
var ErrNotEnrolled = errors.New("not enrolled")

// Identity is what enrolment said about this agent.
type Identity struct {
	AgentID         string   `json:"agent_id"`
	MachineID       string   `json:"machine_id,omitempty"`
	Site            string   `json:"site,omitempty"`
	Role            string   `json:"role"`
	Region          string   `json:"region,omitempty"`
	Provider        string   `json:"provider,omitempty"`
	FleetAddresses  []string `json:"fleet_addresses"`
	EnrollAddresses []string `json:"enroll_addresses"`
	// GrantKeys are Ed25519 public keys. The ones in a Welcome replace them.
	GrantKeys [][]byte `json:"grant_keys"`
	// TokenIssuedAt is a controller time that has passed.
	TokenIssuedAt time.Time `json:"token_issued_at"`
}

// Credentials are a key and the chain that certifies it, leaf first.
type Credentials struct {
	Key   *ecdsa.PrivateKey
	Chain []*x509.Certificate
}

// Leaf is the agent's own certificate.
func (c Credentials) Leaf() *x509.Certificate { return c.Chain[0] }

// TLS returns them in the form that crypto/tls takes.
func (c Credentials) TLS() tls.Certificate {
	out := tls.Certificate{PrivateKey: c.Key, Leaf: c.Chain[0]}
	for _, cert := range c.Chain {
		out.Certificate = append(out.Certificate, cert.Raw)
	}
	return out
}

// Dir holds the files of an identity. All of its writes are durable when they return, and a crash between any
// two leaves an identity that works.
type Dir string

// Enrolled reports whether the directory holds a complete identity.
func (d Dir) Enrolled() (bool, error) {
	_, err := d.Identity()
	if errors.Is(err, ErrNotEnrolled) {
		return false, nil
	}
	return err == nil, err
}

// Identity reads what enrolment said. It is written last, so its presence means that all is there.
func (d Dir) Identity() (Identity, error) {
	var id Identity
	b, err := os.ReadFile(d.path(fileIdentity))
	if errors.Is(err, fs.ErrNotExist) {
		return id, fmt.Errorf("read identity: %w", ErrNotEnrolled)
	}
	if err != nil {
		return id, fmt.Errorf("read identity: %w", err)
	}
	if err := json.Unmarshal(b, &id); err != nil {
		return id, fmt.Errorf("read %s: %w", fileIdentity, err)
	}
	return id, nil
}

// SaveIdentity replaces it.
func (d Dir) SaveIdentity(id Identity) error {
	b, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return fmt.Errorf("encode identity: %w", err)
	}
	return pki.WriteFile(d.path(fileIdentity), append(b, '\n'), 0o644)
}

// EnrollKey returns the key to enrol with, made and durable before its first use. It stays until the identity is
// stored, so that a repeat after a lost answer brings the same key.
func (d Dir) EnrollKey() (*ecdsa.PrivateKey, error) { return loadOrMakeKey(d.path(fileEnrollKey)) }

// SaveEnrolled stores everything that enrolment has given, and then drops the enrolment key.
func (d Dir) SaveEnrolled(id Identity, c Credentials, trust []byte) error {
	if err := d.saveCredentials(fileCredentials, c); err != nil {
		return err
	}
	if err := d.SaveTrust(trust); err != nil {
		return err
	}
	if err := d.SaveIdentity(id); err != nil {
		return err
	}
	return d.DropEnrollKey()
}

// DropEnrollKey forgets the key of an enrolment that is complete.
func (d Dir) DropEnrollKey() error { return d.remove(fileEnrollKey) }

// Credentials reads the ones in use.
func (d Dir) Credentials() (Credentials, error) { return d.loadCredentials(fileCredentials) }

// ReplaceCredentials is for re-enrolment, where the ones before have expired. A pending rotation ends with it.
func (d Dir) ReplaceCredentials(c Credentials) error {
	if err := d.saveCredentials(fileCredentials, c); err != nil {
		return err
	}
	return d.DropNext()
}

// Trust reads the roots to trust.
func (d Dir) Trust() (*x509.CertPool, error) {
	certs, err := pki.LoadCerts(d.path(fileTrust))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool, nil
}

// SaveTrust replaces the roots. What holds no certificate is refused: it would lock the agent out.
func (d Dir) SaveTrust(pemBytes []byte) error {
	certs, err := pki.DecodeCerts(pemBytes)
	if err != nil {
		return fmt.Errorf("check trust bundle: %w", err)
	}
	old, err := os.ReadFile(d.path(fileTrust))
	fresh := pki.EncodeCerts(certs...)
	if err == nil && string(old) == string(fresh) {
		return nil
	}
	return pki.StoreCerts(d.path(fileTrust), certs...)
}

// NextKey returns the key of a rotation that is under way, or begins one.
func (d Dir) NextKey() (*ecdsa.PrivateKey, error) {
	if err := os.MkdirAll(d.path(dirNext), 0o700); err != nil {
		return nil, fmt.Errorf("make directory of next certificate: %w", err)
	}
	if err := pki.SyncDir(string(d)); err != nil {
		return nil, err
	}
	return loadOrMakeKey(d.path(dirNext, fileNextKey))
}

// SaveNext stores the next credentials beside the ones in use.
func (d Dir) SaveNext(c Credentials) error {
	return d.saveCredentials(filepath.Join(dirNext, fileCredentials), c)
}

// Next reads the next credentials; found is false when there are none.
func (d Dir) Next() (c Credentials, found bool, err error) {
	c, err = d.loadCredentials(filepath.Join(dirNext, fileCredentials))
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, nil
	}
	return c, err == nil, err
}

// Promote makes the next credentials the ones in use, in one rename.
func (d Dir) Promote() error {
	if err := os.Rename(d.path(dirNext, fileCredentials), d.path(fileCredentials)); err != nil {
		return fmt.Errorf("promote next certificate: %w", err)
	}
	if err := pki.SyncDir(string(d)); err != nil {
		return err
	}
	return d.DropNext()
}

// DropNext forgets a rotation.
func (d Dir) DropNext() error {
	if err := os.RemoveAll(d.path(dirNext)); err != nil {
		return fmt.Errorf("drop next certificate: %w", err)
	}
	return pki.SyncDir(string(d))
}

func (d Dir) saveCredentials(name string, c Credentials) error {
	key, err := pki.EncodeKey(c.Key)
	if err != nil {
		return err
	}
	return pki.WriteFile(d.path(name), append(key, pki.EncodeCerts(c.Chain...)...), 0o600)
}

func (d Dir) loadCredentials(name string) (Credentials, error) {
	b, err := os.ReadFile(d.path(name))
	if err != nil {
		return Credentials{}, fmt.Errorf("read credentials: %w", err)
	}
	c, err := parseCredentials(b)
	if err != nil {
		return Credentials{}, fmt.Errorf("read %s: %w", name, err)
	}
	return c, nil
}

func parseCredentials(b []byte) (Credentials, error) {
	block, rest := pem.Decode(b)
	if block == nil {
		return Credentials{}, errors.New("no private key")
	}
	signer, err := pki.DecodeKey(pem.EncodeToMemory(block))
	if err != nil {
		return Credentials{}, err
	}
	key, ok := signer.(*ecdsa.PrivateKey)
	if !ok {
		return Credentials{}, fmt.Errorf("key is %T, want ECDSA", signer)
	}
	chain, err := pki.DecodeCerts(rest)
	if err != nil {
		return Credentials{}, err
	}
	if !key.PublicKey.Equal(chain[0].PublicKey) {
		return Credentials{}, errors.New("certificate is not over this key")
	}
	return Credentials{Key: key, Chain: chain}, nil
}

// NewCredentials checks that the chain in PEM certifies the key.
func NewCredentials(key *ecdsa.PrivateKey, chainPEM []byte) (Credentials, error) {
	chain, err := pki.DecodeCerts(chainPEM)
	if err != nil {
		return Credentials{}, err
	}
	if !key.PublicKey.Equal(chain[0].PublicKey) {
		return Credentials{}, errors.New("the certificate received is not over the key sent")
	}
	return Credentials{Key: key, Chain: chain}, nil
}

func loadOrMakeKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := pki.LoadKey(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if key, err = pki.NewKey(); err != nil {
		return nil, err
	}
	return key, pki.StoreKey(path, key)
}

func (d Dir) remove(name string) error {
	if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return pki.SyncDir(string(d))
}

func (d Dir) path(parts ...string) string {
	return filepath.Join(append([]string{string(d)}, parts...)...)
}

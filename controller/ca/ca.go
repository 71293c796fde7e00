package ca

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/smallstep/certificates/cas/apiv1"

	"github.com/ingot-metal/ingot/internal/clock"
)

const (
	// Backdate is how far NotBefore lies before the moment of signing, so that an agent whose clock is behind can
	// use its certificate at once.
	Backdate = 2 * time.Hour

	// DefaultAgentLifetime is counted from the moment of signing.
	DefaultAgentLifetime = 7 * 24 * time.Hour

	// DefaultServerLifetime is counted from the moment of signing. A third of it is left when a certificate is
	// replaced, so an agent's clock may be ten days ahead.
	DefaultServerLifetime = 30 * 24 * time.Hour
)

// ErrIssuerExpired is returned when the intermediate has expired and can no longer sign.
var ErrIssuerExpired = errors.New("intermediate certificate has expired")

// Issued is a certificate of an agent.
type Issued struct {
	LeafDER     []byte
	ChainPEM    []byte // leaf, then intermediate; not the root
	Fingerprint string // SHA-256 of LeafDER, lower-case hex
	Serial      string // decimal
	Generation  int
	NotBefore   time.Time
	NotAfter    time.Time
}

// Config has the directory of the keys.
type Config struct {
	// Dir is made if it is absent; its parent must exist. Required.
	Dir string
	// From has the files of MakeFiles, of which Dir gets its first generation; empty means that New makes that itself.
	From string
	// Clock times the controller's own certificates. Nil means the real one.
	Clock clock.Clock
	// ServerLifetime of the listeners' certificates; 0 means DefaultServerLifetime.
	ServerLifetime time.Duration
}

// Authority issues certificates with keys on local disk. It is safe for concurrent use.
type Authority struct {
	dir            string
	clock          clock.Clock
	serverLifetime time.Duration
	signed         atomic.Uint64
	signedServer   atomic.Uint64

	mu sync.RWMutex
	// all are the generations, oldest first; changed counts what Follow has changed.
	all     []*generation
	changed uint64
}

// New opens the directory, making its keys at the first start, and starts the authority. It needs nothing to
// be closed.
func New(cfg Config) (*Authority, error) {
	if cfg.Dir == "" {
		return nil, errors.New("open CA: no directory configured")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real()
	}
	if cfg.ServerLifetime == 0 {
		cfg.ServerLifetime = DefaultServerLifetime
	}
	all, err := openGenerations(cfg.Dir, cfg.From, cfg.Clock.Now())
	if err != nil {
		return nil, fmt.Errorf("open CA: %w", err)
	}
	return &Authority{dir: cfg.Dir, all: all, clock: cfg.Clock, serverLifetime: cfg.ServerLifetime}, nil
}

// GrantKey signs grants; its public half goes to every agent.
func (a *Authority) GrantKey() ed25519.PrivateKey { return a.generations()[0].keys.grant }

// Signatures counts the agent certificates signed since the start.
func (a *Authority) Signatures() uint64 { return a.signed.Load() }

// ServerSignatures counts the server certificates signed since the start.
func (a *Authority) ServerSignatures() uint64 { return a.signedServer.Load() }

// Expiries are when the certificates end of the CA that signs, by name.
func (a *Authority) Expiries() map[string]time.Time {
	keys := a.signing().keys
	return map[string]time.Time{"root": keys.root.NotAfter, "intermediate": keys.intermediate.NotAfter}
}

// sign signs want for the request's public key, after the request has proven that key. Nothing else of the request
// counts.
func (g *generation) sign(
	ctx context.Context, csr *x509.CertificateRequest, want *x509.Certificate,
) (*x509.Certificate, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the request does not prove its key: %w", err)
	}
	if err := clampTimes(want, g.keys.intermediate); err != nil {
		return nil, err
	}
	want.PublicKey, want.PublicKeyAlgorithm = csr.PublicKey, csr.PublicKeyAlgorithm
	made, err := g.step.CreateCertificate(&apiv1.CreateCertificateRequest{
		Template: want, CSR: csr, Lifetime: want.NotAfter.Sub(want.NotBefore),
	})
	if err != nil {
		return nil, err
	}
	return made.Certificate, nil
}

// clampTimes keeps a leaf inside the life of its issuer, at both ends: a chain with a wider leaf verifies no
// longer than its issuer anyway, and would hide from the agent when to renew.
func clampTimes(leaf, issuer *x509.Certificate) error {
	if leaf.NotAfter.After(issuer.NotAfter) {
		leaf.NotAfter = issuer.NotAfter
	}
	if leaf.NotBefore.Before(issuer.NotBefore) {
		leaf.NotBefore = issuer.NotBefore
	}
	if !leaf.NotBefore.Add(Backdate).Before(leaf.NotAfter) {
		return fmt.Errorf("%w: at %s", ErrIssuerExpired, issuer.NotAfter.Format(time.RFC3339))
	}
	return nil
}

package ca

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/smallstep/certificates/cas/apiv1"
	"github.com/smallstep/certificates/cas/softcas"

	"github.com/ingot-metal/ingot/internal/pki"
)

// Settle is how long after its making a generation signs nothing, so that every controller knows it before an agent
// shows a certificate of it.
const Settle = 5 * time.Second

// ErrOther is returned when a generation is not the one of that number here.
var ErrOther = errors.New("the CA's directory has another generation of this number")

// generation is one CA of the installation: the first, or one that has taken its place.
type generation struct {
	number int
	keys   *keyring
	step   *softcas.SoftCAS
	// created is zero for one that was read from the disk and not confirmed yet.
	created, withdrawn time.Time
	// vouched is until when listeners also prove themselves to who trusts its root alone, once it is withdrawn.
	vouched time.Time
}

func newGeneration(number int, keys *keyring) (*generation, error) {
	step, err := softcas.New(context.Background(), apiv1.Options{
		CertificateChain: []*x509.Certificate{keys.intermediate}, Signer: keys.signer,
	})
	if err != nil {
		return nil, fmt.Errorf("start CA: %w", err)
	}
	return &generation{number: number, keys: keys, step: step}, nil
}

func (g *generation) inForce() bool { return g.withdrawn.IsZero() }

// generations are all, oldest first. None of them changes.
func (a *Authority) generations() []*generation {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.all
}

// signing is the generation that signs now.
func (a *Authority) signing() *generation { return signingAt(a.generations(), a.clock.Now()) }

// signingAt is the newest that has settled; the oldest in force where none has.
func signingAt(all []*generation, now time.Time) *generation {
	for _, g := range slices.Backward(all) {
		if g.inForce() && (g.created.IsZero() || !now.Before(g.created.Add(Settle))) {
			return g
		}
	}
	for _, g := range all {
		if g.inForce() {
			return g
		}
	}
	return all[len(all)-1]
}

// signer names what server certificates are made with: another value means that they should be made anew.
type signer struct {
	generation int
	changed    uint64
}

func (a *Authority) signer() signer {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return signer{signingAt(a.all, a.clock.Now()).number, a.changed}
}

// serverChain is what a listener shows behind the leaf. Clients that build one path take the first issuer that fits:
// while older roots are in force, and so in every client's hands, those come first.
func serverChain(all []*generation, by *generation, now time.Time) []*x509.Certificate {
	var old, roots []*x509.Certificate
	overlap := false
	for _, g := range all {
		if g == by || g.number > by.number || !g.inForce() && !now.Before(g.vouched) {
			continue
		}
		for _, c := range by.keys.cross {
			if bytes.Equal(c.AuthorityKeyId, g.keys.root.SubjectKeyId) {
				old, roots = append(old, c), append(roots, g.keys.root)
				overlap = overlap || g.inForce()
			}
		}
	}
	slices.Reverse(old) // the newest first
	chain := append([]*x509.Certificate{by.keys.intermediate}, old...)
	if overlap {
		chain = append(old, by.keys.intermediate)
	}
	return append(append(chain, by.keys.root), roots...)
}

// rootsInForce are newest first.
func (a *Authority) rootsInForce() (out []*x509.Certificate) {
	for _, g := range slices.Backward(a.generations()) {
		if g.inForce() {
			out = append(out, g.keys.root)
		}
	}
	return out
}

// Roots is the pool that agents' certificates verify against.
func (a *Authority) Roots() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range a.rootsInForce() {
		pool.AddCert(c)
	}
	return pool
}

// RootPEM are the roots in force in PEM, the newest first, for agents to store.
func (a *Authority) RootPEM() []byte { return pki.EncodeCerts(a.rootsInForce()...) }

// RootHash is the SHA-256 of the root that signs, in DER, as bootstrap tokens pin it.
func (a *Authority) RootHash() [sha256.Size]byte { return sha256.Sum256(a.signing().keys.root.Raw) }

// Generation is the number of the generation that signs now.
func (a *Authority) Generation() int { return a.signing().number }

// Generations are the numbers of those in force, oldest first.
func (a *Authority) Generations() (out []int) {
	for _, g := range a.generations() {
		if g.inForce() {
			out = append(out, g.number)
		}
	}
	return out
}

// Changed counts the changes that Follow has made.
func (a *Authority) Changed() uint64 {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.changed
}

// Of is the generation that signed a certificate, and whether it is in force. What none has signed counts as the
// first's, whose intermediate may have been made anew.
func (a *Authority) Of(cert *x509.Certificate) (number int, inForce bool) {
	all := a.generations()
	for _, g := range all {
		if bytes.Equal(cert.AuthorityKeyId, g.keys.intermediate.SubjectKeyId) {
			return g.number, g.inForce()
		}
	}
	return all[0].number, all[0].inForce()
}

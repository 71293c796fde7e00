package ca

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/pki"
)

const grace = 90 * 24 * time.Hour

// rotated is a CA after the given steps, and the records that a database would have.
type rotated struct {
	t       *testing.T
	a       *Authority
	clock   *clock.Fake
	records []Record
}

func newRotated(t *testing.T) *rotated {
	a, fake := newCA(t)
	return &rotated{t: t, a: a, clock: fake}
}

func (r *rotated) rotate() {
	r.t.Helper()
	next, err := r.a.Next(r.clock.Now())
	if err != nil {
		r.t.Fatal(err)
	}
	if len(r.records) == 0 {
		if r.records, err = r.a.Records(); err != nil {
			r.t.Fatal(err)
		}
		r.records[0].Created = r.clock.Now()
	}
	next.Created = r.clock.Now()
	r.records = append(r.records, next)
	r.follow(r.a)
	r.clock.Advance(Settle)
}

func (r *rotated) withdraw(i int) {
	r.records[i].Withdrawn, r.records[i].Vouched = r.clock.Now(), r.clock.Now().Add(grace)
	r.follow(r.a)
}

func (r *rotated) follow(a *Authority) {
	r.t.Helper()
	if _, err := a.Follow(r.records); err != nil {
		r.t.Fatal(err)
	}
}

// pool trusts the roots of these generations alone.
func (r *rotated) pool(generations ...int) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, n := range generations {
		pool.AddCert(r.a.generations()[n-1].keys.root)
	}
	return pool
}

// proves returns nil when a client that trusts the pool verifies a listener.
func (r *rotated) proves(pool *x509.CertPool) error {
	r.t.Helper()
	cert, err := r.a.ServerCert(r.t.Context(), []string{"controller.example"}, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	rest := x509.NewCertPool()
	for _, der := range cert.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			r.t.Fatal(err)
		}
		rest.AddCert(c)
	}
	_, err = cert.Leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: rest, DNSName: "controller.example",
		CurrentTime: r.clock.Now()})
	return err
}

func TestListenersProveThemselvesToEverybody(t *testing.T) {
	t.Parallel()
	r := newRotated(t)
	check := func(when string, want map[int]bool) {
		t.Helper()
		for n, ok := range want {
			if err := r.proves(r.pool(n)); (err == nil) != ok {
				t.Errorf("%s, who trusts root %d: %v", when, n, err)
			}
		}
	}
	r.rotate()
	check("in the overlap", map[int]bool{1: true, 2: true})
	r.withdraw(0)
	check("after the withdrawal", map[int]bool{1: true, 2: true})
	r.rotate()
	check("in the next overlap", map[int]bool{1: true, 2: true, 3: true})
	r.withdraw(1)
	r.clock.Advance(grace)
	check("after the grace", map[int]bool{1: false, 2: false, 3: true})
}

func TestAPinnedRootHoldsOverARotation(t *testing.T) {
	t.Parallel()
	r := newRotated(t)
	before := r.a.RootHash()
	certs, err := NewServerCerts(t.Context(), r.a, []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	server := &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: certs.GetCertificate, Time: r.clock.Now}
	r.rotate()
	after := r.a.RootHash()
	if after == before {
		t.Fatal("the root that signs is still the old one")
	}
	for name, hash := range map[string][sha256.Size]byte{"old": before, "new": after} {
		if s, c := handshake(t, server, pki.TLSConfigPinned(hash, "localhost", r.clock.Now)); s != nil || c != nil {
			t.Errorf("who pins the %s root: %v, %v", name, s, c)
		}
	}
}

func TestAgentsOfAWithdrawnGenerationAreStrangers(t *testing.T) {
	t.Parallel()
	r := newRotated(t)
	old := sign(t, r.a, ids.New(ids.Agent), 0, r.clock.Now())
	r.rotate()
	fresh := sign(t, r.a, ids.New(ids.Agent), 0, r.clock.Now())
	verify := func(leaf *x509.Certificate) error {
		rest := x509.NewCertPool()
		for _, g := range r.a.generations() {
			rest.AddCert(g.keys.intermediate)
			for _, c := range g.keys.cross {
				rest.AddCert(c)
			}
		}
		_, err := leaf.Verify(x509.VerifyOptions{Roots: r.a.Roots(), Intermediates: rest, CurrentTime: r.clock.Now(),
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		return err
	}
	if err := errors.Join(verify(old), verify(fresh)); err != nil {
		t.Errorf("in the overlap: %v", err)
	}
	r.withdraw(0)
	if verify(old) == nil {
		t.Error("a certificate of a withdrawn generation verifies")
	}
	if err := verify(fresh); err != nil {
		t.Error(err)
	}
	for leaf, want := range map[*x509.Certificate]struct {
		number  int
		inForce bool
	}{old: {1, false}, fresh: {2, true}} {
		if n, ok := r.a.Of(leaf); n != want.number || ok != want.inForce {
			t.Errorf("of generation %d, in force %v; want %v", n, ok, want)
		}
	}
	if pem, err := pki.DecodeCerts(r.a.RootPEM()); err != nil || len(pem) != 1 {
		t.Errorf("%d roots are given to agents, %v", len(pem), err)
	}
}

func TestAGenerationSignsOnceEveryControllerKnowsIt(t *testing.T) {
	t.Parallel()
	r := newRotated(t)
	next, err := r.a.Next(r.clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	all, err := r.a.Records()
	if err != nil {
		t.Fatal(err)
	}
	all[0].Created, next.Created = r.clock.Now(), r.clock.Now()
	if changed, err := r.a.Follow(append(all, next)); !changed || err != nil {
		t.Fatal(changed, err)
	}
	if roots, err := pki.DecodeCerts(r.a.RootPEM()); err != nil || len(roots) != 2 {
		t.Errorf("%d roots, %v", len(roots), err)
	}
	r.clock.Advance(Settle - 1)
	if n := r.a.Generation(); n != 1 {
		t.Errorf("generation %d signs at once", n)
	}
	r.clock.Advance(1)
	if n := r.a.Generation(); n != 2 {
		t.Errorf("generation %d signs", n)
	}
	if changed, err := r.a.Follow(append(all, next)); changed || err != nil {
		t.Errorf("the same again: %v, %v", changed, err)
	}
}

// Another controller has the first generation alone, as a copy of the directory, and gets the rest from the database.
func TestAnotherControllerFollows(t *testing.T) {
	t.Parallel()
	r := newRotated(t)
	dir := filepath.Join(t.TempDir(), "ca")
	if err := os.CopyFS(dir, os.DirFS(r.a.dir)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{rootKey, intermediateKey, grantKey} {
		if err := os.Chmod(filepath.Join(dir, version, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.rotate()
	other, err := New(Config{Dir: dir, Clock: r.clock})
	if err != nil {
		t.Fatal(err)
	}
	r.follow(other)
	again, err := New(Config{Dir: dir, Clock: r.clock}) // while the database is away
	if err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]*Authority{"the other": other, "the other after its restart": again} {
		if a.Generation() != 2 || a.RootHash() != r.a.RootHash() {
			t.Errorf("%s: generation %d, root %x", name, a.Generation(), a.RootHash())
		}
	}
	// And it can rotate next.
	if _, err := again.Next(r.clock.Now()); err != nil {
		t.Error(err)
	}
}

func TestARecordOfAnotherCAIsRefused(t *testing.T) {
	t.Parallel()
	r, stranger := newRotated(t), newRotated(t)
	r.rotate()
	stranger.rotate()
	if _, err := r.a.Follow([]Record{r.records[0], stranger.records[1]}); !errors.Is(err, ErrOther) {
		t.Errorf("got %v", err)
	}
	broken := r.records[1]
	broken.Generation, broken.Keys = 3, nil
	if _, err := r.a.Follow([]Record{broken}); err == nil || r.a.Generation() != 2 {
		t.Errorf("a generation without keys: %v, %d signs", err, r.a.Generation())
	}
}

func TestNoRotationWithoutTheRootsKey(t *testing.T) {
	t.Parallel()
	r := newRotated(t)
	if err := os.Remove(filepath.Join(r.a.dir, version, rootKey)); err != nil {
		t.Fatal(err)
	}
	a, err := New(Config{Dir: r.a.dir, Clock: r.clock})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Next(r.clock.Now()); !errors.Is(err, ErrNoRootKey) {
		t.Errorf("got %v", err)
	}
}

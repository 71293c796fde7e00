package ca

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/task"
)

// handshake connects a client to a server over loopback and returns the errors of both.
func handshake(t *testing.T, server, client *tls.Config) (serverErr, clientErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // only a leak if it fails
	g, _ := task.New(t.Context())
	g.Go("server", func(ctx context.Context) error {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		tc := tls.Server(conn, server)
		serverErr = tc.HandshakeContext(ctx)
		// Half-open: the client reads our alert or our greeting before it decides.
		_, _ = tc.Write([]byte("x"))
		return tc.Close()
	})
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	tc := tls.Client(raw, client)
	if clientErr = tc.HandshakeContext(t.Context()); clientErr == nil {
		_, clientErr = tc.Read(make([]byte, 1))
	}
	_ = raw.Close()
	_ = g.Wait() // Close after a failed handshake errs; the handshake's own error is what counts
	return serverErr, clientErr
}

func serverConfig(t *testing.T, a *Authority, fake *clock.Fake) *tls.Config {
	t.Helper()
	certs, err := NewServerCerts(t.Context(), a, []string{"controller.example"}, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: certs.GetCertificate, Time: fake.Now}
}

func TestPinnedClientMeetsServer(t *testing.T) {
	t.Parallel()
	a, fake := newCA(t)
	stranger, _ := newCA(t)
	server := serverConfig(t, a, fake)
	var certErr x509.CertificateInvalidError
	var nameErr x509.HostnameError
	for name, tc := range map[string]struct {
		hash   [sha256.Size]byte
		server string
		now    time.Time
		check  func(error) bool
	}{
		"by name":    {a.RootHash(), "controller.example", start, func(err error) bool { return err == nil }},
		"by address": {a.RootHash(), "127.0.0.1", start, func(err error) bool { return err == nil }},
		"clock behind": {a.RootHash(), "127.0.0.1", start.Add(-Backdate + time.Second),
			func(err error) bool { return err == nil }},
		"another CA": {stranger.RootHash(), "controller.example", start,
			func(err error) bool { return errors.Is(err, pki.ErrPin) }},
		"pin of the leaf": {sha256.Sum256(leafOf(t, server).Raw), "127.0.0.1", start,
			func(err error) bool { return errors.Is(err, pki.ErrPin) }},
		"another name":    {a.RootHash(), "else.example", start, func(err error) bool { return errors.As(err, &nameErr) }},
		"another address": {a.RootHash(), "127.0.0.2", start, func(err error) bool { return errors.As(err, &nameErr) }},
		"expired": {a.RootHash(), "127.0.0.1", start.Add(31 * 24 * time.Hour),
			func(err error) bool { return errors.As(err, &certErr) }},
	} {
		cfg := pki.TLSConfigPinned(tc.hash, tc.server, func() time.Time { return tc.now })
		if _, err := handshake(t, server, cfg); !tc.check(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func leafOf(t *testing.T, cfg *tls.Config) *x509.Certificate {
	t.Helper()
	cert, err := cfg.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		t.Fatal(err)
	}
	return cert.Leaf
}

// A man in the middle has a CA of his own, and knows our root certificate, which is public.
func TestPinRefusesForgedChain(t *testing.T) {
	t.Parallel()
	a, _ := newCA(t)
	evil, fake := newCA(t)
	forged, err := evil.ServerCert(t.Context(), nil, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	forged.Certificate = append(forged.Certificate, a.signing().keys.intermediate.Raw, a.signing().keys.root.Raw)
	server := &tls.Config{Certificates: []tls.Certificate{forged}, MinVersion: tls.VersionTLS13, Time: fake.Now}
	_, err = handshake(t, server, pki.TLSConfigPinned(a.RootHash(), "127.0.0.1", fake.Now))
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) {
		t.Fatalf("forged chain: %v", err)
	}
}

// An agent's certificate is of our CA, but must not pass as a controller's.
func TestPinRefusesAgentAsServer(t *testing.T) {
	t.Parallel()
	a, fake := newCA(t)
	agent := agentCert(t, a, start)
	agent.Certificate = append(agent.Certificate, a.signing().keys.root.Raw)
	server := &tls.Config{Certificates: []tls.Certificate{agent}, MinVersion: tls.VersionTLS13, Time: fake.Now}
	if _, err := handshake(t, server, pki.TLSConfigPinned(a.RootHash(), "127.0.0.1", fake.Now)); err == nil {
		t.Fatal("an agent passed as the server")
	}
}

func agentCert(t *testing.T, a *Authority, now time.Time) tls.Certificate {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	issued, err := a.SignAgent(t.Context(), csrOf(t, key), ids.New(ids.Agent), time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{issued.LeafDER, a.signing().keys.intermediate.Raw}, PrivateKey: key}
}

func TestMutualTLS(t *testing.T) {
	t.Parallel()
	a, fake := newCA(t)
	stranger, _ := newCA(t)
	server := serverConfig(t, a, fake)
	server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, a.Roots()
	for name, tc := range map[string]struct {
		certs []tls.Certificate
		ok    bool
	}{
		"own agent":     {[]tls.Certificate{agentCert(t, a, start)}, true},
		"other CA":      {[]tls.Certificate{agentCert(t, stranger, start)}, false},
		"expired":       {[]tls.Certificate{agentCert(t, a, start.Add(-3*time.Hour))}, false},
		"none":          {nil, false},
		"server's cert": {[]tls.Certificate{serverAsClient(t, a)}, false},
	} {
		client := &tls.Config{RootCAs: a.Roots(), ServerName: "127.0.0.1", Certificates: tc.certs, Time: fake.Now,
			MinVersion: tls.VersionTLS13}
		serverErr, clientErr := handshake(t, server, client)
		if (serverErr == nil) != tc.ok || (clientErr == nil) != tc.ok {
			t.Errorf("%s: server says %v, client says %v", name, serverErr, clientErr)
		}
	}
}

func serverAsClient(t *testing.T, a *Authority) tls.Certificate {
	t.Helper()
	cert, err := a.ServerCert(t.Context(), []string{"controller.example"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestServerCertIsRenewedBeforeItsEnd(t *testing.T) {
	t.Parallel()
	a, fake := newCA(t)
	cfg := serverConfig(t, a, fake)
	first := leafOf(t, cfg)
	fake.Advance(DefaultServerLifetime*2/3 - time.Minute)
	if !leafOf(t, cfg).Equal(first) {
		t.Fatal("renewed too early")
	}
	fake.Advance(2 * time.Minute)
	g, ctx := task.New(t.Context())
	for range 16 {
		g.Go("hello", func(context.Context) error {
			_, err := cfg.GetCertificate(&tls.ClientHelloInfo{})
			return errors.Join(err, ctx.Err())
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	second := leafOf(t, cfg)
	if second.Equal(first) || !second.NotAfter.After(first.NotAfter) {
		t.Fatal("not renewed after two thirds of its life")
	}
	if n := a.ServerSignatures(); n != 2 {
		t.Fatalf("%d signatures by 16 handshakes at once, want 2 in all", n)
	}
	if a.Signatures() != 0 {
		t.Fatal("server certificates were counted as agents'")
	}
	if len(second.DNSNames) != 1 || len(second.IPAddresses) != 1 {
		t.Fatalf("names were lost: %v %v", second.DNSNames, second.IPAddresses)
	}
}

// aheadClock is one that is set back later.
type aheadClock struct {
	*clock.Fake
	ahead time.Duration
}

func (c *aheadClock) Now() time.Time { return c.Fake.Now().Add(c.ahead) }

// A host that starts with its clock ahead signs for the future; once the clock is right, no client would take that.
func TestServerCertOfAClockThatWasAheadIsReplaced(t *testing.T) {
	t.Parallel()
	c := &aheadClock{clock.NewFake(start), 0}
	a, err := New(Config{Dir: t.TempDir(), Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	c.ahead = 6 * time.Hour
	cfg := serverConfig(t, a, c.Fake)
	ahead := leafOf(t, cfg)
	c.ahead = 0
	if now := leafOf(t, cfg); now.NotBefore.After(c.Now()) || now.Equal(ahead) {
		t.Fatalf("the certificate is not valid before %v; it is %v", now.NotBefore, c.Now())
	}
	if n := a.ServerSignatures(); n != 2 {
		t.Errorf("%d signatures", n)
	}
}

func TestFailedRenewalServesTheOldOne(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake(start)
	a, err := New(Config{Dir: t.TempDir(), Clock: fake, ServerLifetime: 20 * year})
	if err != nil {
		t.Fatal(err)
	}
	cfg := serverConfig(t, a, fake)
	first := leafOf(t, cfg)
	if !first.NotAfter.Equal(a.Expiries()["intermediate"]) {
		t.Fatalf("outlasts its issuer: %v", first.NotAfter)
	}
	fake.Advance(intermediateLifetime)
	if !leafOf(t, cfg).Equal(first) || a.ServerSignatures() != 1 {
		t.Fatal("the old certificate was not kept")
	}
}

func TestServerCertNeedsAName(t *testing.T) {
	t.Parallel()
	a, _ := newCA(t)
	if _, err := NewServerCerts(t.Context(), a, nil, nil); err == nil {
		t.Fatal("signed for nobody")
	}
}

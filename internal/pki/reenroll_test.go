package pki_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/task"
)

// connect makes one TLS connection over loopback and returns how each end sees it.
func connect(t *testing.T, maxVersion uint16) (server, client tls.ConnectionState) {
	t.Helper()
	cert, key := issue(t, asServer, nil, nil)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // only a leak if it fails
	g, _ := task.New(t.Context())
	g.Go("server", func(ctx context.Context) error {
		raw, err := l.Accept()
		if err != nil {
			return err
		}
		conn := tls.Server(raw, &tls.Config{
			Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}, MaxVersion: maxVersion,
		})
		if err := conn.HandshakeContext(ctx); err != nil {
			return err
		}
		server = conn.ConnectionState()
		_, err = conn.Read(make([]byte, 1)) // until the client has seen its own end
		return errors.Join(err, raw.Close())
	})
	cfg := &tls.Config{
		RootCAs: pool, ServerName: "controller.example", MinVersion: tls.VersionTLS12,
		Time: func() time.Time { return start },
	}
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	client = conn.ConnectionState()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	_ = raw.Close()
	return server, client
}

func message(t *testing.T, cs tls.ConnectionState, newKey any) []byte {
	t.Helper()
	m, err := pki.ReenrollMessage(cs, newKey)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestReenrollProof(t *testing.T) {
	t.Parallel()
	server, client := connect(t, tls.VersionTLS13)
	otherServer, _ := connect(t, tls.VersionTLS13)
	oldKey, newKey, otherKey := newKey(t), newKey(t), newKey(t)

	signed := message(t, client, newKey.Public())
	expected := message(t, server, newKey.Public())
	if !bytes.Equal(signed, expected) || len(signed) != 64 {
		t.Fatalf("the ends derive %x and %x", signed, expected)
	}
	sig, err := pki.SignReenroll(oldKey, signed)
	if err != nil {
		t.Fatal(err)
	}
	if err := pki.VerifyReenroll(oldKey.Public(), expected, sig); err != nil {
		t.Fatal(err)
	}
	ed, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"replayed on another connection": pki.VerifyReenroll(oldKey.Public(), message(t, otherServer, newKey.Public()), sig),
		"for another new key":            pki.VerifyReenroll(oldKey.Public(), message(t, server, otherKey.Public()), sig),
		"by another old key":             pki.VerifyReenroll(otherKey.Public(), expected, sig),
		"by a key of another kind":       pki.VerifyReenroll(ed, expected, sig),
		"cut short":                      pki.VerifyReenroll(oldKey.Public(), expected, sig[:len(sig)-1]),
		"empty":                          pki.VerifyReenroll(oldKey.Public(), expected, nil),
	} {
		if !errors.Is(err, pki.ErrReenrollProof) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReenrollNeedsTLS13(t *testing.T) {
	t.Parallel()
	server, client := connect(t, tls.VersionTLS12)
	for _, cs := range []tls.ConnectionState{server, client, {}, {Version: tls.VersionTLS13}} {
		if m, err := pki.ReenrollMessage(cs, newKey(t).Public()); err == nil {
			t.Errorf("derived %x from version %x", m, cs.Version)
		}
	}
}

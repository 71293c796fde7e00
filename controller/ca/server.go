package ca

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// ServerCert makes a key and a server certificate, with a chain to every root that is in force or vouched for. The key
// lives in memory only. Roots are part of the chain because an agent that enrols knows no more than the hash of one.
func (a *Authority) ServerCert(ctx context.Context, dnsNames []string, ips []net.IP) (tls.Certificate, error) {
	if len(dnsNames)+len(ips) == 0 {
		return tls.Certificate{}, errors.New("sign server certificate: no name and no address to sign for")
	}
	key, csr, err := newRequest()
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("sign server certificate: %w", err)
	}
	now := a.clock.Now()
	by := a.signing()
	leaf, err := by.sign(ctx, csr, serverTemplate(dnsNames, ips, a.serverLifetime, now))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("sign server certificate: %w", err)
	}
	a.signedServer.Add(1)
	out := tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
	for _, c := range serverChain(a.generations(), by, now) {
		out.Certificate = append(out.Certificate, c.Raw)
	}
	return out, nil
}

func serverTemplate(dnsNames []string, ips []net.IP, lifetime time.Duration, now time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: "ingot-controller"},
		DNSNames:    dnsNames,
		IPAddresses: ips,
		NotBefore:   now.Add(-Backdate).UTC().Truncate(time.Second),
		NotAfter:    now.Add(lifetime).UTC().Truncate(time.Second),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},

		BasicConstraintsValid: true,
	}
}

// ServerCerts keeps one server certificate fresh for any number of listeners.
type ServerCerts struct {
	ca       *Authority
	dnsNames []string
	ips      []net.IP

	renewing sync.Mutex // held by the one handshake that renews

	mu   sync.RWMutex
	cert *tls.Certificate
	of   signer // that the certificate was made with
}

// NewServerCerts signs the first certificate, so that bad names fail at the start and not at the first handshake.
func NewServerCerts(ctx context.Context, ca *Authority, dnsNames []string, ips []net.IP) (*ServerCerts, error) {
	s := &ServerCerts{ca: ca, dnsNames: dnsNames, ips: ips}
	if err := s.renew(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// GetCertificate is for tls.Config. It replaces the certificate when two thirds of its life are over, and when the CA
// has changed. It does so too when the signing clock has been set back since: peers might not accept it yet. The
// handshake that finds it due makes the signature; others are served the old one meanwhile.
func (s *ServerCerts) GetCertificate(_ *tls.ClientHelloInfo) (*tls.Certificate, error) {
	cert := s.current()
	if !s.due() || !s.renewing.TryLock() {
		return cert, nil
	}
	defer s.renewing.Unlock()
	if !s.due() {
		return s.current(), nil
	}
	// Not the handshake's context: a client that hangs up must not undo what serves all others.
	if err := s.renew(context.Background()); err != nil {
		// The old one is good for another third of its life, and every handshake tries again.
		slog.Error("cannot renew the server certificate", "not_after", cert.Leaf.NotAfter, "error", err)
	}
	return s.current(), nil
}

// due reports whether there should be another certificate.
func (s *ServerCerts) due() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	now, leaf := s.ca.clock.Now(), s.cert.Leaf
	return now.Before(signedAt(leaf)) || !now.Before(renewAt(leaf)) || s.of != s.ca.signer()
}

// Ends is when the certificate does that is served now.
func (s *ServerCerts) Ends() time.Time { return s.current().Leaf.NotAfter }

func (s *ServerCerts) renew(ctx context.Context) error {
	of := s.ca.signer()
	cert, err := s.ca.ServerCert(ctx, s.dnsNames, s.ips)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cert, s.of = &cert, of
	return nil
}

func (s *ServerCerts) current() *tls.Certificate {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.cert
}

// renewAt counts the two thirds from the moment of signing, not from the backdated NotBefore.
func renewAt(leaf *x509.Certificate) time.Time {
	signed := signedAt(leaf)
	return signed.Add(leaf.NotAfter.Sub(signed) * 2 / 3)
}

// signedAt is by the clock of then, in whole seconds.
func signedAt(leaf *x509.Certificate) time.Time { return leaf.NotBefore.Add(Backdate) }

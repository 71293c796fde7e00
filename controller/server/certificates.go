package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/task"
)

// ownTLS serves certificates of our own CA, renewed in time.
func (s *Servers) ownTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, GetCertificate: s.cfg.Certs.GetCertificate, NextProtos: []string{"h2"},
		Time: s.cfg.Clock.Now,
	}
}

func (s *Servers) frontpageTLS() (*tls.Config, error) {
	t, files := s.ownTLS(), s.cfg.Config.TLS
	if files.CertFile == "" {
		return t, nil
	}
	cert, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("load the frontpage's certificate: %w", err)
	}
	t.GetCertificate, t.Certificates = nil, []tls.Certificate{cert}
	s.frontpageEnds = cert.Leaf.NotAfter
	return t, nil
}

// fleetTLS refuses callers without a certificate of our CA that is recorded and not revoked. It decides in the
// handshake, before a message is read.
func (s *Servers) fleetTLS() *tls.Config {
	t := s.ownTLS()
	t.ClientAuth = tls.RequireAndVerifyClientCert
	// A resumed session would skip what a fresh handshake shows.
	t.SessionTicketsDisabled = true
	t.VerifyConnection = func(c tls.ConnectionState) error {
		if len(c.PeerCertificates) == 0 {
			return errors.New("a client certificate is required")
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		id, err := pki.AgentID(c.PeerCertificates[0])
		if err != nil {
			return err
		}
		return s.checkAgent(ctx, id, c.PeerCertificates[0])
	}
	return s.withRoots(t)
}

// withRoots has every handshake verify agents against the roots that are in force then.
func (s *Servers) withRoots(t *tls.Config) *tls.Config {
	out := t.Clone()
	out.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := t.Clone()
		now.ClientCAs = s.cfg.CA.Roots()
		return now, nil
	}
	return out
}

// checkCaller is checkAgent for the goroutine of a call, which may live as long as a session.
func (s *Servers) checkCaller(ctx context.Context, agentID string, cert *x509.Certificate) error {
	return task.Apart(ctx, "check certificate",
		func(ctx context.Context) error { return s.checkAgent(ctx, agentID, cert) })
}

// checkAgent refuses a certificate that is not recorded for this agent, revoked, or replaced by a newer one in use, and
// one of a generation of the CA that has been withdrawn.
func (s *Servers) checkAgent(ctx context.Context, agentID string, cert *x509.Certificate) error {
	known, err := s.cfg.Agents.GetCert(ctx, pki.Fingerprint(cert.Raw))
	switch {
	case err != nil:
		return err
	case known == nil || known.AgentID != agentID:
		return failure.Unauthenticated("CERTIFICATE_UNKNOWN", "the certificate is not recorded")
	case known.Revoked || known.Replaced || !s.signedInForce(cert):
		return failure.Unauthenticated("CERTIFICATE_REVOKED", "the certificate has been revoked or replaced")
	}
	return nil
}

func (s *Servers) signedInForce(cert *x509.Certificate) bool {
	_, inForce := s.cfg.CA.Of(cert)
	return inForce
}

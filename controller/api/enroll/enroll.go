// Package enroll serves enroll.v1 to agents that have no certificate yet, or an expired one.
package enroll

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	enrollv1 "github.com/ingot-metal/ingot/api/enroll/v1"
	"github.com/ingot-metal/ingot/controller/api/agent"
	"github.com/ingot-metal/ingot/controller/ca"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/pki"
)

// Config is what the service works with.
type Config struct {
	Store        *agentstore.Store
	CA           *ca.Authority
	Installers   *agent.Installers
	Clock        clock.Clock
	CertLifetime time.Duration
	// Grace is how long after its end a certificate may still be traded for a new one.
	Grace time.Duration
	// FleetAddresses are where enrolled agents connect to.
	FleetAddresses []string
}

// Server implements enroll.v1.EnrollmentService.
type Server struct {
	enrollv1.UnimplementedEnrollmentServiceServer
	cfg Config
}

// New makes the service.
func New(c Config) *Server { return &Server{cfg: c} }

// Enroll trades a one-shot token and a key for a certificate.
func (s *Server) Enroll(ctx context.Context, r *enrollv1.EnrollRequest) (*enrollv1.EnrollResponse, error) {
	csr, digest, err := agent.ParseCSR(r.GetCsr())
	if err != nil {
		return nil, err
	}
	out, err := s.cfg.Store.Enroll(ctx, agentstore.EnrollRequest{
		TokenID: r.GetTokenId(), Secret: r.GetTokenSecret(), PublicKeyDigest: digest, Region: r.GetRegion(),
		Provider: r.GetProvider(), MACs: r.GetMacAddresses(), Serial: r.GetSerial(),
	}, agent.Signer(s.cfg.CA, csr, s.cfg.CertLifetime, s.cfg.Clock), s.cfg.Clock.Now())
	if err != nil {
		return nil, err
	}
	key, ok := s.cfg.CA.GrantKey().Public().(ed25519.PublicKey)
	if !ok {
		panic("enrollapi: the grant key is not Ed25519")
	}
	return &enrollv1.EnrollResponse{
		AgentId: out.AgentID, MachineId: out.MachineID, Site: out.Site, Role: out.Role, CertificateChainPem: out.ChainPEM,
		TrustBundlePem: s.cfg.CA.RootPEM(), FleetAddresses: s.cfg.FleetAddresses, GrantKeys: [][]byte{key},
	}, nil
}

// Reenroll brings back an agent whose newest certificate has expired. The proof binds the expired key, this connection
// and the new key together, so that it is worth nothing anywhere else.
func (s *Server) Reenroll(ctx context.Context, r *enrollv1.ReenrollRequest) (*enrollv1.ReenrollResponse, error) {
	csr, digest, err := agent.ParseCSR(r.GetCsr())
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(r.GetCertificate())
	if err != nil {
		return nil, failure.Invalid("INVALID_FIELD", "certificate: not DER").WithField("certificate", "malformed")
	}
	if err := proven(ctx, cert, csr, r.GetSignature()); err != nil {
		return nil, err
	}
	agentID, err := s.mayComeBack(ctx, cert)
	if err != nil {
		return nil, err
	}
	now := s.cfg.Clock.Now()
	out, err := s.cfg.Store.Rotate(ctx, agentID, digest, agent.Signer(s.cfg.CA, csr, s.cfg.CertLifetime, s.cfg.Clock),
		"REENROLL", now)
	if err != nil {
		return nil, err
	}
	return &enrollv1.ReenrollResponse{
		AgentId: agentID, CertificateChainPem: out.ChainPEM, TrustBundlePem: s.cfg.CA.RootPEM(),
		FleetAddresses: s.cfg.FleetAddresses,
	}, nil
}

func proven(ctx context.Context, cert *x509.Certificate, csr *x509.CertificateRequest, signature []byte) error {
	refused := failure.Unauthenticated("REENROLL_REFUSED", "the proof does not hold on this connection")
	p, ok := peer.FromContext(ctx)
	if !ok {
		return refused
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return refused
	}
	message, err := pki.ReenrollMessage(info.State, csr.PublicKey)
	if err != nil {
		return refused.Wrap(err)
	}
	if err := pki.VerifyReenroll(cert.PublicKey, message, signature); err != nil {
		return refused.Wrap(err)
	}
	return nil
}

// mayComeBack names the agent of a certificate that is recorded, the newest that its agent has used, not revoked,
// expired or of a generation of the CA that was withdrawn, and not for too long.
func (s *Server) mayComeBack(ctx context.Context, cert *x509.Certificate) (string, error) {
	c, err := s.cfg.Store.GetCert(ctx, pki.Fingerprint(cert.Raw))
	if err != nil {
		return "", err
	}
	outdated := false
	if c != nil {
		if outdated, err = s.cfg.Store.Outdated(ctx, c.AgentID, c.Fingerprint); err != nil {
			return "", err
		}
	}
	now := s.cfg.Clock.Now()
	switch {
	case c == nil || c.Revoked || outdated || now.After(c.NotAfter.Add(s.cfg.Grace)):
		return "", failure.Unauthenticated("REENROLL_REFUSED", "the certificate cannot be renewed; enrol with a new token")
	case now.Before(c.NotAfter) && !s.withdrawn(cert):
		return "", failure.Precondition("CERTIFICATE_STILL_VALID",
			"the certificate is valid; rotate it over the fleet listener")
	}
	return c.AgentID, nil
}

func (s *Server) withdrawn(cert *x509.Certificate) bool {
	_, inForce := s.cfg.CA.Of(cert)
	return !inForce
}

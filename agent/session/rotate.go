package session

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/agent/transport"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/pki"
)

var (
	rotateAfterNextDurable = failpoint.Register("agent.rotate-after-next-durable")
	rotateAfterKey         = failpoint.Register("agent.rotate-after-key")
)

const (
	// backdate is how far certificates reach back behind the moment of signing.
	backdate    = 2 * time.Hour
	rotateRetry = time.Minute
)

// rotateAt is two thirds into the certificate's life, counted from its signing.
func rotateAt(c *x509.Certificate) time.Time {
	signed := c.NotBefore.Add(backdate)
	if !signed.Before(c.NotAfter) {
		signed = c.NotBefore
	}
	return signed.Add(c.NotAfter.Sub(signed) * 2 / 3)
}

// trust takes over which roots to trust, and records that the certificate must be renewed.
func (s *session) trust(m *fleetv1.Trust) {
	if err := s.r.cfg.Dir.SaveTrust(m.GetBundlePem()); err != nil {
		s.r.cfg.Log.Error("trust bundle not taken over", "error", err)
		return // a certificate of a root that is not trusted would be no use
	}
	if !m.GetRenewCertificate() {
		return
	}
	select {
	case s.renew <- time.Duration(m.GetSpreadMs()) * time.Millisecond:
	default: // it is under way
	}
}

// rotate waits until the certificate is due, or the controller asks, and replaces it. The session then ends, and the
// next one opens on the new certificate; until that has worked both are kept.
func (s *session) rotate(ctx context.Context, client fleetv1.AgentServiceClient) error {
	asked := false
	for {
		now, err := s.r.now(ctx)
		if err != nil {
			return err
		}
		if wait := rotateAt(s.creds.Leaf()).Sub(now); wait > 0 && !asked {
			if asked, err = s.due(ctx, wait); err != nil {
				return err
			}
			continue
		}
		err = s.rotateOnce(ctx, client)
		if err == nil {
			return errRotated
		}
		if isFinal(err) || ctx.Err() != nil {
			return err
		}
		s.r.cfg.Log.Warn("certificate not rotated", "error", err)
		if err := s.sleep(ctx, rotateRetry/2+transport.Jitter(rotateRetry)); err != nil {
			return err
		}
	}
}

// due waits until the time is over, or until the controller has asked for a renewal.
func (s *session) due(ctx context.Context, d time.Duration) (asked bool, err error) {
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-s.r.cfg.Clock.After(d):
		return false, nil
	case spread := <-s.renew:
		return true, s.sleep(ctx, transport.Jitter(spread))
	}
}

func (s *session) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.r.cfg.Clock.After(d):
		return nil
	}
}

func (s *session) rotateOnce(ctx context.Context, client fleetv1.AgentServiceClient) error {
	key, err := s.r.cfg.Dir.NextKey()
	if err != nil {
		return fatal{err}
	}
	if err := rotateAfterKey.HitCtx(ctx); err != nil {
		return fatal{err}
	}
	csr, err := pki.NewCSR(key, s.welcome.GetAgentId())
	if err != nil {
		return err
	}
	answer, err := client.RotateAgentCert(ctx, &fleetv1.RotateAgentCertRequest{Csr: csr})
	if err != nil {
		return fmt.Errorf("rotate certificate: %w", err)
	}
	next, err := state.NewCredentials(key, answer.GetCertificateChainPem())
	if err != nil {
		return fmt.Errorf("rotate certificate: %w", err)
	}
	if len(answer.GetTrustBundlePem()) > 0 {
		if err := s.r.cfg.Dir.SaveTrust(answer.GetTrustBundlePem()); err != nil {
			return err
		}
	}
	if err := s.r.cfg.Dir.SaveNext(next); err != nil {
		return fatal{err}
	}
	s.r.tryNext = true
	if err := rotateAfterNextDurable.HitCtx(ctx); err != nil {
		return fatal{err}
	}
	s.r.cfg.Log.Info("certificate rotated; reconnecting on the next one", "expires_at", next.Leaf().NotAfter)
	return nil
}

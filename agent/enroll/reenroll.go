package enroll

import (
	"context"
	"crypto/ecdsa"
	"fmt"
	"time"

	enrollv1 "github.com/ingot-metal/ingot/api/enroll/v1"

	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/agent/transport"
	"github.com/ingot-metal/ingot/internal/pki"
)

// Reenroll replaces an expired certificate: the old key vouches for the new one, over this very connection. One call is
// one attempt; the caller repeats. ErrRefused is final until an operator acts.
func Reenroll(ctx context.Context, cfg Config) error {
	identity, err := cfg.Dir.Identity()
	if err != nil {
		return err
	}
	old, err := cfg.newest()
	if err != nil {
		return err
	}
	if len(identity.EnrollAddresses) == 0 {
		return fmt.Errorf("re-enrol: no enrolment address is known")
	}
	key, err := cfg.newKey(old)
	if err != nil {
		return err
	}
	address := identity.EnrollAddresses[int(cfg.Clock.Now().UnixNano())%len(identity.EnrollAddresses)]
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	answer, err := cfg.reenrollAt(ctx, address, old, key)
	if err != nil && isFinal(err) {
		return fmt.Errorf("re-enrol at %s: %w: %w", address, ErrRefused, err)
	}
	if err != nil {
		return fmt.Errorf("re-enrol at %s: %w", address, err)
	}
	if err := beforeSave.HitCtx(ctx); err != nil {
		return err
	}
	return cfg.saveReenrolled(identity, key, answer)
}

// newest is the certificate that was issued last.
func (c Config) newest() (state.Credentials, error) {
	next, found, err := c.Dir.Next()
	if err != nil || found {
		return next, err
	}
	return c.Dir.Credentials()
}

// newKey returns a key that outlives a crash, so that a lost answer is repeated with it. One that is in use already was
// left by a crash after the certificate was stored.
func (c Config) newKey(old state.Credentials) (*ecdsa.PrivateKey, error) {
	key, err := c.Dir.EnrollKey()
	if err != nil || !key.Equal(old.Key) {
		return key, err
	}
	if err := c.Dir.DropEnrollKey(); err != nil {
		return nil, err
	}
	return c.Dir.EnrollKey()
}

func (c Config) reenrollAt(
	ctx context.Context, address string, old state.Credentials, key *ecdsa.PrivateKey,
) (*enrollv1.ReenrollResponse, error) {
	roots, err := c.Dir.Trust()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := transport.Mutual(old.TLS(), roots, address, func() time.Time { return c.now() })
	if err != nil {
		return nil, err
	}
	// An expired certificate is shown in the message, not in the handshake.
	tlsConfig.GetClientCertificate = nil
	conn, err := transport.Dial(address, tlsConfig, c.Dial, transport.Patience)
	if err != nil {
		return nil, err
	}
	defer c.close(conn)
	connection, err := conn.Connect(ctx)
	if err != nil {
		return nil, err
	}
	message, err := pki.ReenrollMessage(connection, key.Public())
	if err != nil {
		return nil, err
	}
	signature, err := pki.SignReenroll(old.Key, message)
	if err != nil {
		return nil, err
	}
	csr, err := pki.NewCSR(key, "")
	if err != nil {
		return nil, err
	}
	return enrollv1.NewEnrollmentServiceClient(conn).Reenroll(ctx, &enrollv1.ReenrollRequest{
		Certificate: old.Leaf().Raw, Csr: csr, Signature: signature,
	})
}

func (c Config) saveReenrolled(identity state.Identity, key *ecdsa.PrivateKey, a *enrollv1.ReenrollResponse) error {
	creds, err := state.NewCredentials(key, a.GetCertificateChainPem())
	if err != nil {
		return fmt.Errorf("check certificate: %w", err)
	}
	id, err := pki.AgentID(creds.Leaf())
	if err != nil {
		return fmt.Errorf("check certificate: %w", err)
	}
	if id != identity.AgentID {
		return fmt.Errorf("check certificate: it is for %s, this agent is %s", id, identity.AgentID)
	}
	if len(a.GetFleetAddresses()) > 0 {
		identity.FleetAddresses = a.GetFleetAddresses()
		if err := c.Dir.SaveIdentity(identity); err != nil {
			return err
		}
	}
	if len(a.GetTrustBundlePem()) > 0 {
		if err := c.Dir.SaveTrust(a.GetTrustBundlePem()); err != nil {
			return err
		}
	}
	if err := c.Dir.ReplaceCredentials(creds); err != nil {
		return err
	}
	return c.Dir.DropEnrollKey()
}

// Package enroll gets an agent its certificate: the first for a bootstrap token, and a new one after the last
// has expired.
package enroll

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	enrollv1 "github.com/ingot-metal/ingot/api/enroll/v1"

	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/agent/transport"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/pki"
)

var (
	afterKey    = failpoint.Register("agent.after-enroll-key")
	afterAnswer = failpoint.Register("agent.after-enroll-answer")
	beforeSave  = failpoint.Register("agent.reenroll-before-save")
)

// ErrRefused is returned when the controller's refusal is final: another attempt with the same token fails too.
var ErrRefused = errors.New("enrolment was refused")

// callTime limits one attempt.
const callTime = 30 * time.Second

// Machine describes the machine at enrolment, so that the token's bindings can be checked.
type Machine struct {
	Region, Provider    string
	MACs                []string
	Serial              string
	HardwareFingerprint string
	BootID              string
	Version             string
}

// Config is what enrolment needs.
type Config struct {
	Dir   state.Dir
	Dial  transport.Dialer
	Clock clock.Clock
	Log   *slog.Logger
	// Known are moments known to have passed, beside the local clock: the build, the last controller time.
	Known []time.Time
}

func (c Config) now(more ...time.Time) time.Time {
	return pki.EffectiveNow(append(append([]time.Time{c.Clock.Now()}, c.Known...), more...)...)
}

// Enroll trades the token for an identity, which is durable when it returns. The key is durable before the first
// call and stays the same over all repeats, also over those of a restarted agent: the controller answers them
// with the same certificate. It tries until ctx ends or the refusal is final (ErrRefused).
func Enroll(ctx context.Context, cfg Config, bundle pki.Bundle, m Machine) (state.Identity, error) {
	key, err := cfg.Dir.EnrollKey()
	if err != nil {
		return state.Identity{}, err
	}
	if err := afterKey.HitCtx(ctx); err != nil {
		return state.Identity{}, err
	}
	csr, err := pki.NewCSR(key, "")
	if err != nil {
		return state.Identity{}, err
	}
	req := &enrollv1.EnrollRequest{
		TokenId: bundle.TokenID, TokenSecret: bundle.Secret, Csr: csr, Region: m.Region, Provider: m.Provider,
		MacAddresses: m.MACs, Serial: m.Serial, HardwareFingerprint: m.HardwareFingerprint, BootId: m.BootID,
		Version: m.Version,
	}
	var answer *enrollv1.EnrollResponse
	err = cfg.retry(ctx, "enrol", bundle.Addresses, func(ctx context.Context, address string) error {
		answer, err = cfg.enrollAt(ctx, address, bundle, req)
		return err
	})
	if err != nil {
		return state.Identity{}, err
	}
	if err := afterAnswer.HitCtx(ctx); err != nil {
		return state.Identity{}, err
	}
	return cfg.save(answer, key, bundle, m)
}

func (c Config) enrollAt(
	ctx context.Context, address string, b pki.Bundle, req *enrollv1.EnrollRequest,
) (*enrollv1.EnrollResponse, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("enrolment address %q: %w", address, err)
	}
	tlsConfig := pki.TLSConfigPinned(b.CAHash, host, func() time.Time { return c.now(b.IssuedAt) })
	conn, err := transport.Dial(address, tlsConfig, c.Dial, transport.Patience)
	if err != nil {
		return nil, err
	}
	defer c.close(conn)
	if _, err := conn.Connect(ctx); err != nil {
		return nil, err
	}
	return enrollv1.NewEnrollmentServiceClient(conn).Enroll(ctx, req)
}

func (c Config) close(conn *transport.Conn) {
	if err := conn.Close(); err != nil {
		c.Log.Debug("close enrolment connection", "error", err)
	}
}

func (c Config) save(
	a *enrollv1.EnrollResponse, key *ecdsa.PrivateKey, b pki.Bundle, m Machine,
) (state.Identity, error) {
	creds, err := state.NewCredentials(key, a.GetCertificateChainPem())
	if err != nil {
		return state.Identity{}, fmt.Errorf("check certificate: %w", err)
	}
	id, err := pki.AgentID(creds.Leaf())
	if err == nil && id != a.GetAgentId() {
		err = fmt.Errorf("the certificate is for %s, the answer for %s", id, a.GetAgentId())
	}
	if err != nil {
		return state.Identity{}, fmt.Errorf("check certificate: %w", err)
	}
	identity := state.Identity{
		AgentID: id, MachineID: a.GetMachineId(), Site: a.GetSite(), Role: a.GetRole(), Region: m.Region,
		Provider:       m.Provider,
		FleetAddresses: a.GetFleetAddresses(), EnrollAddresses: b.Addresses, GrantKeys: a.GetGrantKeys(),
		TokenIssuedAt: b.IssuedAt,
	}
	return identity, c.Dir.SaveEnrolled(identity, creds, a.GetTrustBundlePem())
}

// retry goes through the addresses in turns.
func (c Config) retry(
	ctx context.Context, what string, addresses []string, call func(context.Context, string) error,
) error {
	if len(addresses) == 0 {
		return fmt.Errorf("%s: no address is known", what)
	}
	for attempt := 1; ; attempt++ {
		address := addresses[(attempt-1)%len(addresses)]
		once, cancel := context.WithTimeout(ctx, callTime)
		err := call(once, address)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s at %s: %w", what, address, context.Cause(ctx))
		}
		if isFinal(err) {
			return fmt.Errorf("%s at %s: %w: %w", what, address, ErrRefused, err)
		}
		wait := waitFor(attempt, err)
		c.Log.Warn("enrolment has not worked yet", "address", address, "attempt", attempt, "retry_in", wait.String(), "error",
			err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		case <-c.Clock.After(wait):
		}
	}
}

func waitFor(attempt int, err error) time.Duration {
	if after := failure.From(err).RetryAfter; after > 0 {
		return after + transport.Jitter(after/4)
	}
	return transport.Backoff(attempt)
}

// isFinal: the controller has understood and refuses, or the server is not the one that the token names.
func isFinal(err error) bool {
	if errors.Is(err, pki.ErrPin) {
		return true
	}
	switch f := failure.From(err); f.Kind {
	case failure.KindInvalid, failure.KindPrecondition, failure.KindUnauthenticated, failure.KindDenied,
		failure.KindNotFound, failure.KindAlreadyExists, failure.KindUnimplemented:
		return !f.Retryable
	}
	return false
}

package installer

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/ingot-metal/ingot/agent/pid1"
	"github.com/ingot-metal/ingot/agent/site/installerenrol"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/agent/tpmdevice"
	"github.com/ingot-metal/ingot/agent/transport"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/mediaproof"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/when"
)

// Refused is a final refusal of the site's agent.
type Refused struct {
	Status          int
	Reason, Message string
}

// Error returns reason and message.
func (r *Refused) Error() string { return fmt.Sprintf("%s: %s", r.Reason, r.Message) }

// maxAnswer bounds an answer of the site's agent, in bytes.
const maxAnswer = 1 << 20

// enroller asks the agent of one site.
type enroller struct {
	boot   pid1.Installer
	client *http.Client
	dir    state.Dir
	clock  clock.Clock
	log    *slog.Logger
	// tpm is nil where the machine has none that can be used.
	tpm *tpmdevice.Device
	// buildTime is a moment known to have passed.
	buildTime time.Time
}

func (e *enroller) now() time.Time { return pki.EffectiveNow(e.clock.Now(), e.buildTime) }

// machine describes the machine at enrolment.
type machine struct{ bootID, fingerprint, serial string }

// enrol returns the identity and its proxy. Both are durable, as far as memory is, when it returns; a repeat with the
// same key gets the same certificate.
func (e *enroller) enrol(ctx context.Context, m machine) (installerenrol.Answer, error) {
	key, err := e.dir.EnrollKey()
	if err != nil {
		return installerenrol.Answer{}, err
	}
	csr, err := pki.NewCSR(key, "")
	if err != nil {
		return installerenrol.Answer{}, err
	}
	digest, err := pki.PublicKeyHash(key.Public())
	if err != nil {
		return installerenrol.Answer{}, err
	}
	req := installerenrol.Request{CSR: csr, BootID: m.bootID, HardwareFingerprint: m.fingerprint, MAC: e.boot.MAC,
		Serial: m.serial}
	if d := e.tpm; d != nil {
		req.TPM = &installerenrol.TPM{EndorsementKey: d.Endorsement, EndorsementCertificate: d.Certificate,
			AttestationKey: d.Attestation}
	}
	if secret := e.boot.MediaSecret; len(secret) > 0 {
		req.MediaProof = mediaproof.Make(secret, e.boot.Token, digest[:])
	}
	body, err := json.Marshal(req)
	if err != nil {
		return installerenrol.Answer{}, fmt.Errorf("encode enrolment: %w", err)
	}
	answer, err := e.ask(ctx, func(attempt int) (installerenrol.Answer, time.Duration, error) {
		answer, after, err := e.once(ctx, body)
		if err == nil && answer.Challenge != nil {
			return e.prove(ctx, csr, digest[:], answer, attempt)
		}
		return answer, after, err
	})
	if err != nil {
		return answer, err
	}
	return answer, e.save(key, answer)
}

// ask repeats until there is an answer or a final no.
func (e *enroller) ask(
	ctx context.Context, once func(attempt int) (installerenrol.Answer, time.Duration, error),
) (installerenrol.Answer, error) {
	for attempt := 1; ; attempt++ {
		answer, after, err := once(attempt)
		if err == nil {
			return answer, nil
		}
		var no *Refused
		if errors.As(err, &no) {
			return answer, err
		}
		if ctx.Err() != nil {
			return answer, context.Cause(ctx)
		}
		wait := max(transport.Backoff(attempt), after)
		e.log.Warn("not certified yet", "site", e.boot.Site, "attempt", attempt, "retry_in", wait.String(), "error", err)
		select {
		case <-ctx.Done():
			return answer, context.Cause(ctx)
		case <-e.clock.After(wait):
		}
	}
}

// once makes one request. after is the time until the next request.
func (e *enroller) once(ctx context.Context, body []byte) (_ installerenrol.Answer, after time.Duration, err error) {
	to := e.boot.Site + "/boot/" + url.PathEscape(e.boot.Token) + "/enrol"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return installerenrol.Answer{}, 0, fmt.Errorf("ask to be certified: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.client.Do(req)
	if err != nil {
		return installerenrol.Answer{}, 0, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return installerenrol.Answer{}, 0, fmt.Errorf("read the desk's answer: %w", err)
	}
	return understand(resp, data)
}

func understand(resp *http.Response, data []byte) (a installerenrol.Answer, after time.Duration, err error) {
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(data, &a); err != nil {
			return a, 0, fmt.Errorf("understand the desk's answer: %w", err)
		}
		return a, 0, nil
	}
	after = when.RetryAfter(resp.Header.Get("Retry-After"), time.Now(), time.Minute)
	var p installerenrol.Problem
	if err := json.Unmarshal(data, &p); err != nil || p.Reason == "" {
		// Not the site's agent, or an unknown version of it: perhaps the boot server on its way up or down.
		return a, after, fmt.Errorf("the site answers %s", resp.Status)
	}
	if resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests {
		return a, after, fmt.Errorf("the site answers %s: %s: %s", resp.Status, p.Reason, p.Message)
	}
	return a, 0, &Refused{Status: resp.StatusCode, Reason: p.Reason, Message: p.Message}
}

func (e *enroller) save(key *ecdsa.PrivateKey, a installerenrol.Answer) error {
	creds, err := state.NewCredentials(key, []byte(a.CertificateChainPEM))
	if err != nil {
		return fmt.Errorf("check certificate: %w", err)
	}
	id, err := pki.AgentID(creds.Leaf())
	if err == nil && id != a.AgentID {
		err = fmt.Errorf("the certificate is for %s, the answer for %s", id, a.AgentID)
	}
	if err != nil {
		return fmt.Errorf("check certificate: %w", err)
	}
	if err := remember(e.dir, a); err != nil {
		return err
	}
	return e.dir.SaveEnrolled(state.Identity{
		AgentID: id, MachineID: a.MachineID, Role: role, FleetAddresses: a.FleetAddresses, GrantKeys: a.GrantKeys,
		TokenIssuedAt: creds.Leaf().NotBefore,
	}, creds, []byte(a.TrustBundlePEM))
}

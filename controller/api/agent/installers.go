package agent

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/controller/domain/identity"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/engine"
	"github.com/ingot-metal/ingot/controller/secret"
	"github.com/ingot-metal/ingot/controller/session"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	identitystore "github.com/ingot-metal/ingot/controller/store/identity"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/tpm"
)

const (
	// challengeLife is how long a challenge may be answered. The slowest TPMs need some seconds.
	challengeLife = 2 * time.Minute
	// challengeName is what challenges are sealed for.
	challengeName = "installer challenge"
)

// Installers certifies netbooted systems. Both listeners that they come to use it.
type Installers struct {
	Engine       *engine.Agents
	Identities   *identitystore.Store
	Operations   *operationstore.Store
	Sessions     *session.Registry
	CA           *ca.Authority
	Secrets      *secret.Box
	Clock        clock.Clock
	Logger       *slog.Logger
	CertLifetime time.Duration
	// Roots certify the endorsement keys of TPMs.
	Roots tpm.Roots
}

// Certify certifies the key of a system, or returns a Vouched that asks for a challenge. A system that can't be the
// machine, or that contests it, is an error and is reported to the operation.
func (i *Installers) Certify(
	ctx context.Context, r identitystore.VouchRequest, csr *x509.CertificateRequest,
) (*identitystore.Vouched, error) {
	sign := func(ctx context.Context, agentID string, life time.Duration) (*agentstore.Signed, error) {
		return Signer(i.CA, csr, min(life, i.CertLifetime), i.Clock)(ctx, agentID)
	}
	out, err := i.Identities.Vouch(ctx, r, sign, i.Clock.Now())
	switch {
	case err != nil:
		return nil, err
	case out.Contested:
		return nil, i.contested(ctx, out)
	case out.Refused != nil:
		return nil, i.refused(ctx, out)
	case out.Waits:
		return nil, failure.Unavailable("ENROLMENT_CONTESTED",
			"another installer holds the assignment; it has some seconds to show that it lives").
			WithRetry(2 * time.Second)
	}
	i.Sessions.CloseFingerprints(out.Replaced, session.ErrRevoked)
	return out, nil
}

// contested stops the operation that two systems claim to be the installer of.
func (i *Installers) contested(ctx context.Context, v *identitystore.Vouched) error {
	message := "a second system asked to enrol for the operation while the first one was alive"
	if v.Refused != nil {
		message = "two systems asked to enrol for the operation in which the machine's TPM was first seen (" +
			v.Refused.Reason + "): which of them is the machine is unknown"
	}
	i.Logger.Warn("enrolment contested", "machine_id", v.MachineID, "operation_id", v.OperationID)
	if v.Ended {
		// The operation's result can't be taken back, and which of the two systems it is about is unknown.
		if _, err := i.Operations.Quarantine(ctx, v.MachineID, "ENROLMENT_CONTESTED", message, i.Clock.Now()); err != nil {
			return err
		}
	} else if v.OperationID != "" {
		if _, err := i.Engine.Handle(ctx, v.OperationID,
			operation.Quarantine{Reason: "ENROLMENT_CONTESTED", Message: message}); err != nil {
			return err
		}
	}
	return failure.Precondition("ENROLMENT_CONTESTED", "%s", message)
}

// refused reports a system that can't be the machine. The operation goes on: the machine itself may still come.
func (i *Installers) refused(ctx context.Context, v *identitystore.Vouched) error {
	if v.Report {
		i.Logger.Warn("installer refused", "machine_id", v.MachineID, "operation_id", v.OperationID, "reason",
			v.Refused.Reason)
		if _, err := i.Engine.Handle(ctx, v.OperationID,
			operation.Impostor{Reason: v.Refused.Reason, Message: v.Refused.Message}); err != nil {
			return err
		}
	}
	return failure.Denied(v.Refused.Reason, "%s", v.Refused.Message)
}

// Challenge is what a challenge is for. It travels sealed with the controllers' common key, so that nothing is stored
// and any controller can check the answer.
type Challenge struct {
	SiteAgentID string    `json:"site_agent_id"`
	MachineID   string    `json:"machine_id"`
	BootToken   string    `json:"boot_token"`
	MAC         string    `json:"mac"`
	KeyDigest   []byte    `json:"key_digest"`
	TPMKey      []byte    `json:"tpm_key"`
	Vendor      bool      `json:"vendor"`
	Secret      []byte    `json:"secret"`
	Media       bool      `json:"media,omitempty"`
	Hardware    string    `json:"hardware,omitempty"`
	Expires     time.Time `json:"expires"`
}

// Request is the request that the challenge was made for, with its TPM proven.
func (c Challenge) Request() identitystore.VouchRequest {
	return identitystore.VouchRequest{
		SiteAgentID: c.SiteAgentID, MachineID: c.MachineID, BootToken: c.BootToken, MAC: c.MAC, PublicKeyDigest: c.KeyDigest,
		TPM: &identity.Key{Digest: c.TPMKey, Vendor: c.Vendor}, Proven: true,
		Media: c.Media, Hardware: c.Hardware,
	}
}

// OpenChallenge reads a challenge that a controller of this database has made and that is still good.
func (i *Installers) OpenChallenge(sealed []byte) (Challenge, error) {
	var c Challenge
	plain, err := i.Secrets.Open(challengeName, sealed)
	if err == nil {
		err = json.Unmarshal(plain, &c)
	}
	if err != nil || i.Clock.Now().After(c.Expires) {
		return Challenge{}, failure.Precondition("TPM_CHALLENGE_EXPIRED",
			"the challenge is not ours or older than %s; ask the site for another", challengeLife)
	}
	return c, nil
}

// shownTPM is the TPM that a request shows.
type shownTPM struct {
	endorsement *tpm.EndorsementKey
	vendor      bool
}

func (s *shownTPM) key() *identity.Key {
	if s == nil {
		return nil
	}
	digest := s.endorsement.Digest()
	return &identity.Key{Digest: digest[:], Vendor: s.vendor}
}

// shownTPM reads the TPM's keys; nil if none are shown.
func (i *Installers) shownTPM(r *fleetv1.VouchInstallerRequest) (*shownTPM, error) {
	if len(r.GetEndorsementKey()) == 0 {
		return nil, nil
	}
	ek, err := tpm.ParseEndorsementKey(r.GetEndorsementKey())
	if err != nil {
		return nil, failure.Invalid("INVALID_FIELD", "endorsement_key: %v", err).WithField("endorsement_key", "malformed")
	}
	out := &shownTPM{endorsement: ek}
	if cert := r.GetEndorsementCertificate(); len(cert) > 0 {
		err := ek.VerifyCertificate(cert, i.Roots, i.Clock.Now())
		out.vendor = err == nil
		if err != nil {
			i.Logger.Debug("certificate of a TPM is not believed", "machine_id", r.GetMachineId(), "error", err)
		}
	}
	return out, nil
}

// newChallenge answers a request with a challenge for the TPM that it shows.
func (i *Installers) newChallenge(
	r *fleetv1.VouchInstallerRequest, req identitystore.VouchRequest, shown *shownTPM,
) (*fleetv1.VouchInstallerResponse, error) {
	c, err := tpm.NewChallenge(shown.endorsement, r.GetAttestationKey())
	if errors.Is(err, tpm.ErrKey) {
		return nil, failure.Invalid("INVALID_FIELD", "attestation_key: %v", err).WithField("attestation_key", "malformed")
	}
	if err != nil {
		return nil, err
	}
	plain, err := json.Marshal(Challenge{
		Media: req.Media, Hardware: req.Hardware,
		SiteAgentID: req.SiteAgentID, MachineID: req.MachineID, BootToken: req.BootToken, MAC: req.MAC,
		KeyDigest: req.PublicKeyDigest,
		TPMKey:    req.TPM.Digest, Vendor: req.TPM.Vendor, Secret: c.Secret, Expires: i.Clock.Now().Add(challengeLife),
	})
	if err != nil {
		return nil, fmt.Errorf("encode challenge: %w", err)
	}
	return &fleetv1.VouchInstallerResponse{
		Challenge: i.Secrets.Seal(challengeName, plain), CredentialBlob: c.Blob, EncryptedSeed: c.Seed,
		TrustBundlePem: i.CA.RootPEM(),
	}, nil
}

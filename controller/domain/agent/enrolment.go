// Package agent decides who becomes an agent, and which agent may go on as one: bootstrap tokens, enrolment,
// certificates, sessions, and the withdrawal of a CA's generation. It is pure: rows in, a refusal out.
package agent

import (
	"bytes"
	"crypto/subtle"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/hwid"
)

// Machine is the machine of a token or an agent.
type Machine struct {
	ID      string
	Deleted bool
	State   fleet.NodeState
}

// Issue is a request for a bootstrap token.
type Issue struct {
	RequestID string
	// Machine is that of a host's token; nil for other roles.
	Machine *Machine
	// Earlier is the token that the same request has made; nil for none.
	Earlier *Earlier
}

// Earlier is a token that a request has made before.
type Earlier struct {
	TokenID string
	// Differing are the fields of the request that are not those of the first one.
	Differing     []string
	Used, Revoked bool
	ExpiresAt     time.Time
	// SameSecret reports whether the secret of the token is the one that the answer would have.
	SameSecret bool
}

// Refuse returns why there is no token; nil where there is one, new or the earlier one.
func (i Issue) Refuse(now time.Time) error {
	if i.Machine != nil && i.Machine.Deleted {
		return failure.Precondition("MACHINE_DELETED", "machine %s has been deleted; register it as a new record",
			i.Machine.ID)
	}
	e := i.Earlier
	switch {
	case e == nil:
		return nil
	case len(e.Differing) > 0:
		return failure.AlreadyExists("REQUEST_ID_REUSED", "request_id %q was used with another %s", i.RequestID,
			strings.Join(e.Differing, ", ")).WithField(e.Differing[0], "differs from the first request")
	case e.Used || e.Revoked || !now.Before(e.ExpiresAt) || !e.SameSecret:
		return failure.Precondition("TOKEN_SPENT",
			"token %s of this request can be used no more; ask for another under a new request_id", e.TokenID).
			WithMeta("token_id", e.TokenID)
	}
	return nil
}

// Token is a bootstrap token, with what it is bound to.
type Token struct {
	SecretHash       []byte
	Revoked, Used    bool
	ExpiresAt        time.Time
	Region, Provider string
	MAC, Serial      string
	// UsedKey is the digest of the key that a used token has enrolled. CertificateStands reports whether the certificate
	// of that enrolment is stored and not revoked.
	UsedKey           []byte
	CertificateStands bool
	// Machine is that of a host's token; nil for other roles.
	Machine *Machine
}

// Newcomer is an agent that asks to be enrolled.
type Newcomer struct {
	SecretHash, KeyDigest []byte
	Region, Provider      string
	MACs                  []string
	Serial                string
}

// Verdict is the answer to a newcomer.
type Verdict struct {
	// Refused is nil where the agent is enrolled.
	Refused error
	// Audit is the text by which the audit log has the refusal; empty for one that it does not have.
	Audit string
	// Again reports that the same key was enrolled before with the token, and gets the same certificate.
	Again bool
}

// Proven reports whether the newcomer knows the token's secret while that is in force.
func (t *Token) Proven(n Newcomer, now time.Time) bool {
	return subtle.ConstantTimeCompare(t.SecretHash, n.SecretHash) == 1 && !t.Revoked && now.Before(t.ExpiresAt)
}

// Enroll returns the verdict on a newcomer with a token, which is nil where it is unknown. A token that is unknown,
// wrong, used, expired or revoked has one answer, and so has one of a deleted or retired machine.
func Enroll(t *Token, n Newcomer, now time.Time) Verdict {
	invalid := failure.Unauthenticated("BOOTSTRAP_TOKEN_INVALID", "the bootstrap token is not valid; ask for a new one")
	switch {
	case t == nil:
		return Verdict{Refused: invalid}
	case !t.Proven(n, now):
		return Verdict{Refused: invalid, Audit: "wrong, expired or revoked"}
	case t.Used && (!bytes.Equal(t.UsedKey, n.KeyDigest) || !t.CertificateStands):
		return Verdict{Refused: invalid, Audit: "used with another key, or its certificate is revoked"}
	case t.Used:
		return Verdict{Again: true}
	}
	if err := t.bound(n); err != nil {
		return Verdict{Refused: err, Audit: "bound to another machine"}
	}
	if t.Machine != nil && (t.Machine.Deleted || t.Machine.State == fleet.Retired) {
		return Verdict{Refused: invalid}
	}
	return Verdict{}
}

// bound refuses an agent that does not match the token's region, provider or hardware.
func (t *Token) bound(n Newcomer) error {
	switch {
	case t.Region != "" && t.Region != n.Region:
		return failure.Precondition("REGION_PROVIDER_MISMATCH", "the token is for region %q, the agent says %q",
			t.Region, n.Region)
	case t.Provider != "" && t.Provider != n.Provider:
		return failure.Precondition("REGION_PROVIDER_MISMATCH", "the token is for provider %q, the agent says %q",
			t.Provider, n.Provider)
	case t.MAC != "" && !slices.ContainsFunc(n.MACs, func(m string) bool { return hwid.SameMAC(m, t.MAC) }):
		return failure.Precondition("HARDWARE_MISMATCH", "the token is for MAC address %s, which the agent does not have",
			t.MAC)
	case t.Serial != "" && !hwid.SameSerial(t.Serial, n.Serial):
		return failure.Precondition("HARDWARE_MISMATCH", "the token is for another serial number than the agent's")
	}
	return nil
}

// MayRevoke refuses to revoke a token that has been used. Revoking a revoked one changes nothing.
func MayRevoke(used, revoked bool) error {
	if used && !revoked {
		return failure.Precondition("TOKEN_NOT_REVOCABLE", "the token has been used; revoke the agent instead")
	}
	return nil
}

package attack

import (
	"bytes"
	"context"
	"fmt"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/lab/harness"
)

// identityAttempts are those of boxes on a provisioning segment that claim to be a machine.
func identityAttempts() []Attempt {
	return []Attempt{
		{Party: Box, Attempt: "claim a machine by its MAC", Rule: 2, Run: claimByMAC},
		{Party: Box, Attempt: "swap the key of an installer on its way", Rule: 2, Run: swapKey},
		{Party: Box, Attempt: "claim a machine that boots from virtual media", Rule: 2,
			NotBuilt: "this attempt over the API; TestMediaIsProven makes it at the store"},
	}
}

// claimByMAC: a box with the victim's address, boot token and public keys, without its TPM.
func claimByMAC(ctx context.Context, r *Rig) (Outcome, error) {
	s, err := newSegment(ctx, r)
	if err != nil {
		return Outcome{}, err
	}
	victim, err := s.newBox("victim")
	if err != nil {
		return Outcome{}, err
	}
	a, op, err := s.netboot(ctx, "1")
	if err != nil {
		return Outcome{}, err
	}
	if err := victim.enrol(ctx, a); err != nil {
		return Outcome{}, fmt.Errorf("the first use of the machine's TPM: %w", err)
	}
	if err := s.end(ctx, op); err != nil {
		return Outcome{}, err
	}
	if a, _, err = s.netboot(ctx, "2"); err != nil {
		return Outcome{}, err
	}
	before, err := s.installers(ctx)
	if err != nil {
		return Outcome{}, err
	}
	if out, err := s.boxes(ctx, victim, a); err != nil || out.Breach {
		return out, err
	}
	after, err := s.installers(ctx)
	switch audit, auditErr := r.C.Admin().ListAuditLog(ctx, &baremetalv1.ListAuditLogRequest{TargetId: s.Machine}); {
	case err != nil || auditErr != nil:
		return Outcome{}, fmt.Errorf("%w, %w", err, auditErr)
	case after != before:
		return breached("%d installers were certified", after-before), nil
	case !bytes.Contains([]byte(audit.String()), []byte("REFUSE_INSTALLER")):
		return breached("nothing in the audit log"), nil
	}
	again, err := s.newBox("")
	if err != nil {
		return Outcome{}, err
	}
	again.tpm = victim.tpm
	if err := again.enrol(ctx, a); err != nil {
		return breached("the machine itself is refused afterwards: %v", err), nil
	}
	return held("no TPM, another TPM, the public keys alone: refused and audited; the machine itself enrols"), nil
}

// boxes makes the claims of one box without a TPM, one with its own, and one that shows the victim's public keys.
func (s *segment) boxes(ctx context.Context, victim *box, a *fleetv1.BootAssignment) (Outcome, error) {
	plain, err := s.newBox("")
	if err != nil {
		return Outcome{}, err
	}
	if _, err := plain.claim(ctx, a, nil); !harness.HasReason(err, "TPM_REQUIRED") {
		return breached("a box without a TPM: %v", err), nil
	}
	other, err := s.newBox("other")
	if err != nil {
		return Outcome{}, err
	}
	if _, err := other.claim(ctx, a, other.tpm); !harness.HasReason(err, "TPM_MISMATCH") {
		return breached("a box with another TPM: %v", err), nil
	}
	shown := *victim.tpm
	shown.Attestation = other.tpm.Attestation
	v, err := other.claim(ctx, a, &shown)
	if err != nil || len(v.GetCertificateChainPem()) > 0 {
		return breached("a box that shows the victim's key: %v", err), nil
	}
	if secret, err := other.tpm.Activate(v.GetCredentialBlob(), v.GetEncryptedSeed()); err == nil {
		return breached("another TPM releases %x", secret), nil
	}
	conn, err := s.r.enrolment(nil)
	if err != nil {
		return Outcome{}, err
	}
	guess, err := other.proofOver(ctx, conn, make([]byte, 32), v.GetChallenge())
	if err != nil {
		return Outcome{}, err
	}
	if err := other.bring(ctx, conn, v.GetChallenge(), guess); !harness.HasReason(err, "TPM_PROOF_INVALID") {
		return breached("a guessed proof: %v", err), nil
	}
	if err := other.bring(ctx, conn, append([]byte{1}, v.GetChallenge()...), guess); !harness.HasReason(err,
		"TPM_CHALLENGE_EXPIRED") {
		return breached("a forged challenge: %v", err), nil
	}
	return held(""), nil
}

// swapKey: a box between the victim and the site passes everything on, but for the key to certify; and uses the
// victim's proof for itself.
func swapKey(ctx context.Context, r *Rig) (Outcome, error) {
	s, err := newSegment(ctx, r)
	if err != nil {
		return Outcome{}, err
	}
	victim, err := s.newBox("victim")
	if err != nil {
		return Outcome{}, err
	}
	between, err := s.newBox("")
	if err != nil {
		return Outcome{}, err
	}
	a, _, err := s.netboot(ctx, "1")
	if err != nil {
		return Outcome{}, err
	}
	conn, err := r.enrolment(nil)
	if err != nil {
		return Outcome{}, err
	}
	elsewhere, err := r.enrolment(nil)
	if err != nil {
		return Outcome{}, err
	}
	// The challenge for the box's own key, released by the victim's TPM, which proves its own key.
	v, err := between.claim(ctx, a, victim.tpm)
	if err != nil {
		return Outcome{}, err
	}
	secret, err := victim.tpm.Activate(v.GetCredentialBlob(), v.GetEncryptedSeed())
	if err != nil {
		return Outcome{}, err
	}
	proof, err := victim.proofOver(ctx, conn, secret, v.GetChallenge())
	if err != nil {
		return Outcome{}, err
	}
	for who, b := range map[string]*box{"the box's key": between, "the victim's key": victim} {
		if err := b.bring(ctx, conn, v.GetChallenge(), proof); !harness.HasReason(err, "TPM_PROOF_INVALID") {
			return breached("a challenge for the box's key, proven by the victim, with %s: %v", who, err), nil
		}
	}
	// The victim's own proof, on another connection than it was made for.
	if v, err = victim.claim(ctx, a, victim.tpm); err != nil {
		return Outcome{}, err
	}
	if secret, err = victim.tpm.Activate(v.GetCredentialBlob(), v.GetEncryptedSeed()); err != nil {
		return Outcome{}, err
	}
	if proof, err = victim.proofOver(ctx, conn, secret, v.GetChallenge()); err != nil {
		return Outcome{}, err
	}
	if err := victim.bring(ctx, elsewhere, v.GetChallenge(), proof); !harness.HasReason(err, "TPM_PROOF_INVALID") {
		return breached("a proof on another connection: %v", err), nil
	}
	if err := victim.bring(ctx, conn, v.GetChallenge(), proof); err != nil {
		return breached("the machine itself is refused: %v", err), nil
	}
	return held("a swapped key, a proof on another connection: refused; the machine itself enrols"), nil
}

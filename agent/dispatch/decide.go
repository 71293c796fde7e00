package dispatch

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/internal/pki"
)

// GrantWindow is how long after the ask a grant may be acted on, by the boot-time clock.
const GrantWindow = 30 * time.Second

const (
	nonceSize      = 16
	defaultTimeout = 10 * time.Minute
)

// parse checks a command as received. The spec is returned even with an error, as far as it could be read.
func parse(c *fleetv1.Command) (*fleetv1.CommandSpec, error) {
	spec := &fleetv1.CommandSpec{}
	if sum := sha256.Sum256(c.GetSpec()); !bytes.Equal(sum[:], c.GetDigest()) {
		return spec, errors.New("the digest is not that of the command")
	}
	if err := proto.Unmarshal(c.GetSpec(), spec); err != nil {
		return spec, fmt.Errorf("decode command: %w", err)
	}
	switch {
	case spec.GetCommandId() != c.GetCommandId():
		return spec, fmt.Errorf("the command says that it is %q", spec.GetCommandId())
	case spec.GetTargetId() == "":
		return spec, errors.New("the command names no target")
	case spec.GetAction() == nil:
		return spec, errors.New("the command has no action that this agent knows")
	}
	return spec, nil
}

// needsGrant reports whether a command must not start without a grant: it asks for one, or its action is not declared
// harmless.
func (c Config) needsGrant(spec *fleetv1.CommandSpec) bool {
	return spec.GetNeedsGrant() || c.Harm == nil || c.Harm(spec).NeedsGrant()
}

// circumstances are what speaks for or against the start of a command.
type circumstances struct {
	now        time.Time // the controller's, as far as known
	locked     string    // by whom and why; empty: not locked
	canceled   bool
	needsGrant bool
}

// admit returns the refusal of a command that may not be started, or nil.
func admit(spec *fleetv1.CommandSpec, c circumstances) *executor.Result {
	var r executor.Result
	switch {
	case c.canceled:
		r = executor.Canceled("canceled before it was started")
	case spec.GetExpiresAt() != nil && !c.now.Before(spec.GetExpiresAt().AsTime()):
		r = executor.Refused(baremetalv1.Reason_COMMAND_EXPIRED, "expired at %s",
			spec.GetExpiresAt().AsTime().Format(time.RFC3339))
	case c.locked != "" && c.needsGrant:
		r = executor.Refused(baremetalv1.Reason_AGENT_LOCKED, "locked by a local operator: %s", c.locked)
	default:
		return nil
	}
	return &r
}

// ask is one numbered request for a grant.
type ask struct {
	claims pki.GrantClaims // what the answer must be over, but for its time
	asked  time.Duration   // boot-time clock
	held   []byte          // the grant that answered it, as the agent's memory keeps it
	// earlier are the numbers of the asks for the same command before.
	earlier []uint64
}

// verify returns nil when the grant answers the ask and is signed by any of the keys.
func (a ask) verify(g *fleetv1.Grant, keys []ed25519.PublicKey) error {
	if g.GetTargetId() != a.claims.TargetID || !bytes.Equal(g.GetDigest(), a.claims.Digest) {
		return errors.New("the grant is for another target or command")
	}
	claims := a.claims
	claims.IssuedAtUnixMs = g.GetIssuedAtUnixMs()
	err := errors.New("no key to verify grants with")
	for _, key := range keys {
		if err = pki.VerifyGrant(key, claims, g.GetSignature()); err == nil {
			return nil
		}
	}
	return err
}

// fresh reports whether an answer to the ask may still be acted on.
func (a ask) fresh(boottime time.Duration) bool {
	return boottime-a.asked <= GrantWindow
}

// remaining is how long a command that was started earlier may still take. After a clock was set back it is the whole
// time again.
func remaining(spec *fleetv1.CommandSpec, startedAt, now time.Time) time.Duration {
	whole := timeout(spec)
	left := whole - now.Sub(startedAt)
	return min(max(left, time.Second), whole)
}

func timeout(spec *fleetv1.CommandSpec) time.Duration {
	if ms := spec.GetTimeoutMs(); ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return defaultTimeout
}

// wire returns a result in the form in which it is stored and sent.
func (d *Dispatcher) wire(id, stateID string, r executor.Result) *fleetv1.CommandResult {
	out := &fleetv1.CommandResult{
		CommandId: id, Outcome: r.Outcome, Message: r.Message, Evidence: r.Evidence, Retryable: r.Retryable,
		FinishedAt: timestamppb.New(d.cfg.Clock.Now()), Simulated: d.cfg.Simulated, StateId: stateID,
	}
	if r.Reason != baremetalv1.Reason_REASON_UNSPECIFIED {
		out.Reason = r.Reason.String()
	}
	return out
}

// LostResult is the result of a command whose record turned out to be an old copy: whether it was executed since is
// unknown.
func LostResult(id, stateID string, simulated bool, now time.Time) ([]byte, error) {
	b, err := proto.Marshal(&fleetv1.CommandResult{
		CommandId: id, Outcome: fleetv1.CommandResult_UNKNOWN,
		Reason:     baremetalv1.Reason_AGENT_STATE_ROLLED_BACK.String(),
		Message:    "the agent's memory was rolled back to a copy; the command may have been executed before",
		FinishedAt: timestamppb.New(now), Simulated: simulated, StateId: stateID,
	})
	if err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	return b, nil
}

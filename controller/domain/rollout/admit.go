package rollout

import (
	"fmt"

	"github.com/ingot-metal/ingot/controller/domain/membership"
	"github.com/ingot-metal/ingot/internal/failure"
)

// MaxMachines bounds the machines of one rollout: all of them are judged while a client waits.
const MaxMachines = 10_000

// MayHold refuses a choice of more machines than a rollout has. field is the request's field that makes the choice.
func MayHold(machines int, field string) error {
	if machines <= MaxMachines {
		return nil
	}
	return failure.Precondition("ROLLOUT_TOO_LARGE", "more than %d machines; narrow the choice, such as by site or rack",
		MaxMachines).WithField(field, "too many machines")
}

// Previewed refuses a rollout whose preview was another one. digest is that of a preview made now.
func Previewed(digest, asked string) error {
	if digest == asked {
		return nil
	}
	return changed(digest, "fleet, plan or spec have changed since the preview; look at a new one")
}

func changed(digest, why string) error {
	return failure.Precondition("ROLLOUT_CHANGED", "%s: its digest is %s", why, digest).
		WithField("digest", "not the current one").WithMeta("digest", digest)
}

// NotEmpty refuses a rollout without a wave, because all of its machines were refused.
func NotEmpty(waves, machines int) error {
	if waves > 0 {
		return nil
	}
	return failure.Precondition("ROLLOUT_EMPTY", "no machine of those chosen can be worked on; the preview says why").
		WithMeta("refused", fmt.Sprint(machines))
}

// Approval is an approval of a rollout. Identities differ between people of one name, and a token that a person has
// made has that person's; they are empty for callers and rollouts of an older version.
type Approval struct {
	// Digest is the rollout's, and Asked that which is approved.
	Digest, Asked                string
	CreatedBy, CreatedByIdentity string
	Actor, Identity              string
}

// Refuse returns why the approval does not count; nil if it does.
func (a Approval) Refuse() error {
	same := a.CreatedByIdentity == a.Identity
	if a.CreatedByIdentity == "" || a.Identity == "" {
		same = a.CreatedBy == a.Actor
	}
	switch {
	case a.Digest != a.Asked:
		return changed(a.Digest, "the digest is not that of the rollout")
	case same && a.Actor != a.CreatedBy:
		return failure.Denied("ROLLOUT_SELF_APPROVAL",
			"%s has created the rollout, and is the same person as %s; another person must approve it", a.CreatedBy, a.Actor)
	case same:
		return failure.Denied("ROLLOUT_SELF_APPROVAL", "%s has created the rollout; another person must approve it",
			a.Actor)
	}
	return nil
}

// Take returns the state after an action on a rollout, or why it is not taken.
func Take(rolloutID string, s State, a Action) (State, error) {
	o := Act(s, a)
	if o.Refused == "" {
		return o.To, nil
	}
	text := map[string]string{
		ended:       "the rollout has ended",
		notApproved: "the rollout waits for a second person's approval; approve it or cancel it",
		stopped:     "the rollout is being stopped, which cannot be taken back",
	}[o.Refused]
	return "", failure.Precondition(o.Refused, "%s (%s is %s)", text, rolloutID, s).WithMeta("rollout_id", rolloutID)
}

// ReasonOutside is the reason of machines that a rollout's creator may not work on any more.
const ReasonOutside = "OUTSIDE_SELECTION"

// MayWork refuses a machine that the rights of the rollout's creator do not cover any more: the machine has left the
// selection, or a role or a token was removed.
func MayWork(createdBy string, rights membership.Roles, f membership.Fields) error {
	if rights.LevelAt(f) >= membership.Operate {
		return nil
	}
	return failure.Denied(ReasonOutside,
		"the roles of %s, who created the rollout, do not cover the machine now", createdBy)
}

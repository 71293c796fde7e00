package node

import (
	"fmt"
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// Guard names what must hold for a change besides its place in the table.
type Guard string

// The guards.
const (
	// AttemptsSpent: the last of MaxAttempts install attempts has failed.
	AttemptsSpent Guard = "attempts_spent"
	// ForcedNewPlan: the admin forces it, and the node has another plan than the one that failed; or asks to install it
	// again.
	ForcedNewPlan Guard = "forced_new_plan"
	// Idle: no operation is active on the machine; one that is must be cancelled first.
	Idle Guard = "idle"
	// Erased: the disks' erasure has been read back, where the mode erases.
	Erased Guard = "erased"
	// Purged: what holds a system leaves by a drain or a decommission, or is retired with purge.
	Purged Guard = "purged"
	// PurgedByDelete: a record goes without removal work through the call DeleteMachine alone, with purge where it holds a
	// system.
	PurgedByDelete Guard = "purged_by_delete"
	// CameFrom: a quarantined node goes back to the state that it was in.
	CameFrom Guard = "came_from"
	// Commented: the admin's call has a comment.
	Commented Guard = "commented"
)

// MaxAttempts is how many installations of one plan may fail before a person must look.
const MaxAttempts = 3

// Facts is what guards look at.
type Facts struct {
	// Attempts counts the failed one that is being judged.
	Attempts int
	// PlanID is the node's plan now, FailedPlanID the one under which its attempts were spent.
	PlanID, FailedPlanID string
	Force                bool
	// ActiveOperation is empty when none is active.
	ActiveOperation string
	// ErasureRequired is set when the decommission's mode erases, ErasureVerified when its evidence was read back.
	ErasureRequired, ErasureVerified bool
	// Deleting reports whether DeleteMachine asks; Purge, whether an admin leaves out the decommission.
	Deleting, Purge bool
	// Holds reports whether the disks hold a system that work ran on, or may have.
	Holds bool
	// Installs is set when an operator asks for another installation, which is a new plan and a force in one.
	Installs bool
	// From is the state that a quarantined node was in.
	From State
	// Comment reports whether the admin has given one.
	Comment bool
	// to is the state that is asked for; Check sets it.
	to State
}

// Check decides whether a change may happen. It returns the row, or why not.
func Check(from, to State, by Trigger, f Facts) (Transition, *fleet.Refusal) {
	if from == Deleted {
		return Transition{}, &fleet.Refusal{Reason: "NODE_IDENTITY_DELETED",
			Message: "the node has been deleted and its identity is not used again; register the machine as a new record"}
	}
	t, ok := Find(from, to, by)
	if !ok {
		return t, &fleet.Refusal{Reason: "NODE_TRANSITION_ILLEGAL", Message: illegal(from, to, by)}
	}
	f.to, f.Holds = to, f.Holds || Holds(from, f.From, false)
	return t, t.Guard.check(f)
}

// Open lists where a trigger may move a node now: the rows of the table whose guards pass.
func Open(from State, by Trigger, f Facts) []State {
	return slices.DeleteFunc(Targets(from, by), func(to State) bool {
		_, refusal := Check(from, to, by, f)
		return refusal != nil
	})
}

func illegal(from, to State, by Trigger) string {
	text := fmt.Sprintf("a node that is %s cannot become %s", Name(from), Name(to))
	if len(transitionsBetween(from, to)) > 0 {
		text += fmt.Sprintf(" by %s", by)
	}
	return text + "; from here " + string(by) + " may move it to " + list(Targets(from, by))
}

func transitionsBetween(from, to State) []Transition {
	var out []Transition
	for _, t := range From(from) {
		if t.To == to {
			out = append(out, t)
		}
	}
	return out
}

// Targets lists where a trigger may move a node from a state, each once, by the order of the wire.
func Targets(from State, by Trigger) []State {
	var out []State
	for _, t := range From(from) {
		if _, ok := Find(from, t.To, by); ok && (len(out) == 0 || out[len(out)-1] != t.To) {
			out = append(out, t.To)
		}
	}
	return out
}

func list(states []State) string {
	text := ""
	for i, s := range states {
		if i > 0 {
			text += ", "
		}
		text += Name(s)
	}
	if text == "" {
		return "no other state"
	}
	return text
}

func (g Guard) check(f Facts) *fleet.Refusal {
	refuse := func(format string, args ...any) *fleet.Refusal {
		return &fleet.Refusal{Reason: "NODE_GUARD_FAILED", Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case g == AttemptsSpent && f.Attempts < MaxAttempts:
		return refuse("only %d of %d install attempts have failed", f.Attempts, MaxAttempts)
	case g == ForcedNewPlan && f.Installs:
		return nil
	case g == ForcedNewPlan && !f.Force:
		return refuse("%d install attempts have failed; assign another plan, then ask again with force", MaxAttempts)
	case g == ForcedNewPlan && f.PlanID == f.FailedPlanID:
		return refuse("the node still has plan %q, which failed %d times; assign another plan first", f.PlanID, MaxAttempts)
	case g == Idle && f.ActiveOperation != "":
		return &fleet.Refusal{Reason: "MACHINE_BUSY",
			Message: "operation " + f.ActiveOperation + " is active on the machine; wait for it or cancel it first"}
	case g == Erased && f.ErasureRequired && !f.ErasureVerified:
		return refuse("the erasure of the disks has not been verified")
	case g == PurgedByDelete && !f.Deleting:
		return refuse("a record is deleted by DeleteMachine, or by a full decommission")
	case (g == Purged || g == PurgedByDelete) && f.Holds && !f.Purge:
		return &fleet.Refusal{Reason: "DECOMMISSION_REQUIRED",
			Message: "the node's disks hold a system and its data; decommission it (ingot decommission), or an admin asks " +
				"again with purge"}
	case g == Purged && f.ActiveOperation != "":
		return Idle.check(f)
	case g == CameFrom && f.From != f.to:
		return refuse("the node was %s when it was quarantined; %s", Name(f.From), leaves(f.From))
	case g == Commented && !f.Comment:
		return refuse("say in the comment why the node is quarantined")
	}
	return nil
}

// leaves returns a text for people: how a node leaves quarantine, by its state at that time.
func leaves(from State) string {
	if Resting(from) {
		return "it goes back to that, to draining or to retired"
	}
	return "that stood for work which no operation does any more, so it goes on to draining or retired, or its " +
		"workflow is resumed"
}

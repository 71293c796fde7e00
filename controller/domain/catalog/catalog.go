// Package catalog decides which images, plans and scripts may be removed: none that something needs. It is pure: uses
// in, a refusal out.
package catalog

import "github.com/ingot-metal/ingot/internal/failure"

// ImageUse is what needs an image. Empty texts stand for nothing.
type ImageUse struct {
	// System reports whether the image is an operating system; else it is a file of an installer.
	System bool
	// ServerDefault reports whether the server's configuration names the system. Machine is one whose default it is, and
	// Operation one under way that writes it.
	ServerDefault      bool
	Machine, Operation string
	// Served reports whether the file is part of the newest installer, and Boots, whether machines boot an installer.
	Served, Boots bool
}

// MayRemoveImage refuses to remove an image that is used, and names the user.
func MayRemoveImage(ref string, u ImageUse) error {
	const reason = "IMAGE_IN_USE"
	switch {
	case !u.System && u.Served && u.Boots:
		return failure.Precondition(reason,
			"machines boot the installer that %s is part of; add a newer one first, or wait", ref)
	case !u.System:
		return nil
	case u.ServerDefault:
		return failure.Precondition(reason, "%s is the server's default image", ref)
	case u.Machine != "":
		return failure.Precondition(reason, "%s is the default image of machine %s", ref, u.Machine).
			WithMeta("machine_id", u.Machine)
	case u.Operation != "":
		return failure.Precondition(reason, "operation %s writes %s", u.Operation, ref).
			WithMeta("operation_id", u.Operation)
	}
	return nil
}

// PlanUse is what needs a plan.
type PlanUse struct {
	// BuiltIn reports whether the plan is ours, and Used, whether an operation has run it.
	BuiltIn, Used bool
	// NamedBy is what names it, as people read it; empty for nothing.
	NamedBy string
}

// MayDeletePlan refuses to delete a plan that something needs.
func MayDeletePlan(id string, u PlanUse) error {
	const reason = "PLAN_IN_USE"
	switch {
	case u.BuiltIn:
		return failure.Precondition(reason,
			"plan %s is built in; create one under another plan_id to run something else", id)
	case u.Used:
		return failure.Precondition(reason,
			"a run has used plan %s, whose record must stay readable: ingot runs lists runs", id)
	case u.NamedBy != "":
		return failure.Precondition(reason, "%s names plan %s; give it another plan first", u.NamedBy, id)
	}
	return nil
}

// MayRemoveScript refuses to remove a script that an operation under way needs; empty for none.
func MayRemoveScript(ref, operation string) error {
	if operation == "" {
		return nil
	}
	return failure.Precondition("SCRIPT_IN_USE", "operation %s needs %s", operation, ref).
		WithMeta("operation_id", operation)
}

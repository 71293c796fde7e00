package start

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

// Request asks for one piece of work on one machine.
type Request struct {
	MachineID string
	RequestID string
	Type      fleet.OperationType
	// PlanID overrides the type's default plan.
	PlanID string
	// Params are what the client asked for, by field name. They are stored, shown, and compared on a repeat.
	Params map[string]string
	Inputs kind.Inputs
	// Actor is the caller's opaque name; Comment is free text and is stored in the audit log only.
	Actor   string
	Comment string
	// Internal reports whether the controller itself chose the work: the plan need not be one that clients may name.
	Internal bool
	// Removes reports whether the operation is of the workflow that takes a retired machine out of the inventory.
	Removes bool
	// AfterInstall reports whether another operation replaces the machine's system before this one; only previews ask
	// that.
	AfterInstall bool
	// Harm is done besides what the plan does, such as by the node state in which the operation ends.
	Harm kind.Harm
	// Judged reports whether approval policies have judged the work already, such as a rollout as a whole.
	Judged bool
}

// Body returns the fields by which two requests are the same.
func (r Request) Body() map[string]string {
	b := map[string]string{"type": string(r.Type), "plan_id": r.PlanID}
	for k, v := range r.Params {
		if v != "" {
			b[k] = v
		}
	}
	if r.Inputs.Config != nil {
		// A message from the wire always serializes.
		raw, _ := proto.MarshalOptions{Deterministic: true}.Marshal(r.Inputs.Config)
		b["config"] = fmt.Sprintf("%x", raw)
	}
	return b
}

// sameAsNone are values of parameters that mean the same as leaving the parameter out, in every type that takes it.
var sameAsNone = map[string][]string{
	"mode": {"graceful", "PXE"}, "reboot_mode": {"graceful"}, "netboot_mode": {"PXE"}, "path": {"auto"},
	"reboot": {"false"}, "agentless": {"false"}, "timeout_seconds": {"0"},
}

// NormalBody returns the body of a request without its defaults, for an operation of type t that runs a plan: a request
// that names a default is the same as one that leaves it out.
func NormalBody(t fleet.OperationType, planID string, body map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range body {
		if !slices.Contains(sameAsNone[k], v) {
			out[k] = v
		}
	}
	if id := out["plan_id"]; id == planID && id == fleet.DefaultPlan(t) || id == "" {
		delete(out, "plan_id")
	}
	return out
}

// PlanID returns the plan that the request runs on the machine. A machine that is in no cluster has nothing to drain.
func (f *Facts) PlanID() string {
	r, m := f.Request, f.Machine
	switch {
	case r.PlanID == "" && r.Type == fleet.Reimage && m.InstallPlan != "":
		return m.InstallPlan
	case r.PlanID == "" && r.Type == fleet.Reimage && m.Provider == workflow.ProviderMAAS:
		return plan.RepaveMAAS
	case r.PlanID == "":
		return fleet.DefaultPlan(r.Type)
	case r.Internal && r.PlanID == node.DrainPlan && m.Spec.GetTargetClusterRef() == "" &&
		!m.Conditions[fleet.InCustomerCluster]:
		return plan.DrainNone
	}
	return r.PlanID
}

// drains reports whether the operation is one that takes a node out of quarantine: its drain, or its decommission,
// unless two machines answer in the node's name.
func (f *Facts) drains() bool {
	r := f.Request
	return (r.Internal && r.PlanID == node.DrainPlan || r.Type == fleet.Decommission) &&
		f.Machine.NodeState == fleet.Quarantined && !Contested(f.Machine.NodeState, f.Machine.QuarantineReason)
}

// Contested reports whether a node is quarantined because two machines answer in its name.
func Contested(state fleet.NodeState, quarantineReason string) bool {
	class, _ := workflow.Classify(quarantineReason)
	return state == fleet.Quarantined && class == workflow.ClassConflict && quarantineReason != "MACHINE_QUARANTINED"
}

package ingot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/api/client"
)

// Keys of a machine's private state. OpenTofu plans a replacement as a change of the old object, and then as a new
// object that still carries the private state of the first plan; a destroy is planned once, as such.
const (
	// privateManaged: the object has a state.
	privateManaged = "managed"
	// privateDestroy: the plan is a destroy.
	privateDestroy = "destroy"
)

const neverReplaced = "A machine is not replaced"

// wayOut is what to do instead of a replacement.
func wayOut(id string) string {
	return fmt.Sprintf(
		"Nothing was done to %[1]s. A machine that is deleted does not come back: the same hardware returns "+
			"as a new record under a new machine_id, without its labels, history and credentials. "+
			"To write its disk again, raise the generation of its ingot_installation. To change fields, apply them without "+
			"-replace, after tofu untaint where it is tainted. To manage another machine, add a resource for it; to stop "+
			"managing this one, tofu state rm. To take %[1]s out of the inventory, destroy it.",
		id,
	)
}

// privateState is what the framework carries for a resource from plan to apply.
type privateState interface {
	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
}

func isSet(ctx context.Context, p privateState, key string) (bool, diag.Diagnostics) {
	raw, diags := p.GetKey(ctx, key)
	return string(raw) == "true", diags
}

// destroyPlanned reports whether the plan that is carried out is a destroy.
func destroyPlanned(ctx context.Context, p privateState) (bool, diag.Diagnostics) {
	return isSet(ctx, p, privateDestroy)
}

// ModifyPlan implements resource.ResourceWithModifyPlan. It refuses a replacement, and tells what a destroy does.
func (r *machineResource) ModifyPlan(
	ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse,
) {
	destroys, creates := req.Plan.Raw.IsNull(), req.State.Raw.IsNull()
	managed, diags := isSet(ctx, req.Private, privateManaged)
	resp.Diagnostics.Append(diags...)
	resp.Diagnostics.Append(resp.Private.SetKey(ctx, privateDestroy, fmt.Append(nil, destroys))...)
	if !creates {
		resp.Diagnostics.Append(resp.Private.SetKey(ctx, privateManaged, []byte("true"))...)
	}
	var plan, state machineModel
	if !creates {
		resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	}
	if !destroys {
		resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	switch {
	case destroys:
		r.foretell(ctx, &resp.Diagnostics, state)
	case creates && managed && r.exists(ctx, plan.MachineID.ValueString()):
		resp.Diagnostics.AddError(neverReplaced, wayOut(plan.MachineID.ValueString()))
	case !creates && !plan.MachineID.Equal(state.MachineID):
		resp.Diagnostics.AddAttributeError(path.Root("machine_id"), neverReplaced, wayOut(state.MachineID.ValueString()))
	}
}

// exists reports whether a machine is in the inventory as far as the controller tells. One that somebody has removed
// meanwhile is not replaced: it is registered anew, and refused then.
func (r *machineResource) exists(ctx context.Context, id string) bool {
	if r.c == nil {
		return true
	}
	_, err := r.c.machines.GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: id})
	return !gone(err)
}

// whatDestroyDoes is told before a destroy, by on_destroy.
var whatDestroyDoes = map[string]string{
	destroyRelease: "takes %s out of the inventory unless it is in service, and leaves its disks alone.",
	destroyPurge:   "takes %s out of the inventory although it may be in service, and leaves its disks alone.",
	destroyErase:   "takes %s out of service, erases every disk that is not protected, and removes it from the inventory.",
}

// foretell adds to the plan of a destroy what it does, and why it would be refused now.
func (r *machineResource) foretell(ctx context.Context, diags *diag.Diagnostics, state machineModel) {
	id, how := state.MachineID.ValueString(), state.OnDestroy.ValueString()
	text := fmt.Sprintf("on_destroy = %q "+whatDestroyDoes[how], how, id) + " The record is closed for ever: the same " +
		"hardware returns as a new record under a new machine_id. To leave the machine as it is: tofu state rm."
	if r.c != nil {
		m, err := r.c.machines.GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: id})
		if gone(err) {
			return // it is removed already
		}
		if others := unnamedLabels(m, state); len(others) > 0 {
			text += " It carries labels that this configuration does not name: " + strings.Join(others, ", ") + "."
		}
		if err == nil && how == destroyErase {
			_, err = r.c.workflows.StartWorkflow(ctx, erasure(id, true))
		}
		if err != nil {
			text += " The controller would refuse it now: " + detail(err, nil)
		}
	}
	diags.AddWarning("A machine is removed", text)
}

// unnamedLabels are the labels of a machine that the state does not own, sorted.
func unnamedLabels(m *baremetalv1.Machine, state machineModel) (out []string) {
	owned := state.Labels.Elements()
	for key, value := range m.GetLabels() {
		if _, ok := owned[key]; !ok {
			out = append(out, key+"="+value)
		}
	}
	slices.Sort(out)
	return out
}

// erasure is the request for a full decommission. It is the same each time, so that it happens once.
func erasure(id string, validateOnly bool) *baremetalv1.StartWorkflowRequest {
	return &baremetalv1.StartWorkflowRequest{
		MachineId: id, RequestId: client.RequestID("opentofu", "erase", id), Kind: baremetalv1.Workflow_DECOMMISSION,
		Mode: baremetalv1.Workflow_FULL_DECOMMISSION, EnterMaintenance: true, ValidateOnly: validateOnly,
	}
}

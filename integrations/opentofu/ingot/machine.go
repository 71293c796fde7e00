package ingot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/api/client"
)

// What destroying a machine does.
const (
	destroyRelease = "release"
	destroyPurge   = "purge"
	destroyErase   = "erase"
)

type machineModel struct {
	MachineID types.String `tfsdk:"machine_id"`
	Labels    types.Map    `tfsdk:"labels"`
	Spec      types.Object `tfsdk:"spec"`
	OnDestroy types.String `tfsdk:"on_destroy"`
}

// machineResource is a machine of the inventory. A configuration owns the labels and the fields that it names, and
// leaves the others alone. An import owns nothing. A machine is never replaced: see replace.go.
type machineResource struct{ withController }

// Metadata implements resource.Resource.
func (*machineResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "ingot_machine"
}

// Schema implements resource.Resource.
func (*machineResource) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		Description: "A machine of the inventory. One that is registered already is imported by its machine_id.",
		Attributes: map[string]schema.Attribute{
			"machine_id": schema.StringAttribute{Required: true,
				Description: "Its identity, for ever: the id of a machine that was removed is not used again. Another id is " +
					"refused at the plan."},
			"labels": schema.MapAttribute{Optional: true, ElementType: types.StringType,
				Description: "Labels that the configuration owns. Others stay as they are."},
			"spec": schema.SingleNestedAttribute{Optional: true, Computed: true, Attributes: specAttributes(),
				Description:   "What is known of the machine. What the configuration does not name stays as it is.",
				PlanModifiers: []planmodifier.Object{objectplanmodifier.UseStateForUnknown()}},
			"on_destroy": schema.StringAttribute{Optional: true, Computed: true,
				Default: stringdefault.StaticString(destroyRelease),
				Validators: []validator.String{
					oneOf{destroyRelease, destroyPurge, destroyErase}},
				Description: "What destroy does, after an apply of it. release: takes a machine that is not in service out of " +
					"the inventory. purge: also one that is in service, with a token of an admin. Both leave the disks alone. " +
					"erase: a full decommission, which erases every unprotected disk and proves it."},
		},
	}
}

// Create implements resource.Resource. A registration whose answer was lost is repeated under the same request id. A
// machine that was registered elsewhere is refused.
func (r *machineResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var plan machineModel
	if resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...); resp.Diagnostics.HasError() {
		return
	}
	id := plan.MachineID.ValueString()
	want := &baremetalv1.Machine{MachineId: id, Labels: labelsOf(plan.Labels), Spec: specMessage(plan.Spec)}
	request, err := registration(want)
	if err != nil {
		resp.Diagnostics.AddError("Register "+id, err.Error())
		return
	}
	m, err := r.c.machines.RegisterMachine(ctx,
		&baremetalv1.RegisterMachineRequest{Machine: want, CreateOnly: true, RequestId: request})
	if err != nil {
		r.c.failed(ctx, &resp.Diagnostics, "Register "+id, "", err, registerHint(err, id))
		return
	}
	// The answer to a repeat is the machine as it is by now.
	is := machineModel{Labels: labelsValue(m.GetLabels(), plan.Labels), Spec: specObject(m.GetSpec())}
	if m = r.change(ctx, &resp.Diagnostics, plan, is, m); m != nil {
		resp.Diagnostics.Append(resp.State.Set(ctx, plan.settled(m))...)
	}
}

// registration is the request id of a registration: the same machine said in the same way is the same request.
func registration(m *baremetalv1.Machine) (string, error) {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	return client.RequestID("opentofu", "register", m.GetMachineId(), hex.EncodeToString(sum[:8])), nil
}

func registerHint(err error, id string) string {
	switch client.Reason(err) {
	case baremetalv1.Reason_MACHINE_EXISTS:
		return "Adopt the machine that is there: tofu import ingot_machine.NAME " + id
	case baremetalv1.Reason_MACHINE_DELETED:
		return "Choose another machine_id."
	}
	return ""
}

// Read implements resource.Resource.
func (r *machineResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var state machineModel
	if resp.Diagnostics.Append(req.State.Get(ctx, &state)...); resp.Diagnostics.HasError() {
		return
	}
	id := state.MachineID.ValueString()
	m, err := r.c.machines.GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: id})
	switch {
	case gone(err):
		resp.State.RemoveResource(ctx)
		return
	case err != nil:
		r.c.failed(ctx, &resp.Diagnostics, "Read "+id, "", err)
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, state.refreshed(m))...)
}

// Update implements resource.Resource.
func (r *machineResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan, state machineModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.Append(req.State.Get(ctx, &state)...); resp.Diagnostics.HasError() {
		return
	}
	id := plan.MachineID.ValueString()
	m, err := r.c.machines.GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: id})
	if err != nil {
		r.c.failed(ctx, &resp.Diagnostics, "Read "+id, "", err)
		return
	}
	if m = r.change(ctx, &resp.Diagnostics, plan, state, m); m != nil {
		resp.Diagnostics.Append(resp.State.Set(ctx, plan.settled(m))...)
	}
}

// change writes what a plan sets otherwise than it is, and nothing else. It returns nil when it has failed.
func (r *machineResource) change(
	ctx context.Context, diags *diag.Diagnostics, plan, is machineModel, m *baremetalv1.Machine,
) *baremetalv1.Machine {
	paths := append(labelChanges(plan.Labels, is.Labels), specChanges(plan.Spec, is.Spec)...)
	if len(paths) == 0 {
		return m
	}
	id := m.GetMachineId()
	m, err := r.c.machines.UpdateMachine(ctx, &baremetalv1.UpdateMachineRequest{
		Machine: &baremetalv1.Machine{MachineId: id, Labels: labelsOf(plan.Labels), Spec: specMessage(plan.Spec)},
		// Field by field, so that what others change meanwhile is not lost.
		UpdateMask: &fieldmaskpb.FieldMask{Paths: paths},
	})
	if err != nil {
		r.c.failed(ctx, diags, "Update "+id, id, err)
		return nil
	}
	return m
}

// Delete implements resource.Resource. It is refused unless it was planned as a destroy: it may be half of a
// replacement.
func (r *machineResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var state machineModel
	if resp.Diagnostics.Append(req.State.Get(ctx, &state)...); resp.Diagnostics.HasError() {
		return
	}
	id, how := state.MachineID.ValueString(), state.OnDestroy.ValueString()
	planned, diags := destroyPlanned(ctx, req.Private)
	if resp.Diagnostics.Append(diags...); resp.Diagnostics.HasError() {
		return
	}
	if !planned {
		resp.Diagnostics.AddError(neverReplaced, wayOut(id))
		return
	}
	if how == destroyErase {
		r.erase(ctx, &resp.Diagnostics, id)
		return
	}
	_, err := r.c.machines.DeleteMachine(ctx,
		&baremetalv1.DeleteMachineRequest{MachineId: id, Purge: how == destroyPurge})
	if err != nil && !gone(err) {
		hint := ""
		if client.Reason(err) == baremetalv1.Reason_DECOMMISSION_REQUIRED {
			hint = `Nothing was done. Apply on_destroy = "purge" to let the machine go with what is on its disks, or ` +
				`on_destroy = "erase" to have them erased; then destroy again. To leave the machine as it is: tofu state rm.`
		}
		r.c.failed(ctx, &resp.Diagnostics, "Remove "+id, id, err, hint)
	}
}

// erase decommissions a machine. It is asked for once, however often a destroy is run again; attempts that operators
// start later count too.
func (r *machineResource) erase(ctx context.Context, diags *diag.Diagnostics, id string) {
	what := "Erase " + id
	request := erasure(id, false)
	started, err := r.c.workflows.StartWorkflow(ctx, request)
	if gone(err) {
		return
	}
	if err != nil {
		r.c.failed(ctx, diags, what, id, err)
		return
	}
	attempt := started.GetOperationId()
	flows, err := r.c.workflows.ListWorkflows(ctx, &baremetalv1.ListWorkflowsRequest{Filter: "machine_id=" + id})
	if err != nil {
		r.c.failed(ctx, diags, what, id, err)
		return
	}
	for _, w := range flows.GetWorkflows() {
		if w.GetRequestId() == request.GetRequestId() && w.GetOperationId() != "" {
			attempt = w.GetOperationId()
		}
	}
	if _, err := client.Wait(ctx, r.c.conn, attempt, nil); err != nil {
		r.c.failed(ctx, diags, what, id, err,
			"Another destroy does not start anew: resume or cancel the workflow (ingot workflow list), then destroy again.")
	}
}

// ImportState implements resource.ResourceWithImportState.
func (*machineResource) ImportState(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse,
) {
	resource.ImportStatePassthroughID(ctx, path.Root("machine_id"), req, resp)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("on_destroy"), destroyRelease)...)
}

// settled is the state after a plan was carried out.
func (p machineModel) settled(m *baremetalv1.Machine) machineModel {
	p.Spec = spelled(specObject(m.GetSpec()), p.Spec)
	return p
}

// refreshed is the state as the machine is now: the labels that the configuration owns, and the whole spec. One that
// was just imported owns no label: the configuration has named none yet.
func (p machineModel) refreshed(m *baremetalv1.Machine) machineModel {
	p.Labels = labelsValue(m.GetLabels(), p.Labels)
	p.Spec = spelled(specObject(m.GetSpec()), p.Spec)
	return p
}

func allLabels(m *baremetalv1.Machine) types.Map {
	values := map[string]attr.Value{}
	for k, v := range m.GetLabels() {
		values[k] = types.StringValue(v)
	}
	return types.MapValueMust(types.StringType, values)
}

func labelsOf(m types.Map) map[string]string {
	out := map[string]string{}
	for k, v := range m.Elements() {
		if s, ok := v.(types.String); ok {
			out[k] = s.ValueString()
		}
	}
	return out
}

// labelsValue is what of a machine's labels is owned.
func labelsValue(labels map[string]string, owned types.Map) types.Map {
	if !said(owned) {
		return owned
	}
	values := map[string]attr.Value{}
	for key := range owned.Elements() {
		if v, ok := labels[key]; ok {
			values[key] = types.StringValue(v)
		}
	}
	return types.MapValueMust(types.StringType, values)
}

// labelChanges are the paths of a field mask for the labels to set or remove.
func labelChanges(planned, is types.Map) (paths []string) {
	want, have := labelsOf(planned), labelsOf(is)
	for key, v := range want {
		if old, ok := have[key]; !ok || old != v {
			paths = append(paths, "labels."+key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(have)) {
		if _, ok := want[key]; !ok {
			paths = append(paths, "labels."+key)
		}
	}
	slices.Sort(paths)
	return paths
}

// oneOf holds that a text is one of some words.
type oneOf []string

// Description implements validator.String.
func (o oneOf) Description(context.Context) string { return "one of " + quoted(o) }

// MarkdownDescription implements validator.String.
func (o oneOf) MarkdownDescription(ctx context.Context) string { return o.Description(ctx) }

// ValidateString implements validator.String.
func (o oneOf) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if said(req.ConfigValue) && !slices.Contains(o, req.ConfigValue.ValueString()) {
		resp.Diagnostics.AddAttributeError(req.Path, "Unknown word", "Must be one of "+quoted(o)+".")
	}
}

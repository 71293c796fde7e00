package ingot

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/api/client"
)

type installationModel struct {
	MachineID        types.String `tfsdk:"machine_id"`
	Image            types.String `tfsdk:"image"`
	Generation       types.Int64  `tfsdk:"generation"`
	Path             types.String `tfsdk:"path"`
	Agentless        types.Bool   `tfsdk:"agentless"`
	Seed             types.Object `tfsdk:"seed"`
	TakeOutOfService types.Bool   `tfsdk:"take_out_of_service"`
	Timeout          types.String `tfsdk:"timeout"`
	OperationID      types.String `tfsdk:"operation_id"`
	ImageDigest      types.String `tfsdk:"image_digest"`
}

// installationResource is a system on a machine's disk. Its machine and its generation are the request id of the
// reimage: one generation is written once at most, whatever crashes and however often it is applied.
type installationResource struct{ withController }

// Metadata implements resource.Resource.
func (*installationResource) Metadata(
	_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse,
) {
	resp.TypeName = "ingot_installation"
}

// Schema implements resource.Resource.
func (*installationResource) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	keep := []planmodifier.String{stringplanmodifier.UseStateForUnknown()}
	resp.Schema = schema.Schema{
		Description: "An image on a machine's disk. Each generation is written at most once; destroying the resource " +
			"leaves the disk as it is.",
		Attributes: map[string]schema.Attribute{
			"machine_id": schema.StringAttribute{Required: true, Description: "The machine.",
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()}},
			"image": schema.StringAttribute{Required: true, Description: "Reference of the image."},
			"generation": schema.Int64Attribute{Required: true,
				Description: "1 or more. A higher number has the disk written again. Nothing else has."},
			"path": schema.StringAttribute{Optional: true,
				Description: "How the machine gets into the installer: auto, kexec, bootnext, bmc or media."},
			"agentless": schema.BoolAttribute{Optional: true,
				Description: "Write the image without an agent; the system proves itself by cloud-init's phone-home."},
			"seed": seedAttribute(),
			"take_out_of_service": schema.BoolAttribute{Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				Description: "Also a machine that is in service is taken into maintenance for it. Else that is refused."},
			"timeout": schema.StringAttribute{Optional: true, Computed: true, Default: stringdefault.StaticString("2h"),
				Description: "How long an apply waits. The work goes on without it, and the next apply waits on."},
			"operation_id": schema.StringAttribute{Computed: true, Description: "The operation that wrote it.",
				PlanModifiers: keep},
			"image_digest": schema.StringAttribute{Computed: true, PlanModifiers: keep,
				Description: "SHA-256 of the raw image that was verified on the disk."},
		},
	}
}

// ModifyPlan implements resource.ResourceWithModifyPlan: at the plan it shows the disks that an apply would write, and
// refuses an impossible order.
func (r *installationResource) ModifyPlan(
	ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse,
) {
	if req.Plan.Raw.IsNull() {
		return
	}
	var plan, state installationModel
	if resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...); resp.Diagnostics.HasError() {
		return
	}
	before := &state
	if req.State.Raw.IsNull() {
		before = nil
	} else if resp.Diagnostics.Append(req.State.Get(ctx, before)...); resp.Diagnostics.HasError() {
		return
	}
	var config installationModel
	if resp.Diagnostics.Append(req.Config.Get(ctx, &config)...); resp.Diagnostics.HasError() {
		return
	}
	v := judge(plan, before)
	if v.refusal != "" {
		resp.Diagnostics.AddAttributeError(path.Root(v.attribute), "This plan cannot be carried out", v.refusal)
	}
	if v.writes {
		r.askController(ctx, &resp.Diagnostics, plan.seeded(config))
		resp.Diagnostics.AddAttributeWarning(path.Root("generation"), "A disk is written",
			fmt.Sprintf("The apply writes %s to the disk of %s, and what is on it is lost, unless this generation was written "+
				"before.", plan.Image.ValueString(), plan.MachineID.ValueString()))
		resp.Diagnostics.Append(resp.Plan.SetAttribute(ctx, path.Root("operation_id"), types.StringUnknown())...)
		resp.Diagnostics.Append(resp.Plan.SetAttribute(ctx, path.Root("image_digest"), types.StringUnknown())...)
	}
}

// askController adds to a plan what the controller would refuse of it. A machine that the same apply registers is not
// known yet, and one whose generation was asked for before is not asked again.
func (r *installationResource) askController(ctx context.Context, diags *diag.Diagnostics, plan installationModel) {
	if r.c == nil || plan.MachineID.IsUnknown() || plan.Image.IsUnknown() || plan.Path.IsUnknown() ||
		plan.Agentless.IsUnknown() || seedUnknown(plan.Seed) {
		return
	}
	asked, err := r.asked(ctx, plan)
	if err == nil && !asked {
		err = r.validate(ctx, plan)
	}
	switch client.Reason(err) {
	case baremetalv1.Reason_MACHINE_NOT_FOUND:
	default:
		if err != nil {
			diags.AddAttributeWarning(path.Root("image"), "The controller would refuse this now", err.Error())
		}
	}
}

// asked reports whether the generation was asked for before.
func (r *installationResource) asked(ctx context.Context, plan installationModel) (bool, error) {
	known, err := r.c.operations.ListOperations(ctx, &baremetalv1.ListOperationsRequest{
		Filter:   "machine_id=" + plan.MachineID.ValueString() + ",request_id=" + plan.requestID("install"),
		PageSize: 1,
	})
	return len(known.GetOperations()) > 0, err
}

// verdict is what a plan comes to: it writes a disk, or an attribute of it is refused.
type verdict struct {
	writes             bool
	attribute, refusal string
}

// judge compares a plan with the present state; nil where there is none yet.
func judge(plan installationModel, is *installationModel) verdict {
	if plan.Generation.IsUnknown() {
		return verdict{attribute: "generation", refusal: "generation must be known at the plan: it says whether a disk is " +
			"written."}
	}
	if plan.Generation.ValueInt64() < 1 {
		return verdict{attribute: "generation", refusal: "generation is 1 or more."}
	}
	if _, err := time.ParseDuration(plan.Timeout.ValueString()); said(plan.Timeout) && err != nil {
		return verdict{attribute: "timeout", refusal: `timeout is a duration such as "90m" or "2h".`}
	}
	if is == nil || !plan.MachineID.Equal(is.MachineID) {
		return verdict{writes: true}
	}
	was := is.Generation.ValueInt64()
	switch {
	case plan.Generation.ValueInt64() > was:
		return verdict{writes: true}
	case plan.Generation.ValueInt64() < was:
		return verdict{attribute: "generation",
			refusal: fmt.Sprintf("generation only grows, and %d was written already.", was)}
	}
	if attribute := plan.differs(*is); attribute != "" {
		return verdict{attribute: attribute, refusal: fmt.Sprintf("%s has changed, and generation %d is written already. "+
			"Set generation = %d to have the disk written again.", attribute, was, was+1)}
	}
	return verdict{}
}

// differs names the first attribute that another request would be made of.
func (m installationModel) differs(is installationModel) string {
	switch {
	case !m.Image.Equal(is.Image):
		return "image"
	case m.Path.ValueString() != is.Path.ValueString():
		return "path"
	case m.Agentless.ValueBool() != is.Agentless.ValueBool():
		return "agentless"
	case !m.Seed.Equal(is.Seed):
		return "seed"
	}
	return ""
}

// request is the reimage that a plan asks for. Its id follows from machine and generation alone.
func (m installationModel) request() *baremetalv1.ReimageMachineRequest {
	r := &baremetalv1.ReimageMachineRequest{
		MachineId: m.MachineID.ValueString(), RequestId: m.requestID("install"), ImageRef: m.Image.ValueString(),
		Path: m.Path.ValueString(), Agentless: m.Agentless.ValueBool(),
	}
	r.Seed = seedMessage(m.Seed)
	return r
}

func (m installationModel) requestID(step string) string {
	return client.RequestID("opentofu", step, m.MachineID.ValueString(),
		strconv.FormatInt(m.Generation.ValueInt64(), 10))
}

// Create implements resource.Resource.
func (r *installationResource) Create(
	ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse,
) {
	var plan installationModel
	if resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...); resp.Diagnostics.HasError() {
		return
	}
	var config installationModel
	if resp.Diagnostics.Append(req.Config.Get(ctx, &config)...); resp.Diagnostics.HasError() {
		return
	}
	if r.install(ctx, &resp.Diagnostics, &plan, config) {
		resp.Diagnostics.Append(resp.State.Set(ctx, plan)...)
	}
}

// Update implements resource.Resource.
func (r *installationResource) Update(
	ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse,
) {
	var plan, state installationModel
	var config installationModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.Append(req.State.Get(ctx, &state)...); resp.Diagnostics.HasError() {
		return
	}
	if judge(plan, &state).writes && !r.install(ctx, &resp.Diagnostics, &plan, config) {
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, plan)...)
}

// install has a generation written, waits for it, and puts the machine in service. Whatever of that was asked for
// before is not asked for again: each step has a request id that follows from the plan. The write-only part of the seed
// is in the configuration alone.
func (r *installationResource) install(
	ctx context.Context, diags *diag.Diagnostics, plan *installationModel, config installationModel,
) bool {
	id := plan.MachineID.ValueString()
	what := fmt.Sprintf("Install %s, generation %d", id, plan.Generation.ValueInt64())
	limit, err := time.ParseDuration(plan.Timeout.ValueString())
	if err != nil {
		diags.AddAttributeError(path.Root("timeout"), what, err.Error())
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	want := plan.seeded(config)
	if err := r.prepare(ctx, want); err != nil {
		r.c.failed(ctx, diags, what, id, err)
		return false
	}
	o, err := r.c.machines.ReimageMachine(ctx, want.request())
	if err == nil {
		o, err = client.Wait(ctx, r.c.conn, o.GetOperationId(), nil)
	}
	if err != nil {
		r.c.failed(ctx, diags, what, id, err, plan.hint(err))
		return false
	}
	exit, err := r.c.machines.ExitMaintenance(ctx,
		&baremetalv1.ExitMaintenanceRequest{MachineId: id, RequestId: plan.requestID("exit-maintenance")})
	if err == nil {
		_, err = client.Wait(ctx, r.c.conn, exit.GetOperationId(), nil)
	}
	if err != nil {
		r.c.failed(ctx, diags, "Put "+id+" in service", id, err)
		return false
	}
	m, err := r.c.machines.GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: id})
	if err != nil {
		r.c.failed(ctx, diags, what, id, err)
		return false
	}
	plan.OperationID = types.StringValue(o.GetOperationId())
	plan.ImageDigest = types.StringValue(m.GetStatus().GetOsImageDigest())
	return true
}

// prepare takes the machine into maintenance, unless this generation was asked for before.
func (r *installationResource) prepare(ctx context.Context, plan installationModel) error {
	id := plan.MachineID.ValueString()
	if asked, err := r.asked(ctx, plan); asked || err != nil {
		return err
	}
	m, err := r.c.machines.GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: id})
	if err != nil {
		return err
	}
	switch phase := m.GetStatus().GetPhase(); {
	case phase == baremetalv1.MachineStatus_MAINTENANCE:
		return nil
	case phase == baremetalv1.MachineStatus_READY && !plan.TakeOutOfService.ValueBool():
		return errInService
	}
	if err := r.validate(ctx, plan); err != nil {
		return err
	}
	o, err := r.c.machines.EnterMaintenance(ctx, &baremetalv1.EnterMaintenanceRequest{
		MachineId: id, RequestId: plan.requestID("enter-maintenance"), Comment: "to be installed by OpenTofu",
	})
	if err != nil {
		return err
	}
	_, err = client.Wait(ctx, r.c.conn, o.GetOperationId(), nil)
	return err
}

// validate asks whether the installation would be taken once the machine is in maintenance, and starts nothing. Else a
// typing error would leave the machine out of service.
func (r *installationResource) validate(ctx context.Context, plan installationModel) error {
	want := plan.request()
	want.ValidateOnly = true
	_, err := r.c.machines.ReimageMachine(ctx, want)
	return err
}

// hint is what an error means for the configuration.
func (m installationModel) hint(err error) string {
	generation := m.Generation.ValueInt64()
	if client.Reason(err) == baremetalv1.Reason_REQUEST_ID_REUSED {
		return fmt.Sprintf("Generation %d of %s was asked for with another image, path or seed. Set generation = %d to have "+
			"the disk written again.", generation, m.MachineID.ValueString(), generation+1)
	}
	if ended(err) {
		return fmt.Sprintf("Generation %d has ended and is not tried again. Set generation = %d for a new try.", generation,
			generation+1)
	}
	return "An apply goes on where this one ended."
}

// Read implements resource.Resource.
func (r *installationResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var state installationModel
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
	if is, was := m.GetStatus().GetOsImageDigest(), state.ImageDigest.ValueString(); is != was {
		resp.Diagnostics.AddWarning("Another system is on "+id, fmt.Sprintf("Generation %d wrote the image %s; the disk now "+
			"holds %s. Nothing is written for that alone: set generation = %d to have %s written again.",
			state.Generation.ValueInt64(), orNone(was), orNone(is), state.Generation.ValueInt64()+1,
			state.Image.ValueString()))
	}
}

// Delete implements resource.Resource: the system stays on the disk.
func (*installationResource) Delete(context.Context, resource.DeleteRequest, *resource.DeleteResponse) {
}

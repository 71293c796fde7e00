package ingot

import (
	"context"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// machinesSource is the machines that match a filter.
type machinesSource struct{ sourceWithController }

type machinesModel struct {
	Filter   types.String `tfsdk:"filter"`
	OrderBy  types.String `tfsdk:"order_by"`
	Machines types.List   `tfsdk:"machines"`
}

// statusAttribute is an attribute of a machine besides labels and spec, with where it comes from.
type statusAttribute struct {
	about string
	of    func(*baremetalv1.Machine) string
}

var statusAttributes = map[string]statusAttribute{
	"machine_id": {"Its identity.", (*baremetalv1.Machine).GetMachineId},
	"phase": {"The operator's intent, such as READY or MAINTENANCE.",
		func(m *baremetalv1.Machine) string { return m.GetStatus().GetPhase().String() }},
	"effective_state": {"Its state as filters take it, such as IDLE or ATTENTION.",
		func(m *baremetalv1.Machine) string { return effectiveState(m) }},
	"node_state": {"Its state as a node, in lower case, such as active.", func(m *baremetalv1.Machine) string {
		return strings.ToLower(strings.TrimPrefix(m.GetStatus().GetNodeState().String(), "NODE_STATE_"))
	}},
	"active_operation_id": {"The operation that works on it; empty without one.",
		func(m *baremetalv1.Machine) string { return m.GetStatus().GetActiveOperationId() }},
	"attention_reason": {"Why it is in ATTENTION; else empty.",
		func(m *baremetalv1.Machine) string { return m.GetStatus().GetAttentionReason() }},
	"attention_message": {"The same in words.",
		func(m *baremetalv1.Machine) string { return m.GetStatus().GetAttentionMessage() }},
	"image_digest": {"SHA-256 of the raw image on its disk.",
		func(m *baremetalv1.Machine) string { return m.GetStatus().GetOsImageDigest() }},
}

// effectiveState is as filters take it.
func effectiveState(m *baremetalv1.Machine) string {
	return strings.TrimSuffix(m.GetStatus().GetEffectiveState().String(), "_IDLE")
}

func machineTypes() map[string]attr.Type {
	out := map[string]attr.Type{
		"labels": types.MapType{ElemType: types.StringType}, "spec": types.ObjectType{AttrTypes: specTypes()},
	}
	for name := range statusAttributes {
		out[name] = types.StringType
	}
	return out
}

// machineAttributes are the attributes of those types.
func machineAttributes() map[string]schema.Attribute {
	spec := map[string]schema.Attribute{}
	for _, f := range specFields {
		about := "Field " + nameOf(f) + " of the API's MachineSpec."
		if f.IsList() {
			spec[nameOf(f)] = schema.ListAttribute{Computed: true, ElementType: types.StringType, Description: about}
		} else {
			spec[nameOf(f)] = schema.StringAttribute{Computed: true, Description: about}
		}
	}
	out := map[string]schema.Attribute{
		"labels": schema.MapAttribute{Computed: true, ElementType: types.StringType, Description: "All of its labels."},
		"spec": schema.SingleNestedAttribute{Computed: true, Attributes: spec,
			Description: "The facts that are registered."},
	}
	for name, a := range statusAttributes {
		out[name] = schema.StringAttribute{Computed: true, Description: a.about}
	}
	return out
}

func machineObject(m *baremetalv1.Machine) attr.Value {
	values := map[string]attr.Value{"labels": allLabels(m), "spec": specObject(m.GetSpec())}
	for name, a := range statusAttributes {
		values[name] = types.StringValue(a.of(m))
	}
	return types.ObjectValueMust(machineTypes(), values)
}

// Metadata implements datasource.DataSource.
func (*machinesSource) Metadata(
	_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse,
) {
	resp.TypeName = "ingot_machines"
}

// Schema implements datasource.DataSource.
func (*machinesSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		Description: "The machines that match a filter.",
		Attributes: map[string]schema.Attribute{
			"filter": schema.StringAttribute{Optional: true,
				Description: "Terms of ListMachines, such as rack=r7,effective_state!=IDLE. Empty: all machines."},
			"order_by": schema.StringAttribute{Optional: true,
				Description: "machine_id, site, rack, updated_at or effective_state, and \" desc\" for the other way round."},
			"machines": schema.ListNestedAttribute{Computed: true, Description: "The machines.",
				NestedObject: schema.NestedAttributeObject{Attributes: machineAttributes()}},
		},
	}
}

// Read implements datasource.DataSource.
func (s *machinesSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m machinesModel
	if resp.Diagnostics.Append(req.Config.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	request := &baremetalv1.ListMachinesRequest{Filter: m.Filter.ValueString(), OrderBy: m.OrderBy.ValueString()}
	machines := []attr.Value{}
	for {
		page, err := s.c.machines.ListMachines(ctx, request)
		if err != nil {
			s.c.failed(ctx, &resp.Diagnostics, "List machines", "", err)
			return
		}
		for _, row := range page.GetMachines() {
			machines = append(machines, machineObject(row))
		}
		if request.PageToken = page.GetNextPageToken(); request.GetPageToken() == "" {
			break
		}
	}
	m.Machines = types.ListValueMust(types.ObjectType{AttrTypes: machineTypes()}, machines)
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// operationSource is one operation.
type operationSource struct{ sourceWithController }

type operationModel struct {
	OperationID  types.String      `tfsdk:"operation_id"`
	MachineID    types.String      `tfsdk:"machine_id"`
	Type         types.String      `tfsdk:"type"`
	Phase        types.String      `tfsdk:"phase"`
	RequestID    types.String      `tfsdk:"request_id"`
	ErrorCode    types.String      `tfsdk:"error_code"`
	ErrorMessage types.String      `tfsdk:"error_message"`
	Params       map[string]string `tfsdk:"params"`
	Evidence     map[string]string `tfsdk:"evidence"`
}

// Metadata implements datasource.DataSource.
func (*operationSource) Metadata(
	_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse,
) {
	resp.TypeName = "ingot_operation"
}

// Schema implements datasource.DataSource.
func (*operationSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	text := func(about string) schema.StringAttribute {
		return schema.StringAttribute{Computed: true, Description: about}
	}
	resp.Schema = schema.Schema{
		Description: "One piece of work on one machine, and what proved that it was done.",
		Attributes: map[string]schema.Attribute{
			"operation_id":  schema.StringAttribute{Required: true, Description: "The operation."},
			"machine_id":    text("The machine that it works on."),
			"type":          text("What it does, such as REIMAGE."),
			"phase":         text("PENDING, RUNNING, SUCCEEDED, FAILED or CANCELED."),
			"request_id":    text("The request id that it was asked for with."),
			"error_code":    text("Reason of a failure; empty without one."),
			"error_message": text("The same in words."),
			"params": schema.MapAttribute{Computed: true, ElementType: types.StringType,
				Description: "What it was asked for with."},
			"evidence": schema.MapAttribute{Computed: true, ElementType: types.StringType,
				Description: "What proved that it was done."},
		},
	}
}

// Read implements datasource.DataSource.
func (s *operationSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m operationModel
	if resp.Diagnostics.Append(req.Config.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	id := m.OperationID.ValueString()
	o, err := s.c.operations.GetOperation(ctx, &baremetalv1.GetOperationRequest{OperationId: id})
	if err != nil {
		s.c.failed(ctx, &resp.Diagnostics, "Read operation "+id, "", err)
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, operationModel{
		OperationID: types.StringValue(o.GetOperationId()), MachineID: types.StringValue(o.GetMachineId()),
		Type: types.StringValue(o.GetType().String()), Phase: types.StringValue(o.GetPhase().String()),
		RequestID: types.StringValue(o.GetRequestId()), ErrorCode: types.StringValue(o.GetError().GetCode()),
		ErrorMessage: types.StringValue(o.GetError().GetMessage()), Params: o.GetParams(), Evidence: o.GetEvidence(),
	})...)
}

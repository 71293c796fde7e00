// Package ingot is the provider of Ingot for OpenTofu: machines, images and installations as resources, and machines
// and operations as data sources.
package ingot

import (
	"cmp"
	"context"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/api/client"
)

// New makes the provider.
func New(version string) func() provider.Provider {
	return func() provider.Provider { return &fleetProvider{version} }
}

type fleetProvider struct{ version string }

type providerModel struct {
	Endpoint  types.String `tfsdk:"endpoint"`
	CAFile    types.String `tfsdk:"ca_file"`
	Token     types.String `tfsdk:"token"`
	TokenFile types.String `tfsdk:"token_file"`
}

// Metadata implements provider.Provider.
func (p *fleetProvider) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName, resp.Version = "ingot", p.version
}

// Schema implements provider.Provider.
func (p *fleetProvider) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	resp.Schema = schema.Schema{
		Description: "A controller of Ingot. What is not set here is taken from the environment of the command line ingot.",
		Attributes: map[string]schema.Attribute{
			"endpoint": schema.StringAttribute{Optional: true,
				Description: "host:port of the controller's gRPC listener; else INGOT_SERVER."},
			"ca_file": schema.StringAttribute{Optional: true,
				Description: "File with the root that has signed the controller's certificate; else INGOT_CA_FILE, else the " +
					"system's roots."},
			"token": schema.StringAttribute{Optional: true, Sensitive: true,
				Description: "Bearer token; else token_file, INGOT_TOKEN or INGOT_TOKEN_FILE."},
			"token_file": schema.StringAttribute{Optional: true, Description: "File that holds the bearer token."},
		},
	}
}

// Configure implements provider.Provider.
func (p *fleetProvider) Configure(
	ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse,
) {
	var m providerModel
	if resp.Diagnostics.Append(req.Config.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	config := connection(m, os.Getenv)
	if config.Server == "" {
		resp.Diagnostics.AddAttributeError(path.Root("endpoint"), "No controller is named",
			"Set endpoint to the controller's host:port, or INGOT_SERVER. It must be known before the plan.")
	}
	if config.Token == "" && config.TokenFile == "" {
		resp.Diagnostics.AddAttributeError(path.Root("token_file"), "No bearer token is named",
			"Set token_file or token, or INGOT_TOKEN_FILE or INGOT_TOKEN. It must be known before the plan.")
	}
	if resp.Diagnostics.HasError() {
		return
	}
	conn, err := client.Dial(config, grpc.WithUserAgent("terraform-provider-ingot/"+p.version))
	if err != nil {
		resp.Diagnostics.AddError("The controller cannot be reached", err.Error())
		return
	}
	c := newController(conn)
	resp.ResourceData, resp.DataSourceData = c, c
}

// connection returns the configuration of the client: a setting of the configuration counts before the environment, and
// a token before a file.
func connection(m providerModel, getenv func(string) string) client.Config {
	c := client.Config{
		Server: cmp.Or(m.Endpoint.ValueString(), getenv("INGOT_SERVER")),
		CAFile: cmp.Or(m.CAFile.ValueString(), getenv("INGOT_CA_FILE")),
		Token:  m.Token.ValueString(), TokenFile: m.TokenFile.ValueString(),
	}
	if c.Token == "" && c.TokenFile == "" {
		c.Token, c.TokenFile = getenv("INGOT_TOKEN"), getenv("INGOT_TOKEN_FILE")
	}
	return c
}

// Resources implements provider.Provider.
func (p *fleetProvider) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{
		func() resource.Resource { return &machineResource{} },
		func() resource.Resource { return &installationResource{} },
		func() resource.Resource { return &imageResource{} },
	}
}

// DataSources implements provider.Provider.
func (p *fleetProvider) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{
		func() datasource.DataSource { return &machinesSource{} },
		func() datasource.DataSource { return &operationSource{} },
	}
}

// controller is the API of a controller.
type controller struct {
	conn       grpc.ClientConnInterface
	machines   baremetalv1.MachineServiceClient
	operations baremetalv1.OperationServiceClient
	workflows  baremetalv1.WorkflowServiceClient
	admin      baremetalv1.AdminServiceClient
}

func newController(conn grpc.ClientConnInterface) *controller {
	return &controller{
		conn: conn, machines: baremetalv1.NewMachineServiceClient(conn),
		operations: baremetalv1.NewOperationServiceClient(conn), workflows: baremetalv1.NewWorkflowServiceClient(conn),
		admin: baremetalv1.NewAdminServiceClient(conn),
	}
}

// configured is what Configure has left for a resource; nil before that.
func configured(data any, diags *diag.Diagnostics) *controller {
	if data == nil {
		return nil
	}
	c, ok := data.(*controller)
	if !ok {
		diags.AddError("The provider is not configured", "This is a fault of the provider: please report it.")
	}
	return c
}

// withController is a resource that uses the API.
type withController struct{ c *controller }

// Configure implements resource.ResourceWithConfigure.
func (w *withController) Configure(
	_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse,
) {
	w.c = configured(req.ProviderData, &resp.Diagnostics)
}

// sourceWithController is a data source that uses the API.
type sourceWithController struct{ c *controller }

// Configure implements datasource.DataSourceWithConfigure.
func (w *sourceWithController) Configure(
	_ context.Context, req datasource.ConfigureRequest, resp *datasource.ConfigureResponse,
) {
	w.c = configured(req.ProviderData, &resp.Diagnostics)
}

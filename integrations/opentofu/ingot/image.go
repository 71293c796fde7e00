package ingot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

type imageModel struct {
	ImageRef     types.String `tfsdk:"image_ref"`
	URL          types.String `tfsdk:"url"`
	Source       types.String `tfsdk:"source"`
	Format       types.String `tfsdk:"format"`
	Kind         types.String `tfsdk:"kind"`
	Arch         types.String `tfsdk:"arch"`
	SHA256File   types.String `tfsdk:"sha256_file"`
	SHA256Raw    types.String `tfsdk:"sha256_raw"`
	SHA256Source types.String `tfsdk:"sha256_source"`
	SizeBytes    types.Int64  `tfsdk:"size_bytes"`
}

// imageResource is an image of the catalogue, which never changes: another configuration is another image.
type imageResource struct{ withController }

// Metadata implements resource.Resource.
func (*imageResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "ingot_image"
}

// Schema implements resource.Resource.
func (*imageResource) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	another := []planmodifier.String{stringplanmodifier.RequiresReplace()}
	given := []planmodifier.String{stringplanmodifier.RequiresReplaceIfConfigured(),
		stringplanmodifier.UseStateForUnknown()}
	resp.Schema = schema.Schema{
		Description: "An image of the catalogue, from an address or a file. It never changes: another content is a new one.",
		Attributes: map[string]schema.Attribute{
			"image_ref": schema.StringAttribute{Required: true, PlanModifiers: another,
				Description: "Its name: 1 to 63 characters of [a-z0-9._-]."},
			"url": schema.StringAttribute{Optional: true, PlanModifiers: another,
				Description: "Where the controller fetches it. Either this or source."},
			"source": schema.StringAttribute{
				Optional: true, PlanModifiers: another,
				Description: "File that is uploaded. sha256_file, or sha256_source = filesha256(…), shows a change of its " +
					"content.",
			},
			"format": schema.StringAttribute{Optional: true, Computed: true, PlanModifiers: given,
				Description: "raw, raw.zst, raw.gz, raw.xz or qcow2."},
			"kind": schema.StringAttribute{Optional: true, Computed: true, PlanModifiers: given,
				Description: "os, or a part of an installer."},
			"arch": schema.StringAttribute{Optional: true, Computed: true, PlanModifiers: given,
				Description: "amd64 or arm64."},
			"sha256_file": schema.StringAttribute{Optional: true, Computed: true, PlanModifiers: given,
				Description: "Of the file as stored; verified where it is given."},
			"sha256_raw": schema.StringAttribute{Optional: true, Computed: true, PlanModifiers: given,
				Description: "Of the raw bytes; verified where it is given."},
			"sha256_source": schema.StringAttribute{Optional: true, Computed: true, PlanModifiers: given,
				Description: "Of the file as given, where it is stored otherwise: qcow2, raw.gz, raw.xz."},
			"size_bytes": schema.Int64Attribute{Computed: true, Description: "Of the raw bytes.",
				PlanModifiers: []planmodifier.Int64{int64planmodifier.UseStateForUnknown()}},
		},
	}
}

// ValidateConfig implements resource.ResourceWithValidateConfig.
func (*imageResource) ValidateConfig(
	ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse,
) {
	var m imageModel
	if resp.Diagnostics.Append(req.Config.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	if m.URL.IsNull() == m.Source.IsNull() {
		resp.Diagnostics.AddAttributeError(path.Root("url"), "One origin is needed", "Set either url or source.")
	}
}

// Create implements resource.Resource. The same image again changes nothing, so that it can be repeated.
func (r *imageResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var plan imageModel
	if resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...); resp.Diagnostics.HasError() {
		return
	}
	im, err := r.add(ctx, plan)
	if err != nil {
		r.c.failed(ctx, &resp.Diagnostics, "Add image "+plan.ImageRef.ValueString(), "", err)
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, plan.with(im))...)
}

func (r *imageResource) add(ctx context.Context, plan imageModel) (*baremetalv1.Image, error) {
	im := &baremetalv1.Image{
		ImageRef: plan.ImageRef.ValueString(), Url: plan.URL.ValueString(), Format: plan.Format.ValueString(),
		Kind: plan.Kind.ValueString(), Arch: plan.Arch.ValueString(), Sha256File: plan.SHA256File.ValueString(),
		Sha256Raw: plan.SHA256Raw.ValueString(), Sha256Source: plan.SHA256Source.ValueString(),
	}
	if im.GetUrl() != "" {
		return r.c.admin.AddImage(ctx, &baremetalv1.AddImageRequest{Image: im})
	}
	f, err := os.Open(plan.Source.ValueString())
	if err != nil {
		return nil, fmt.Errorf("read the image: %w", err)
	}
	defer f.Close()
	return r.upload(ctx, im, f)
}

// partBytes is the size of one message of an upload.
const partBytes = 256 << 10

func (r *imageResource) upload(ctx context.Context, im *baremetalv1.Image, f io.Reader) (*baremetalv1.Image, error) {
	stream, err := r.c.admin.UploadImage(ctx)
	if err != nil {
		return nil, err
	}
	// A failed send only shows that the stream is over; its answer has the cause.
	err = stream.Send(&baremetalv1.UploadImageRequest{Part: &baremetalv1.UploadImageRequest_Image{Image: im}})
	for part := make([]byte, partBytes); err == nil; {
		n, read := io.ReadFull(f, part)
		if n > 0 {
			err = stream.Send(&baremetalv1.UploadImageRequest{Part: &baremetalv1.UploadImageRequest_Data{Data: part[:n]}})
		}
		if errors.Is(read, io.EOF) || errors.Is(read, io.ErrUnexpectedEOF) {
			break
		}
		if read != nil {
			return nil, fmt.Errorf("read the image: %w", read)
		}
	}
	return stream.CloseAndRecv()
}

// with returns the model with the catalogue's values. Its format is the one that was given, as the file may be stored
// in another one.
func (m imageModel) with(im *baremetalv1.Image) imageModel {
	if !said(m.Format) {
		m.Format = types.StringValue(im.GetFormat())
	}
	m.Kind, m.Arch = types.StringValue(im.GetKind()), types.StringValue(im.GetArch())
	m.SHA256File, m.SHA256Raw = types.StringValue(im.GetSha256File()), types.StringValue(im.GetSha256Raw())
	m.SHA256Source = types.StringValue(im.GetSha256Source())
	m.SizeBytes = types.Int64Value(im.GetSizeBytes())
	return m
}

// Read implements resource.Resource.
func (r *imageResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var state imageModel
	if resp.Diagnostics.Append(req.State.Get(ctx, &state)...); resp.Diagnostics.HasError() {
		return
	}
	im, err := r.c.admin.GetImage(ctx, &baremetalv1.GetImageRequest{ImageRef: state.ImageRef.ValueString()})
	switch {
	case gone(err):
		resp.State.RemoveResource(ctx)
		return
	case err != nil:
		r.c.failed(ctx, &resp.Diagnostics, "Read image "+state.ImageRef.ValueString(), "", err)
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, state.with(im))...)
}

// Update implements resource.Resource. An image never changes: only settings without an effect on its content come
// here.
func (*imageResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan imageModel
	if resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...); !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(resp.State.Set(ctx, plan)...)
	}
}

// Delete implements resource.Resource.
func (r *imageResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var state imageModel
	if resp.Diagnostics.Append(req.State.Get(ctx, &state)...); resp.Diagnostics.HasError() {
		return
	}
	_, err := r.c.admin.RemoveImage(ctx, &baremetalv1.RemoveImageRequest{ImageRef: state.ImageRef.ValueString()})
	if err != nil && !gone(err) {
		r.c.failed(ctx, &resp.Diagnostics, "Remove image "+state.ImageRef.ValueString(), "", err)
	}
}

package ingot

import (
	"context"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// writeOnly are the attributes of a seed that OpenTofu sends and never stores, in a plan or a state.
var writeOnly = []string{"user_data_wo", "network_config_wo"}

// seedAttribute is the attribute seed. Beside each write-only argument stands its version, as is the convention: the
// state holds the version, so that a change of the content shows.
func seedAttribute() schema.SingleNestedAttribute {
	const secret = " Write-only: no plan and no state holds it."
	version := func(of string) schema.Int64Attribute {
		return schema.Int64Attribute{Optional: true,
			Description: "Stands for the content of " + of + " in the state. Raise it with the content, and generation too."}
	}
	return schema.SingleNestedAttribute{
		Optional:    true,
		Description: "What the new system is given for its first boot, through cloud-init.",
		Attributes: map[string]schema.Attribute{
			"hostname": schema.StringAttribute{Optional: true, Description: "The machine's id where it is not set."},
			"ssh_authorized_keys": schema.ListAttribute{Optional: true, ElementType: types.StringType,
				Description: "Public keys of the image's default user."},
			"user_data_wo": schema.StringAttribute{Optional: true, WriteOnly: true,
				Description: "cloud-init's user-data." + secret},
			"user_data_wo_version": version("user_data_wo"),
			"network_config_wo": schema.StringAttribute{Optional: true, WriteOnly: true,
				Description: "cloud-init's network configuration." + secret},
			"network_config_wo_version": version("network_config_wo"),
		},
	}
}

// seeded is the model with the write-only arguments of the configuration. It must not become a state.
func (m installationModel) seeded(config installationModel) installationModel {
	if !said(m.Seed) || !said(config.Seed) {
		return m
	}
	values := maps.Clone(m.Seed.Attributes())
	for _, name := range writeOnly {
		values[name] = config.Seed.Attributes()[name]
	}
	m.Seed = types.ObjectValueMust(m.Seed.AttributeTypes(context.Background()), values)
	return m
}

// seedUnknown reports whether a seed, or a part of it, is not known yet.
func seedUnknown(seed types.Object) bool {
	if seed.IsUnknown() {
		return true
	}
	for _, v := range seed.Attributes() {
		if v.IsUnknown() {
			return true
		}
		if l, ok := v.(types.List); ok && anyUnknown(l.Elements()) {
			return true
		}
	}
	return false
}

func anyUnknown(values []attr.Value) bool {
	for _, v := range values {
		if v.IsUnknown() {
			return true
		}
	}
	return false
}

// seedMessage is the seed of the API; nil where there is none.
func seedMessage(seed types.Object) *baremetalv1.SystemSeed {
	if !said(seed) {
		return nil
	}
	text := func(name string) string {
		// The schema has it as a text; the zero value of a missing one is the empty text.
		v, _ := seed.Attributes()[name].(types.String)
		return v.ValueString()
	}
	// The schema has it as a list; the zero value of a missing one is the empty list.
	keys, _ := seed.Attributes()["ssh_authorized_keys"].(types.List)
	return &baremetalv1.SystemSeed{
		Hostname: text("hostname"), UserData: text("user_data_wo"), NetworkConfig: text("network_config_wo"),
		SshAuthorizedKeys: texts(keys),
	}
}

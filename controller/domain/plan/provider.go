package plan

import (
	"fmt"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// destructiveActions of providers lose data or a record.
var destructiveActions = []string{"deploy", "recover_deploy", "release", "erase", "delete"}

// providerActions are the actions that a plan may hold, and the parameters of each.
var providerActions = map[string][]string{
	"check_region": nil, "render_user_data": nil, "create": {"architecture"},
	"commission": {"commissioning_scripts", "testing_scripts", "force"}, "wait_ready": nil,
	"set_storage_layout": {"layout"},
	"fabric_interfaces":  nil, "boot_interface": nil, "allocate": nil, "deploy": deployParams, "wait_deployed": {"settle"},
	"classify_failure": nil, "recover_deploy": deployParams, "hardware_sync": nil, "wait_hardware_sync": nil,
	"release": {"erase", "secure_erase", "quick_erase"}, "erase": {"secure_erase", "quick_erase"}, "power_on": nil,
	"power_off": {"stop_mode"}, "power_query": nil, "abort": nil, "delete": nil, "mark_broken": {"comment"},
	"mark_fixed":              {"comment"},
	"override_failed_testing": {"comment"},
	"rescue_mode":             nil, "exit_rescue_mode": nil,
}

var deployParams = []string{"image", "distro_series", "hwe_kernel", "hardware_sync"}

// maxParam is the longest value of a parameter, in bytes.
const maxParam = 256

func validateProvider(a *baremetalv1.ProviderAction, field string) error {
	params, known := providerActions[a.GetAction()]
	if !known {
		return invalid("INVALID_FIELD", field+".action",
			fmt.Sprintf("%.64q is no action of a provider; docs/reference/maas.md lists them", a.GetAction()))
	}
	for name, value := range a.GetParams() {
		if err := oneOf(field+".params", name, append([]string{""}, params...)...); err != nil {
			return err
		}
		if len(value) > maxParam {
			return invalid("INVALID_FIELD", field+".params."+name, "more than 256 characters")
		}
	}
	return nil
}

// ProviderActions gives the actions and their parameters. The adapter's table is held against it.
func ProviderActions() map[string][]string { return providerActions }

// fillProvider says which image is deployed, where the plan does not. Only what was asked for, or is the machine's own,
// counts: the server's default image is one of our catalogue, and no provider knows that.
func fillProvider(a *baremetalv1.ProviderAction, in Inputs) {
	if a.GetAction() != "deploy" && a.GetAction() != "recover_deploy" || in.ProviderImage == "" ||
		a.GetParams()["image"] != "" {
		return
	}
	if a.Params == nil {
		a.Params = map[string]string{}
	}
	a.Params["image"] = in.ProviderImage
}

// RepaveMAAS is the plan that a reimage runs on a machine that a MAAS region installs.
const RepaveMAAS = "repave-maas"

// RepaveByMAAS is the built-in plan of that name: MAAS writes the disk, and its agent comes with what was deployed.
func RepaveByMAAS() *baremetalv1.Plan {
	act := func(name, action string) *baremetalv1.Step {
		return &baremetalv1.Step{Name: name,
			Kind: &baremetalv1.Step_ProviderAction{ProviderAction: &baremetalv1.ProviderAction{Action: action}}}
	}
	return &baremetalv1.Plan{PlanId: RepaveMAAS, DisplayName: "Repave, by MAAS", BuiltIn: true, Steps: []*baremetalv1.Step{
		act("release", "release"), act("deploy", "deploy"), act("wait-deployed", "wait_deployed"),
		{Name: "wait-for-agent", Kind: &baremetalv1.Step_WaitForAgent{WaitForAgent: &baremetalv1.WaitForAgent{}}},
	}}
}

// ByInstaller gives the first step that our own installer does, nil if there is none.
func ByInstaller(steps []Filled) *Filled {
	for i := range steps {
		if k := steps[i].Kind; k == "repave" || k == "erase" || k == "netboot" {
			return &steps[i]
		}
	}
	return nil
}

package plan

import (
	"fmt"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// destructiveActions of providers lose data or a record.
var destructiveActions = []string{"deploy", "recover_deploy", "release", "erase", "delete"}

// harmlessActions only read, or write down what the provider does later.
var harmlessActions = []string{
	"check_region", "render_user_data", "create", "wait_ready", "wait_deployed", "classify_failure", "hardware_sync",
	"wait_hardware_sync", "power_query", "power_on", "mark_fixed",
}

// providerActions are the actions that a plan may hold, and the parameters of each. The comments say what the provider
// shows when the action is done.
var providerActions = map[string][]string{
	// The region answers and takes the key.
	"check_region": nil,
	// (MAAS is not asked) the template can be filled in.
	"render_user_data": nil,
	// Exactly one machine with the MAC addresses.
	"create": {"architecture"},
	// It has taken the request.
	"commission": {"commissioning_scripts", "testing_scripts", "force"},
	// Ready.
	"wait_ready": nil,
	// The layout (flat, lvm, bcache, blank) on the disks.
	"set_storage_layout": {"layout"},
	// An address mode on each interface tagged `roce`.
	"fabric_interfaces": nil,
	// An address mode on the boot interface.
	"boot_interface": nil,
	// Allocated, annotated as Ingot's.
	"allocate": nil,
	// Deploying or Deployed, annotated as this operation's.
	"deploy": deployParams,
	// Deployed; settle=true takes a failed deployment for an end.
	"wait_deployed": {"settle"},
	// Deployed, or a failure for want of the data source.
	"classify_failure": nil,
	// Deployed, after one more try.
	"recover_deploy": deployParams,
	// Hardware sync is on.
	"hardware_sync": nil,
	// A recent sync.
	"wait_hardware_sync": nil,
	// Ready.
	"release": {"erase", "secure_erase", "quick_erase"},
	// The disks erased after the request, then Ready.
	"erase": {"secure_erase", "quick_erase"},
	// The power is on, as MAAS reads it from the BMC.
	"power_on": nil,
	// The power is off; a released machine that is switched by hand is not awaited.
	"power_off": {"stop_mode"},
	// The power state, as MAAS reads it from the BMC.
	"power_query": nil,
	// No work under way.
	"abort": nil,
	// No such machine; the record is gone.
	"delete": nil,
	// Broken.
	"mark_broken": {"comment"},
	// Not Broken.
	"mark_fixed": {"comment"},
	// Not Failed testing: Ready, or Deployed.
	"override_failed_testing": {"comment"},
	// Rescue mode.
	"rescue_mode": nil,
	// No rescue mode.
	"exit_rescue_mode": nil,
}

var deployParams = []string{"image", "distro_series", "hwe_kernel", "hardware_sync"}

// maxParam is the longest value of a parameter, in bytes.
const maxParam = 256

func validateProvider(a *baremetalv1.ProviderAction, field string) error {
	params, known := providerActions[a.GetAction()]
	if !known {
		return invalid("INVALID_FIELD", field+".action",
			fmt.Sprintf("%.64q is no action of a provider; docs/reference/maas-actions.md lists them", a.GetAction()))
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

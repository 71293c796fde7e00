package kind

import (
	"fmt"
	"slices"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// ProviderAction has the machine's provider act, by the site agent. Its mode is the action.
const ProviderAction Kind = "provider_action"

var providerAction = Declaration{
	Kind:   ProviderAction,
	Step:   true,
	Runs:   true,
	Action: "provider_action",
	Mode:   "action",
	Check:  func(s *baremetalv1.Step, path string) error { return validateProvider(s.GetProviderAction(), path) },
	Fill: func(s *baremetalv1.Step, in Inputs) error {
		fillProvider(s.GetProviderAction(), in)
		return nil
	},
	HarmOf:   providerHarm,
	Route:    ThroughProvider,
	Harm:     Interrupts,
	Timeout:  1800 * time.Second,
	Retries:  1,
	Evidence: evidence.ProviderSaid,
	Started:  "Asking the provider",
	Done:     "The provider shows it",
}

// destructiveActions of providers lose data or a record.
var destructiveActions = []string{"deploy", "recover_deploy", "release", "erase", "delete"}

// harmlessActions only read, or write down what the provider does later.
var harmlessActions = []string{
	"check_region", "render_user_data", "create", "wait_ready", "wait_deployed", "classify_failure", "hardware_sync",
	"wait_hardware_sync", "power_query", "power_on", "mark_fixed",
}

// ProviderActions are the actions that a plan may hold, and the parameters of each. The comments say what the provider
// shows when the action is done.
var ProviderActions = map[string][]string{
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
	params, known := ProviderActions[a.GetAction()]
	if !known {
		return Invalid("INVALID_FIELD", field+".action",
			fmt.Sprintf("%.64q is no action of a provider; docs/reference/maas-actions.md lists them", a.GetAction()))
	}
	for name, value := range a.GetParams() {
		if err := oneOf(field+".params", name, params); err != nil {
			return err
		}
		if len(value) > maxParam {
			return Invalid("INVALID_FIELD", field+".params."+name, "more than 256 characters")
		}
	}
	return nil
}

// fillProvider sets the image to deploy, where the plan has none. Only the request's image, or the machine's own,
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

func providerHarm(s *baremetalv1.Step) Harm {
	switch action := s.GetProviderAction().GetAction(); {
	case slices.Contains(harmlessActions, action):
		return Harmless
	case slices.Contains(destructiveActions, action):
		return Destroys
	}
	return Interrupts
}

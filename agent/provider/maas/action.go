package maas

import (
	"maps"
	"slices"
)

// Action is one thing that can be asked of a machine through MAAS.
type Action struct {
	Name string
	// Params that it takes.
	Params []string
	// Destructive: it loses data or a record.
	Destructive bool
	// Power: the BMC is read through MAAS before each decision. Events: MAAS's events of the machine are.
	Power, Events bool
	// Absent: it makes sense on a machine that MAAS doesn't have.
	Absent bool
	// Deployed: it judges, or goes on with, a deployment that must be ours.
	Deployed bool
	// Region: it is about the region and no machine.
	Region bool
	decide func(Order, Seen) Next
}

var actions = index([]Action{
	{Name: "check_region", Region: true},
	{Name: "render_user_data", Region: true},
	{Name: "create", Absent: true, Params: []string{"architecture"}, decide: decideCreate},
	{Name: "commission", Events: true, Params: []string{"commissioning_scripts", "testing_scripts", "force"},
		decide: decideCommission},
	{Name: "wait_ready", decide: decideReady},
	{Name: "set_storage_layout", Params: []string{"layout"}, decide: decideLayout},
	{Name: "fabric_interfaces", decide: decideFabric},
	{Name: "boot_interface", decide: decideBootInterface},
	{Name: "allocate", decide: decideAllocate},
	{Name: "deploy", Destructive: true, Events: true, Params: deployParams, decide: decideDeploy},
	{Name: "wait_deployed", Deployed: true, Params: []string{"settle"}, decide: decideDeployed},
	{Name: "classify_failure", Deployed: true, Events: true, decide: decideClass},
	{Name: "recover_deploy", Deployed: true, Destructive: true, Events: true, Params: deployParams, decide: decideRecover},
	{Name: "hardware_sync", Deployed: true, decide: decideSync},
	{Name: "wait_hardware_sync", Deployed: true, decide: decideSyncHealthy},
	{Name: "release", Destructive: true, Events: true, Params: []string{"erase", "secure_erase", "quick_erase"},
		decide: decideRelease},
	{Name: "erase", Destructive: true, Events: true, Params: []string{"secure_erase", "quick_erase"}, decide: decideErase},
	{Name: "power_on", Power: true, decide: decidePowerOn},
	{Name: "power_off", Power: true, Params: []string{"stop_mode"}, decide: decidePowerOff},
	{Name: "power_query", Power: true, decide: decidePowerQuery},
	{Name: "abort", decide: decideAbort},
	{Name: "delete", Destructive: true, Absent: true, decide: decideDelete},
	{Name: "mark_broken", Params: []string{"comment"}, decide: decideBroken},
	{Name: "mark_fixed", Params: []string{"comment"}, decide: decideFixed},
	{Name: "override_failed_testing", Params: []string{"comment"}, decide: decideOverride},
	{Name: "rescue_mode", decide: decideRescue},
	{Name: "exit_rescue_mode", decide: decideExitRescue},
})

var deployParams = []string{"image", "distro_series", "hwe_kernel", "hardware_sync"}

func index(list []Action) map[string]Action {
	out := map[string]Action{}
	for _, a := range list {
		out[a.Name] = a
	}
	return out
}

// ActionOf finds an action by its name.
func ActionOf(name string) (Action, bool) { a, ok := actions[name]; return a, ok }

// Actions lists the names, sorted.
func Actions() []string { return slices.Sorted(maps.Keys(actions)) }

// Decide returns the next step of an order, by the state in MAAS and the earlier requests.
func Decide(o Order, s Seen) Next {
	a := actions[o.Action]
	if a.decide == nil {
		return fail("INVALID_FIELD", false, "there is no action %q", o.Action)
	}
	if s.M != nil && s.P.SystemID != "" && s.M.SystemID != s.P.SystemID {
		s.M = nil // another record with the same MAC addresses is not the machine that was meant
	}
	if s.M == nil && !a.Absent {
		return gone()
	}
	if v := otherMachine(o.Serial, s.M); v.Other() {
		return fail("HARDWARE_MISMATCH", false, "the machine with these MAC addresses in MAAS is another one: %s", v)
	}
	if a.Deployed && heldBy(o.Machine, s.M, s.User) != "" {
		return conflict(s, heldBy(o.Machine, s.M, s.User))
	}
	return keepForeign(o, s, a.decide(o, s))
}

package workflow

import (
	"slices"

	"github.com/ingot-metal/ingot/internal/evidence"
)

// The stages that are built. Those of MAAS are in the catalogue under their names alone.
const (
	DisableNode       = "disable_node"
	ForceRelease      = "force_release_allocations"
	DrainNode         = "drain_node"
	CleanupStorage    = "cleanup_storage"
	ScrubGPU          = "scrub_gpu"
	ResetHost         = "reset_host"
	InstallNode       = "install_node"
	WaitForEnrollment = "wait_for_agent_enrollment"
	ValidateClean     = "validate_clean_node"
	PowerOffNode      = "power_off_node"
	RetireNode        = "retire_gpuaas_node"
	RemoveRecord      = "remove_gpuaas_node_record"
	CleanupSecrets    = "cleanup_secrets"
	ResolvePower      = "resolve_power_credentials"
	ApproveNode       = "approve_node"
	VerifyNode        = "verify_node"
)

// Stage is one row of the catalogue.
type Stage struct {
	Name string
	Kind Kind
	// Modes that have it; of an onboarding, NoMode.
	Modes []Mode
	// When narrows the machines that have it; nil means all. Where says so in words.
	When  func(Traits) bool
	Where string
	// Steps of an operation that do it, by kind; "workflow_stage" is a check or an action of the controller's own.
	Steps []StepOf
	// Effect, Check (the one that can fail) and Compensation (what undoes it when the workflow is cancelled) in words.
	Effect, Check, Compensation string
	// Wired is false where the stage is published and not built: it fails with STAGE_NOT_WIRED.
	Wired bool
	// Gives names the evidence that the stage leaves; a workflow that lost it goes back to the stage.
	Gives string
	// Opens says that the stage makes the node's state one of work in progress: every attempt begins with it.
	Opens bool
	// ResumeAt is the stage from which a resume goes on when this one has failed; empty means this one.
	ResumeAt string
	// Adoptable says that its effect may be taken as done because it is observed.
	Adoptable bool
}

// StepOf is one step of a stage: its name in the plan and its kind in the API's Step.
type StepOf struct{ Name, Kind, Mode string }

var (
	allModes   = []Mode{SoftReset, Reimage, StorageCleanup, FullDecommission}
	installing = []Mode{Reimage, StorageCleanup}
	full       = []Mode{FullDecommission}
	none       = []Mode{NoMode}
)

// CheckKind is the kind of a step that is a stage's own check or action.
const CheckKind = "workflow_stage"

func own(name string) []StepOf { return []StepOf{{Name: StepName(name), Kind: CheckKind, Mode: name}} }

// StepName is a stage's name as a step may have it.
func StepName(stage string) string {
	b := []byte(stage)
	for i := range b {
		if b[i] == '_' {
			b[i] = '-'
		}
	}
	return string(b)
}

// maas makes a row of the stages that a MAAS region would do. None is built.
func maas(k Kind, name, effect, check, compensation string) Stage {
	modes := none
	if k == Decommission {
		modes = full
	}
	return Stage{
		Name: name, Kind: k, Modes: modes, When: Traits.maas, Where: "provider maas", Steps: own(name), Effect: effect, Check: check,
		Compensation: compensation,
	}
}

// installSteps are those of a repave, named after their stage.
func installSteps(stage string) []StepOf {
	n := StepName(stage)
	return []StepOf{{n + "-netboot", "netboot", ""}, {n, "repave", ""}, {n + "-reboot", "reboot", ""}}
}

// Catalogue lists every stage, in the order in which a workflow has them.
func Catalogue() []Stage { return slices.Clone(catalogue) }

var catalogue = slices.Concat(decommissionStages(), onboardingStages())

func decommissionStages() []Stage {
	return slices.Concat(cleaningStages(), leavingStages())
}

// cleaningStages bring a machine out of service and clean it.
func cleaningStages() []Stage {
	d := Decommission
	return []Stage{
		{Name: DisableNode, Kind: d, Modes: allModes, Steps: own(DisableNode), Wired: true, Opens: true,
			Effect: "nothing new is placed on the machine; the node is draining", Check: "the phase is MAINTENANCE",
			Compensation: "the node is offline, and active again once its agent reports"},
		{Name: ForceRelease, Kind: d, Modes: allModes, Steps: own(ForceRelease), Wired: true,
			Effect: "nobody holds the machine", Check: "it is in no cluster, or in one that is stored and that drain_node takes it out of", Compensation: "none"},
		{Name: DrainNode, Kind: d, Modes: allModes, Steps: own(DrainNode), Wired: true, Adoptable: true,
			Effect:       "no workload runs on it; but for a soft reset the machine leaves the cluster",
			Check:        "condition InCustomerCluster is false or Drained is true; else the Node is drained and read back",
			Compensation: "a drain that fails or is cancelled takes its own cordon back"},
		{Name: CleanupStorage, Kind: d, Modes: []Mode{StorageCleanup, FullDecommission}, Wired: true, Gives: evidence.EraseMethod,
			Steps:  []StepOf{{"cleanup-storage-netboot", "netboot", ""}, {"cleanup-storage", "erase", ""}},
			Effect: "every disk that is not protected is erased", Check: "the method is read back as verified", Compensation: "none: data is gone"},
		{Name: ScrubGPU, Kind: d, Modes: []Mode{SoftReset, FullDecommission}, When: func(t Traits) bool { return t.GPU },
			Where: "the inventory shows a GPU", Steps: own(ScrubGPU), Effect: "the memory of GPUs is cleared", Check: "not built",
			Compensation: "none"},
		{Name: ResetHost, Kind: d, Modes: []Mode{SoftReset}, Wired: true, Gives: evidence.BootIDAfter,
			Steps:  []StepOf{{"reset-host", "reboot", ""}, {"reset-host-agent", "wait_for_agent", ""}},
			Effect: "what ran on the machine runs no more", Check: "another boot id is read back", Compensation: "none"},
		{Name: InstallNode, Kind: d, Modes: installing, Steps: installSteps(InstallNode), Wired: true, Gives: evidence.ImageDigest,
			Effect: "the image is written to the machine's disk", Check: "the image is read back from the disk and reported by the new system",
			Compensation: "the machine boots from its disk"},
		{Name: WaitForEnrollment, Kind: d, Modes: installing, Wired: true, Adoptable: true,
			Steps:  []StepOf{{"wait-for-agent-enrollment", "wait_for_agent", ""}},
			Effect: "the new system's agent has a session", Check: "a live session", Compensation: "none"},
		{Name: ValidateClean, Kind: d, Modes: allModes, Steps: own(ValidateClean), Wired: true,
			Effect: "the workflow knows that the machine is clean",
			Check:  "the evidence of the mode is there: a new boot, a verified image, verified erasure", Compensation: "none"},
	}
}

// leavingStages take a machine out of the inventory.
func leavingStages() []Stage {
	d := Decommission
	return []Stage{
		maas(d, "load_site_config", "the region's address and key are known", "the region answers", "none"),
		maas(d, "release_maas_node", "MAAS releases the machine", "MAAS says Ready", "none"),
		maas(d, "power_off_maas_node", "MAAS switches the machine off", "MAAS says that it is off", "none"),
		{Name: PowerOffNode, Kind: d, Modes: full, When: func(t Traits) bool { return t.BMC && !t.maas() }, Where: "the machine has a BMC",
			Steps: own(PowerOffNode), Wired: true, Adoptable: true, Gives: evidence.PowerOffSeenAt,
			Effect: "the machine is off", Check: "the BMC is read back as off", Compensation: "none: the operator switches it on"},
		{Name: RetireNode, Kind: d, Modes: full, Steps: own(RetireNode), Wired: true,
			Effect: "the node is retired; nothing runs on it any more", Check: "the erasure is verified",
			Compensation: "the identity is kept: the node stays retired"},
		{Name: RemoveRecord, Kind: d, Modes: full, Steps: own(RemoveRecord), Wired: true, Opens: true,
			Effect: "the node is removing, and deleted when the workflow completes; its MAC addresses are free then",
			Check:  "the erasure is verified", Compensation: "the node is retired"},
		{Name: CleanupSecrets, Kind: d, Modes: full, Steps: own(CleanupSecrets), Wired: true, ResumeAt: RemoveRecord,
			Effect:       "its agents' certificates and tokens are revoked; BMC credentials that no other machine names are deleted",
			Check:        "done in the same transaction as the removal",
			Compensation: "none: new tokens are issued to a new record"},
		maas(d, "remove_maas_record", "MAAS forgets the machine", "the machine is absent from MAAS", "none"),
	}
}

func onboardingStages() []Stage {
	o := Onboarding
	return slices.Concat([]Stage{
		{Name: ApproveNode, Kind: o, Modes: none, Steps: own(ApproveNode), Wired: true, Opens: true,
			Effect: "the node is enrolling", Check: "the node is new: it was never active", Compensation: "the node is quarantined"},
		maas(o, "load_site_config", "the region's address and key are known", "the region answers", "none"),
		{Name: ResolvePower, Kind: o, Modes: none, When: func(t Traits) bool { return t.BMC || t.maas() }, Where: "the machine has a BMC",
			Steps: own(ResolvePower), Wired: true,
			Effect: "none", Check: "the BMC credentials that the machine names are known", Compensation: "none"},
	}, maasOnboarding(), []Stage{
		{Name: InstallNode, Kind: o, Modes: none, When: func(t Traits) bool { return !t.maas() && t.Path != PathAdopt },
			Where: "path install", Steps: installSteps(InstallNode), Wired: true, Gives: evidence.ImageDigest,
			Effect:       "the image is written to the machine's disk",
			Check:        "the image is read back from the disk and reported by the new system",
			Compensation: "the machine boots from its disk"},
		{Name: WaitForEnrollment, Kind: o, Modes: none, Wired: true, Adoptable: true,
			Steps:  []StepOf{{"wait-for-agent-enrollment", "wait_for_agent", ""}},
			Effect: "the system's agent has a session", Check: "a live session", Compensation: "none"},
		{Name: VerifyNode, Kind: o, Modes: none, Steps: own(VerifyNode), Wired: true,
			Effect: "the node is active when the workflow completes",
			Check:  "the agent is live, and after an installation runs the image that was written", Compensation: "the node is quarantined"},
	})
}

func maasOnboarding() []Stage {
	o := Onboarding
	return []Stage{
		maas(o, "create_or_find_in_maas", "MAAS knows the machine", "exactly one machine in MAAS has its MAC addresses", "what was created is removed"),
		maas(o, "commission_node", "MAAS commissions the machine", "MAAS takes the request", "commissioning is aborted"),
		maas(o, "wait_for_ready", "none", "MAAS says Ready", "none"),
		maas(o, "configure_storage", "the disks' layout is set", "the boot disk is found", "none"),
		maas(o, "apply_roce_phase2", "the fabric's interfaces are set", "MAAS shows them", "none"),
		maas(o, "ensure_pxe_interface_auto", "the boot interface has an address mode", "MAAS shows it", "none"),
		maas(o, "render_cloud_init", "the user data is made", "it parses", "none"),
		maas(o, "deploy_via_maas", "MAAS writes the system", "MAAS takes the request", "the machine is released"),
		maas(o, "wait_for_deployed", "none", "MAAS says Deployed", "the machine is released"),
		maas(o, "classify_deploy_failure", "a failed deployment has a class", "the class is known", "none"),
		maas(o, "recover_for_datasource_retry", "the machine is released for another try", "fewer than the bound", "none"),
		maas(o, "ensure_hardware_sync_configured", "hardware sync is on", "MAAS shows it", "none"),
		maas(o, "wait_for_hardware_sync_healthy", "none", "a sync was seen lately", "none"),
	}
}

// Find gives the row of a stage.
func Find(k Kind, name string) (Stage, bool) {
	i := slices.IndexFunc(catalogue, func(s Stage) bool { return s.Kind == k && s.Name == name })
	if i < 0 {
		return Stage{}, false
	}
	return catalogue[i], true
}

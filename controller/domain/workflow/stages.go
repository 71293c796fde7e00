package workflow

import (
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// The stages.
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

// The stages of MAAS.
const (
	LoadSiteConfig  = "load_site_config"
	CreateInMAAS    = "create_or_find_in_maas"
	CommissionRun   = "commission_node"
	WaitForReady    = "wait_for_ready"
	DeployViaMAAS   = "deploy_via_maas"
	WaitDeployed    = "wait_for_deployed"
	RecoverDeploy   = "recover_for_datasource_retry"
	WaitHardwareRun = "wait_for_hardware_sync_healthy"
	ReleaseMAAS     = "release_maas_node"
	PowerOffMAAS    = "power_off_maas_node"
	RemoveMAAS      = "remove_maas_record"
)

// ForgetAction is the provider's action that removes its record of a machine.
const ForgetAction = "delete"

// Stage is one row of the catalogue.
type Stage struct {
	Name string
	Kind Kind
	// Modes that have it; of an onboarding, NoMode.
	Modes []Mode
	// Provider names the one whose machines have this row, or notMAAS; empty means all. Two rows of one name are two ways
	// of doing it.
	Provider string
	// When narrows the machines that have it; nil means all. Where describes that in words.
	When  func(Traits) bool
	Where string
	// Steps of an operation that do it, by kind; "workflow_stage" is a check or an action of the controller's own.
	Steps []StepOf
	// Effect, Check (the one that can fail) and Compensation (what undoes it when the workflow is cancelled) in words.
	Effect, Check, Compensation string
	// Wired is false where the stage is published and not built: it fails with STAGE_NOT_WIRED.
	Wired bool
	// Gives names the evidence of the stage; a workflow that lost it goes back to the stage.
	Gives string
	// Opens is set when the stage makes the node's state one of work in progress: every attempt begins with it.
	Opens bool
	// ResumeAt is the stage from which a resume goes on when this one has failed; empty means this one.
	ResumeAt string
	// Adoptable is set when its effect may be taken as done because it is observed.
	Adoptable bool
	// Touches is set when the stage changes the machine: a node whose stage fails is not fit for use before it was
	// cleaned.
	Touches bool
	// Undo names the provider's actions that a clean start takes where the stage was begun.
	Undo []string
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
const CheckKind = string(kind.WorkflowStage)

// ProviderKind is the kind of a step that is an action of the machine's provider.
const ProviderKind = string(kind.ProviderAction)

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

// notMAAS marks rows that machines of MAAS have another of.
const notMAAS = "not maas"

// maas makes a row of a stage that a MAAS region does, by one action.
func maas(k Kind, name, action, effect, check, compensation string) Stage {
	modes := none
	if k == Decommission {
		modes = full
	}
	return Stage{
		Name: name, Kind: k, Modes: modes, Provider: ProviderMAAS, Where: "provider maas", Effect: effect, Check: check,
		Steps: []StepOf{{StepName(name), ProviderKind, action}}, Compensation: compensation, Wired: true,
	}
}

// giving adds what a stage of MAAS leaves, and whether its effect may be taken as done because it is observed.
func (s Stage) giving(evidence string, adoptable bool) Stage {
	s.Gives, s.Adoptable = evidence, adoptable
	return s
}

// undoneBy adds what a clean start does at the provider where the stage was begun.
func (s Stage) undoneBy(actions ...string) Stage {
	s.Undo = actions
	return s
}

// The provider's actions that undo, and what they do to a deployment.
const (
	undoAbort        = "abort"
	undoRelease      = "release"
	undoneDeployment = "the deployment is aborted; on a clean start the machine is released too"
)

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
			Effect: "the machine has no holder",
			Check:  "it is in no cluster, or in one that is stored and that drain_node takes it out of", Compensation: "none"},
		{Name: DrainNode, Kind: d, Modes: allModes, Steps: own(DrainNode), Wired: true, Adoptable: true,
			Effect:       "no workload runs on it; but for a soft reset the machine leaves the cluster",
			Check:        "condition InCustomerCluster is false or Drained is true; else the Node is drained and read back",
			Compensation: "a drain that fails or is cancelled takes its own cordon back"},
		// MAAS switches a machine off when it has released it: its own agent resets what it has before.
		scrubGPU(ProviderMAAS, "the inventory shows an accelerator, provider maas"),
		{Name: CleanupStorage, Kind: d, Modes: []Mode{StorageCleanup, FullDecommission}, Wired: true,
			Gives: evidence.EraseMethod, Touches: true,
			Provider: notMAAS, Where: "not provider maas",
			Steps:  []StepOf{{"cleanup-storage-netboot", "netboot", ""}, {"cleanup-storage", "erase", ""}},
			Effect: "every disk that is not protected is erased", Check: "the method is read back as verified",
			Compensation: "none: data is gone"},
		{Name: CleanupStorage, Kind: d, Modes: []Mode{StorageCleanup, FullDecommission}, Wired: true,
			Gives: evidence.EraseMethod, Touches: true,
			Provider: ProviderMAAS, Where: "provider maas", Steps: []StepOf{{"cleanup-storage", ProviderKind, "erase"}},
			Effect:       "MAAS releases the machine and erases its disks",
			Check:        "MAAS is seen to erase them after the request, then says Ready",
			Compensation: "none: data is gone"},
		scrubGPU(notMAAS, "the inventory shows an accelerator, not provider maas"),
		{Name: ResetHost, Kind: d, Modes: []Mode{SoftReset}, Wired: true, Touches: true, Gives: evidence.BootIDAfter,
			Steps:  []StepOf{{"reset-host", "reboot", ""}, {"reset-host-agent", "wait_for_agent", ""}},
			Effect: "what ran on the machine runs no more", Check: "another boot id is read back", Compensation: "none"},
		{
			Name:     InstallNode,
			Kind:     d,
			Modes:    installing,
			Provider: ProviderMAAS,
			Where:    "provider maas",
			Wired:    true,
			Touches:  true,
			Gives:    evidence.Deployed,
			Undo:     []string{undoAbort, undoRelease},
			Steps: []StepOf{{"install-node-release", ProviderKind, "release"}, {"install-node", ProviderKind, "deploy"},
				{"install-node-deployed", ProviderKind, "wait_deployed"}},
			Effect: "MAAS releases the machine and deploys it again",
			Check:  "MAAS says Deployed, and the deployment is this operation's",
			Compensation: "the machine stays as MAAS has it; on a clean start the deployment is aborted and the " +
				"machine released",
		},
		{Name: InstallNode, Kind: d, Modes: installing, Steps: installSteps(InstallNode), Wired: true, Touches: true,
			Gives:    evidence.ImageDigest,
			Provider: notMAAS, Where: "not provider maas",
			Effect:       "the image is written to the machine's disk",
			Check:        "the image is read back from the disk and reported by the new system",
			Compensation: "the machine boots from its disk"},
		{Name: WaitForEnrollment, Kind: d, Modes: installing, Wired: true, Adoptable: true,
			Steps:  []StepOf{{"wait-for-agent-enrollment", "wait_for_agent", ""}},
			Effect: "the new system's agent has a session", Check: "a live session", Compensation: "none"},
		{Name: ValidateClean, Kind: d, Modes: allModes, Steps: own(ValidateClean), Wired: true,
			Effect: "the workflow knows that the machine is clean",
			Check:  "the evidence of the mode is there: a new boot, a verified image, verified erasure", Compensation: "none"},
	}
}

// scrubGPU makes the row of the stage that clears the memory of accelerators, of a provider's machines.
func scrubGPU(provider, where string) Stage {
	return Stage{
		Name: ScrubGPU, Kind: Decommission, Modes: []Mode{SoftReset, FullDecommission}, Provider: provider, Where: where,
		Wired: true,
		When:  func(t Traits) bool { return t.GPU }, Touches: true, Gives: evidence.DevicesReset,
		Steps:        []StepOf{{"scrub-gpu", "reset_devices", ""}},
		Effect:       "accelerators are reset, and their memory holds nothing",
		Check:        "each device is reset by the kernel and answers again",
		Compensation: "none",
	}
}

// leavingStages take a machine out of the inventory.
func leavingStages() []Stage {
	d := Decommission
	return []Stage{
		maas(d, LoadSiteConfig, "check_region", "none", "the region answers and takes the key", "none"),
		maas(d, ReleaseMAAS, "release", "MAAS releases the machine", "MAAS says Ready", "none").giving("maas_released", true),
		maas(d, PowerOffMAAS, "power_off", "MAAS switches the machine off", "MAAS reads the power as off, where it can",
			"none").giving("", true),
		{Name: PowerOffNode, Kind: d, Touches: true, Modes: full, When: func(t Traits) bool { return t.BMC },
			Provider: notMAAS, Where: "the machine has a BMC",
			Steps: own(PowerOffNode), Wired: true, Adoptable: true, Gives: evidence.PowerOffSeenAt,
			Effect: "the machine is off", Check: "the BMC is read back as off",
			Compensation: "none: the operator switches it on"},
		{Name: RetireNode, Kind: d, Modes: full, Steps: own(RetireNode), Wired: true,
			Effect: "the node is retired; nothing runs on it any more", Check: "the erasure is verified",
			Compensation: "the identity is kept: the node stays retired"},
		{Name: RemoveRecord, Kind: d, Modes: full, Steps: own(RemoveRecord), Wired: true, Opens: true,
			Effect: "the node is removing, and deleted when the workflow completes; its MAC addresses are free then",
			Check:  "the erasure is verified", Compensation: "the node is retired"},
		maas(d, RemoveMAAS, ForgetAction, "MAAS forgets the machine, unless the region keeps machines",
			"the machine is absent from MAAS", "none").
			giving("maas_record", true),
		{Name: CleanupSecrets, Kind: d, Modes: full, Steps: own(CleanupSecrets), Wired: true, ResumeAt: RemoveRecord,
			Effect: "its agents' certificates and tokens are revoked; BMC credentials that no other machine names are " +
				"deleted",
			Check:        "done in the same transaction as the removal",
			Compensation: "none: new tokens are issued to a new record"},
	}
}

func onboardingStages() []Stage {
	o := Onboarding
	return slices.Concat([]Stage{
		{Name: ApproveNode, Kind: o, Modes: none, Steps: own(ApproveNode), Wired: true, Opens: true,
			Effect: "the node is enrolling", Check: "the node is new: it was never active",
			Compensation: "the node is quarantined"},
		maas(o, LoadSiteConfig, "check_region", "none", "the region answers and takes the key", "none"),
		{Name: ResolvePower, Kind: o, Modes: none, When: func(t Traits) bool { return t.BMC || t.maas() },
			Where: "the machine has a BMC, or provider maas",
			Steps: own(ResolvePower), Wired: true,
			Effect: "none", Check: "the BMC credentials, and of provider maas the region, that the machine names are known",
			Compensation: "none"},
	}, maasOnboarding(), []Stage{
		{Name: InstallNode, Kind: o, Modes: none, When: func(t Traits) bool { return t.Path != PathAdopt }, Provider: notMAAS,
			Where: "path install", Steps: installSteps(InstallNode), Wired: true, Gives: evidence.ImageDigest,
			Effect:       "the image is written to the machine's disk",
			Check:        "the image is read back from the disk and reported by the new system",
			Compensation: "the machine boots from its disk"},
		// A system that does not come may have been taken from the machine since: the deployment is looked at first.
		enrolling(ProviderMAAS, "provider maas", WaitDeployed),
		enrolling(notMAAS, "not provider maas", ""),
		{Name: VerifyNode, Kind: o, Modes: none, Steps: own(VerifyNode), Wired: true,
			Effect:       "the node is active when the workflow completes",
			Check:        "the agent is live, and after an installation runs the image that was written",
			Compensation: "the node is quarantined"},
	})
}

// enrolling makes the row of an onboarding's stage that waits for the system's agent, of a provider's machines.
func enrolling(provider, where, resumeAt string) Stage {
	return Stage{
		Name: WaitForEnrollment, Kind: Onboarding, Modes: none, Provider: provider, Where: where, Wired: true,
		Adoptable: true, ResumeAt: resumeAt,
		Steps:  []StepOf{{"wait-for-agent-enrollment", "wait_for_agent", ""}},
		Effect: "the system's agent has a session", Check: "a live session", Compensation: "none",
	}
}

func maasOnboarding() []Stage {
	o := Onboarding
	ready := maas(o, WaitForReady, "wait_ready", "none", "MAAS says Ready", "none").giving("maas_ready", true)
	ready.ResumeAt = CommissionRun
	// The failure is the deployment's: it is made anew, wherever the failure was noticed.
	failsAs := func(s Stage) Stage { s.ResumeAt = DeployViaMAAS; return s }
	// A request to a deployment may fail because it is gone: it is read first.
	asksOf := func(s Stage) Stage { s.ResumeAt = WaitDeployed; return s }
	return []Stage{
		maas(o, CreateInMAAS, "create", "MAAS knows the machine",
			"exactly one machine in MAAS has its MAC addresses, and its serial number",
			"none: a record that was made stays for the next try").giving("maas_found", true),
		maas(o, CommissionRun, "commission", "MAAS commissions the machine", "MAAS takes the request",
			"commissioning is aborted").
			giving("maas_commissioned", true).undoneBy(undoAbort),
		ready,
		maas(o, "configure_storage", "set_storage_layout", "the disks' layout is set",
			"MAAS has a boot disk, and shows the layout", "none"),
		maas(o, "apply_roce_phase2", "fabric_interfaces", "interfaces that are tagged roce have an address mode",
			"MAAS shows it", "none"),
		maas(o, "ensure_pxe_interface_auto", "boot_interface", "the boot interface has an address mode", "MAAS shows it",
			"none"),
		maas(o, "render_cloud_init", "render_user_data", "none", "the region's user data can be filled in and is YAML",
			"none"),
		maas(o, DeployViaMAAS, "deploy", "MAAS writes the system", "MAAS says Deploying or beyond, for this operation",
			undoneDeployment).
			giving(evidence.Redeployed, true).undoneBy(undoAbort, undoRelease),
		failsAs(maas(o, WaitDeployed, "wait_deployed", "none", "the deployment has ended",
			"the deployment is aborted").giving("", true)),
		failsAs(maas(o, "classify_deploy_failure", "classify_failure", "a failed deployment has a class",
			"the deployment did not fail, or for want of its data source", "none")),
		failsAs(maas(o, RecoverDeploy, "recover_deploy",
			"a deployment that failed for want of its data source is released and made once more",
			"MAAS says Deployed", undoneDeployment).giving(evidence.Deployed, false).undoneBy(undoAbort, undoRelease)),
		asksOf(maas(o, "ensure_hardware_sync_configured", "hardware_sync", "none",
			"hardware sync is on, where the system has it", "none")),
		asksOf(maas(o, WaitHardwareRun, "wait_hardware_sync", "none", "a sync was seen lately, where it is on", "none")),
	}
}

// Find returns the row of a stage of machines that MAAS does not drive, or the only one there is.
func Find(k Kind, name string) (Stage, bool) { return FindFor(k, name, "") }

// FindFor returns the row of a stage of a provider's machines.
func FindFor(k Kind, name, provider string) (Stage, bool) {
	var found *Stage
	for i := range catalogue {
		s := &catalogue[i]
		if s.Kind != k || s.Name != name {
			continue
		}
		if s.of(provider) {
			return *s, true
		}
		found = s
	}
	if found == nil {
		return Stage{}, false
	}
	return *found, true
}

// of reports whether machines of the provider have this row.
func (s *Stage) of(provider string) bool {
	switch s.Provider {
	case "":
		return true
	case notMAAS:
		return provider != ProviderMAAS
	}
	return provider == s.Provider
}

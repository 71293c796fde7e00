package workflow

import (
	"cmp"
	"maps"
)

// Class groups failures by what helps.
type Class string

// The classes that another try may mend.
const (
	ClassAgent     Class = "agent_unavailable"
	ClassSite      Class = "site_unavailable"
	ClassBMC       Class = "bmc_unreachable"
	ClassImage     Class = "image_unavailable"
	ClassExecution Class = "execution_failed"
	ClassTimeout   Class = "timeout"
	ClassAttempts  Class = "install_attempts"
	ClassProvider  Class = "provider_unreachable"
)

// The classes that need a person.
const (
	// ClassConflict: more than one machine answers to the same name.
	ClassConflict Class = "conflicting_discovery"
	// ClassDisk: the boot disk is not found, or is not the only one that fits.
	ClassDisk Class = "boot_disk_not_found"
	// ClassPXE: nothing brings the machine to boot from the network.
	ClassPXE Class = "pxe_not_fixable"
	// ClassGone: the machine was deleted by the provider, or by a user, during the workflow.
	ClassGone Class = "machine_deleted"
	// ClassInstall: the installed system fails again and again after bounded retries.
	ClassInstall Class = "repeated_install_failure"
	// ClassSeed: hardware sync, or what the first boot is given, fails again and again.
	ClassSeed Class = "repeated_seed_failure"
	// ClassDisagree: an observation contradicts the workflow in a way that allows no guess.
	ClassDisagree Class = "state_disagreement"
	// ClassUnknown: a command may have acted, and the outcome is unknown.
	ClassUnknown Class = "outcome_unknown"
	// ClassRepeated: the same failure came back after bounded retries.
	ClassRepeated Class = "repeated_failure"
	// ClassNotWired: the stage is not built.
	ClassNotWired Class = "stage_not_wired"
	// ClassCheck: a stage's check fails.
	ClassCheck Class = "check_failed"
	// ClassRefused: the machine, its data or its credentials must be changed first.
	ClassRefused Class = "needs_correction"
	// ClassMarked: an operator has frozen the workflow.
	ClassMarked Class = "marked_by_operator"
)

// DefaultBound is how many attempts may fail at one stage before a person must act.
const DefaultBound = 5

type rule struct {
	class     Class
	retryable bool
}

// rules classify the Reasons that operations end with. Other reasons need a person.
var rules = map[string]rule{
	"AGENT_UNAVAILABLE":          {ClassAgent, true},
	"AGENT_STORAGE_FULL":         {ClassRefused, false},
	"INSTALLER_SILENT":           {ClassAgent, true},
	"SITE_AGENT_SILENT":          {ClassSite, true},
	"BMC_UNREACHABLE":            {ClassBMC, true},
	"BMC_NO_EFFECT":              {ClassBMC, true},
	"IMAGE_UNAVAILABLE":          {ClassImage, true},
	"IMAGE_DIGEST_MISMATCH":      {ClassImage, true},
	"EXECUTION_FAILED":           {ClassExecution, true},
	"EXECUTOR_PANICKED":          {ClassExecution, true},
	"DISK_WRITE_ERROR":           {ClassExecution, true},
	"STEP_TIMEOUT":               {ClassTimeout, true},
	"COMMAND_EXPIRED":            {ClassTimeout, true},
	"GRANT_REFUSED":              {ClassTimeout, true},
	"AGENT_LOCKED":               {ClassRefused, false},
	"CLONE_DETECTED":             {ClassConflict, false},
	"ENROLMENT_CONTESTED":        {ClassConflict, false},
	"HARDWARE_MISMATCH":          {ClassConflict, false},
	"DISK_RULE_NO_UNIQUE_MATCH":  {ClassDisk, false},
	"NETBOOT_UNSUPPORTED":        {ClassPXE, false},
	"NO_BOOT_PATH":               {ClassPXE, false},
	"WRONG_SYSTEM_BOOTED":        {ClassPXE, true},
	"MACHINE_DELETED":            {ClassGone, false},
	"INSTALL_ATTEMPTS_EXHAUSTED": {ClassInstall, false},
	"OUTCOME_UNKNOWN":            {ClassUnknown, false},
	"EVIDENCE_MISSING":           {ClassUnknown, false},
	"AGENT_MEMORY_LOST":          {ClassUnknown, false},
	"AGENT_STATE_ROLLED_BACK":    {ClassDisagree, false},
	"CONFIG_DRIFT":               {ClassDisagree, false},
	"NODE_TRANSITION_ILLEGAL":    {ClassDisagree, false},
	"NODE_GUARD_FAILED":          {ClassDisagree, false},
	"STAGE_NOT_WIRED":            {ClassNotWired, false},
	"STAGE_CHECK_FAILED":         {ClassCheck, false},
	"DEVICE_RESET_FAILED":        {ClassExecution, true},
	"PROVIDER_DRIFT":             {ClassDisagree, false},
	"CAPABILITY_MISSING":         {ClassRefused, false},
	"REPAVE_NOT_WIRED":           {ClassRefused, false},
	"ERASE_UNSUPPORTED":          {ClassRefused, false},
	"INSTALLER_MISSING":          {ClassRefused, false},
	"BMC_AUTH_FAILED":            {ClassRefused, false},
	"IMAGE_TOO_LARGE":            {ClassRefused, false},
	"IMAGE_UNSUPPORTED":          {ClassRefused, false},
	"MACHINE_QUARANTINED":        {ClassConflict, false},
	"MACHINE_BLOCKED":            {ClassRefused, false},
	"FLEET_FROZEN":               {ClassRefused, false},
	"CLUSTER_NOT_FOUND":          {ClassRefused, false},
	"CLUSTER_NOT_CONFIGURED":     {ClassRefused, false},
	"CLUSTER_ACCESS_DENIED":      {ClassRefused, false},
	"CLUSTER_UNREACHABLE":        {ClassSite, true},
	"CLUSTER_NODE_MISMATCH":      {ClassConflict, false},
	"DRAIN_BLOCKED":              {ClassRefused, false},
	"MAAS_UNREACHABLE":           {ClassProvider, true},
	"MAAS_FAILED":                {ClassExecution, true},
	"MAAS_AUTH_FAILED":           {ClassRefused, false},
	"MAAS_REFUSED":               {ClassRefused, false},
	"MAAS_MACHINE_GONE":          {ClassGone, false},
	"MAAS_MACHINE_AMBIGUOUS":     {ClassConflict, false},
	"MAAS_STATUS_CONFLICT":       {ClassDisagree, false},
}

// Classify returns the class of a Reason and whether another try may mend it.
func Classify(reason string) (Class, bool) {
	r, ok := rules[reason]
	if !ok {
		return ClassDisagree, false
	}
	return r.class, r.retryable
}

// failAs is the state that a failure leads to. A stage that has failed too often needs a person, whatever the reasons
// were: a failed installation counts as one of the installed system, one of a first boot as one of its seed.
func (w *Workflow) failAs(reason, message string) State {
	class, retryable := Classify(reason)
	w.Failures = maps.Clone(w.Failures)
	if w.Failures == nil {
		w.Failures = map[string]int{}
	}
	w.Failures[w.Stage]++
	if retryable && w.Failures[w.Stage] >= cmp.Or(w.Bound, DefaultBound) {
		class, retryable = repeatedClass(w.Stage), false
	}
	w.FailureClass, w.Reason, w.Message = class, reason, message
	if retryable {
		return FailedRetryable
	}
	return FailedManual
}

func repeatedClass(stage string) Class {
	switch stage {
	case InstallNode, DeployViaMAAS, WaitDeployed:
		return ClassInstall
	case WaitForEnrollment, RecoverDeploy, WaitHardwareRun:
		return ClassSeed
	}
	return ClassRepeated
}

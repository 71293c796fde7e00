package workflow

import "github.com/ingot-metal/ingot/controller/domain/kind"

// ReportedInstall is the mode of a step of kind CheckKind that belongs to no workflow: an installer that is not ours
// does it and reports by itself. The operation waits for its reports, so that the installation has an owner, an end,
// and a watcher for its silence. The step's time-out bounds the silence between two reports.
const ReportedInstall = "reported_install"

// AwaitReplacement is another such mode: the machine's hardware is replaced, and it has come back when its agent opens
// a session under another boot than the one before.
const AwaitReplacement = "await_replacement"

// NothingToDrain is another: the machine is in no cluster, and its drain has nothing to do.
const NothingToDrain = kind.StageNothingToDrain

// SwitchOn and SwitchOff are two more, which operators start: the machine is switched through its BMC, or its provider,
// and is so when that was read back.
const (
	SwitchOn  = "switch_on"
	SwitchOff = kind.StageSwitchOff
)

// RotateBMCPassword is one more, for admins: the machine's BMC gets a new password, and it is so when the BMC has taken
// a log-in with it.
const RotateBMCPassword = "rotate_bmc_password" //nolint:gosec // a name, and no password

// Standalone reports whether a mode is one of those that are started outside of any workflow.
func Standalone(mode string) bool { return Switches(mode) || mode == RotateBMCPassword }

// Switches reports whether a mode is one of these two.
func Switches(mode string) bool { return mode == SwitchOn || mode == SwitchOff }

package decider

import (
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// A granted command of an installer that falls silent is settled only where something proves that the installer is
// gone.

// oldSystemUp reports whether the system that was on the disk before runs again, in another boot than it had before the
// grant: the installer, which lived in the machine's memory, is gone, and nothing that it wrote is in the way. A
// session that merely outlived the system is of the old boot. The system that this operation writes proves other
// things.
func (d *decider) oldSystemUp() bool {
	h := fleet.Host(d.w.Candidates)
	return h != nil && h.Live && h.OperationID != d.op.ID && d.cmd.ExecutorRole == "installer" && !d.entering() &&
		!d.w.ExecutorLive && d.isBefore(h) && operation.ProvesReboot(d.cmd.Evidence[evidence.HostBootID], h.BootID)
}

func (d *decider) executorLost() bool {
	return !d.w.ExecutorLive && fleet.Silence(d.w.ExecutorSilentFrom, d.now) >= operation.InstallerLost
}

// installerRestarted: another installer on the same machine proves that the one that was granted the command is gone.
// What it wrote is not bootable, and the next attempt starts from the top.
func (d *decider) installerRestarted() {
	d.installerGone("installer_restarted", "the machine was restarted while the installer worked")
}

func (d *decider) installerGone(proof, message string) {
	d.setCommand(operation.Done)
	d.cmd.Outcome, d.cmd.Reason, d.cmd.SettledBy = operation.OutcomeFailed, "EXECUTION_FAILED", proof
	d.cmd.Message = message
	d.notDone(
		operation.Resulted{Outcome: operation.OutcomeFailed, Reason: d.cmd.Reason, Message: d.cmd.Message, Retryable: true},
	)
}

// byPowerCycle settles a command whose machine is switched off next.
const byPowerCycle = "power_cycle"

// supersede settles a granted command without a result, because the machine is about to be switched off: what it may
// still do ends there. The next command is that power cycle.
func (d *decider) supersede(why string) {
	d.setCommand(operation.Done)
	d.cmd.Outcome, d.cmd.Message, d.cmd.SettledBy = operation.OutcomeUnknown, why, byPowerCycle
	d.advance()
}

package boot

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/system"
)

// Control restarts the machine and sets its next boot entry.
type Control struct {
	*system.System
	// EFIVars is the mount point of efivarfs.
	EFIVars string
	// Rebooter restarts the machine where the agent is init. nil: systemd, or reboot(2) where there is none.
	Rebooter Rebooter
	// Kexec enters the loaded kernel where the agent is init. nil: systemd, or reboot(2) where there is none.
	Kexec func(ctx context.Context) error
}

// Reboot goes through the hook where the agent is init, through systemd where there is one, and through
// reboot(2) where there is not.
func (b *Control) Reboot(ctx context.Context, _ effect.Cause, mode RebootMode) error {
	if mode != RebootGraceful && mode != RebootForced {
		return effect.Refuse(effect.ErrInvalid, effect.ReasonInvalid, "reboot mode %q", mode)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if b.Rebooter != nil {
		return b.Rebooter(ctx, mode)
	}
	if !b.CanReboot() {
		return effect.Refuse(effect.ErrUnsupported, effect.ReasonNoPrivilege, "neither root under systemd nor CAP_SYS_BOOT")
	}
	if mode == RebootGraceful && b.RunsSystemd() {
		return b.askSystemd(ctx)
	}
	return b.restartKernel()
}

// askSystemd asks logind, which systemctl does with a fallback to systemd itself. --no-block returns once the
// job is queued, and no one is asked for a password.
func (b *Control) askSystemd(ctx context.Context) error {
	out, err := b.Kernel.Run(ctx, "systemctl", "--no-block", "--no-ask-password", "--no-wall", "reboot")
	if err == nil {
		return nil
	}
	why := fmt.Sprintf("systemctl: %v: %s", err, strings.TrimSpace(string(out)))
	if b.goesOn(ctx) {
		return effect.Refuse(effect.ErrDeclined, effect.ReasonDeclined, "%s", why)
	}
	return fmt.Errorf("ask systemd to reboot: %s", why)
}

// goesOn reports whether both logind and systemd answer that no shutdown is under way. They answer after whatever was
// asked of them before: a bus delivers messages in the order in which it has received them (D-Bus specification,
// message ordering). An answer that is missing proves nothing.
func (b *Control) goesOn(ctx context.Context) bool {
	preparing, err := b.Kernel.Run(ctx, "busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1",
		"org.freedesktop.login1.Manager", "PreparingForShutdown")
	if err != nil || strings.TrimSpace(string(preparing)) != "b false" {
		return false
	}
	// list-jobs prints one line a job, and a line that there is none.
	jobs, err := b.Kernel.Run(ctx, "systemctl", "list-jobs", "--no-legend", "--plain")
	return err == nil && !strings.Contains(string(jobs), "reboot.target") &&
		!strings.Contains(string(jobs), "shutdown.target")
}

// restartKernel returns only where the kernel has declined: reboot(2) returns nothing else.
func (b *Control) restartKernel() error {
	b.Kernel.Sync()
	err := b.Kernel.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	if err == nil {
		return nil
	}
	return effect.Refuse(effect.ErrDeclined, effect.ReasonDeclined, "restart the kernel: %v", err)
}

func (b *Control) CanReboot() bool {
	if b.Rebooter != nil || b.HasCapability(unix.CAP_SYS_BOOT) {
		return true
	}
	return b.RunsSystemd() && b.Kernel.Euid() == 0
}

func (b *Control) CanNetboot() bool {
	if unix.Access(b.EFIVars, unix.W_OK) != nil {
		return false
	}
	entries, order, err := b.bootEntries()
	if err != nil {
		return false
	}
	_, ok := findEntry(entries, order, Target{Method: PXE})
	return ok
}

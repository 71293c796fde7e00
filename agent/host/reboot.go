package host

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Reboot goes through the hook where the agent is init, through systemd where there is one, and through
// reboot(2) where there is not.
func (l *Linux) Reboot(ctx context.Context, _ Effect, mode RebootMode) error {
	if mode != RebootGraceful && mode != RebootForced {
		return refuse(ErrInvalid, ReasonInvalid, "reboot mode %q", mode)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.cfg.Rebooter != nil {
		return l.cfg.Rebooter(ctx, mode)
	}
	if !l.canReboot() {
		return refuse(ErrUnsupported, ReasonNoPrivilege, "neither root under systemd nor CAP_SYS_BOOT")
	}
	if mode == RebootGraceful && l.systemd() {
		return l.askSystemd(ctx)
	}
	return l.restartKernel()
}

// askSystemd asks logind, which systemctl does with a fallback to systemd itself. --no-block returns once the
// job is queued, and no one is asked for a password.
func (l *Linux) askSystemd(ctx context.Context) error {
	out, err := l.kernel.run(ctx, "systemctl", "--no-block", "--no-ask-password", "--no-wall", "reboot")
	if err != nil {
		return fmt.Errorf("ask systemd to reboot: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (l *Linux) restartKernel() error {
	l.kernel.sync()
	if err := l.kernel.reboot(unix.LINUX_REBOOT_CMD_RESTART); err != nil {
		return fmt.Errorf("restart the kernel: %w", err)
	}
	return nil
}

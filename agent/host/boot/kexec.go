package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/effect"
)

// Flags of kexec_file_load(2).
const (
	kexecFileUnload      = 0x1
	kexecFileNoInitramfs = 0x4
)

// KexecSupport returns the refusal of a machine that cannot enter another kernel by kexec, or nil.
func (b *Control) KexecSupport() error {
	disabled := b.ReadText("proc/sys/kernel/kexec_load_disabled")
	switch {
	case disabled == "":
		return effect.Refuse(effect.ErrUnsupported, effect.ReasonNoKexec, "the kernel is built without kexec")
	case disabled != "0":
		return effect.Refuse(
			effect.ErrUnsupported,
			effect.ReasonNoKexec,
			"kexec is disabled until the next boot (kernel.kexec_load_disabled)",
		)
	case !b.HasCapability(unix.CAP_SYS_BOOT):
		return effect.Refuse(effect.ErrUnsupported, effect.ReasonNoPrivilege, "CAP_SYS_BOOT is missing")
	}
	// With no file at all the call goes as far as its permissions and no further.
	err := b.Kernel.KexecLoad(-1, -1, "", kexecFileNoInitramfs)
	if errors.Is(err, unix.EBADF) {
		return nil
	}
	return effect.Refuse(effect.ErrUnsupported, effect.ReasonNoKexec, "kexec_file_load: %v", err)
}

func (b *Control) CanKexec() bool { return b.KexecSupport() == nil }

// LoadKernel loads what EnterKernel enters.
func (b *Control) LoadKernel(_ effect.Cause, kernel, initrd *os.File, cmdline string) error {
	if err := b.KexecSupport(); err != nil {
		return err
	}
	if err := b.Kernel.KexecLoad(int(kernel.Fd()), int(initrd.Fd()), cmdline, 0); err != nil {
		return fmt.Errorf("load kernel: %w", err)
	}
	return nil
}

// UnloadKernel takes a loaded kernel away again. None there is no error.
func (b *Control) UnloadKernel() error {
	if err := b.Kernel.KexecLoad(-1, -1, "", kexecFileUnload); err != nil {
		return fmt.Errorf("unload kernel: %w", err)
	}
	return nil
}

// KernelLoaded reports whether there is a kernel that could be entered.
func (b *Control) KernelLoaded() (bool, error) {
	switch s := b.ReadText("sys/kernel/kexec_loaded"); s {
	case "1":
		return true, nil
	case "0":
		return false, nil
	default:
		return false, fmt.Errorf("read whether a kernel is loaded: %q", s)
	}
}

// EnterKernel stops the services and enters the loaded kernel. It returns once that was accepted; the process is
// expected to be killed soon after.
func (b *Control) EnterKernel(ctx context.Context, _ effect.Cause) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch {
	case b.Kexec != nil:
		return b.Kexec(ctx)
	case b.RunsSystemd():
		// With a kernel loaded this starts kexec.target and looks for no other kernel (systemctl(1)).
		out, err := b.Kernel.Run(ctx, "systemctl", "--no-block", "--no-ask-password", "--no-wall", "kexec")
		if err != nil {
			return fmt.Errorf("ask systemd to enter the kernel: %w: %s", err, strings.TrimSpace(string(out)))
		}
		return nil
	}
	b.Kernel.Sync()
	if err := b.Kernel.Reboot(unix.LINUX_REBOOT_CMD_KEXEC); err != nil {
		return fmt.Errorf("enter the kernel: %w", err)
	}
	return nil
}

package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Flags of kexec_file_load(2).
const (
	kexecFileUnload      = 0x1
	kexecFileNoInitramfs = 0x4
)

// KexecSupport gives the refusal of a machine that cannot enter another kernel by kexec, and nil else.
func (l *Linux) KexecSupport() error {
	disabled := l.read("proc/sys/kernel/kexec_load_disabled")
	switch {
	case disabled == "":
		return refuse(ErrUnsupported, ReasonNoKexec, "the kernel is built without kexec")
	case disabled != "0":
		return refuse(ErrUnsupported, ReasonNoKexec, "kexec is disabled until the next boot (kernel.kexec_load_disabled)")
	case !l.has(unix.CAP_SYS_BOOT):
		return refuse(ErrUnsupported, ReasonNoPrivilege, "CAP_SYS_BOOT is missing")
	}
	// With no file at all the call goes as far as its permissions and no further.
	err := l.kernel.kexecLoad(-1, -1, "", kexecFileNoInitramfs)
	if errors.Is(err, unix.EBADF) {
		return nil
	}
	return refuse(ErrUnsupported, ReasonNoKexec, "kexec_file_load: %v", err)
}

func (l *Linux) canKexec() bool { return l.KexecSupport() == nil }

// LoadKernel loads what EnterKernel enters.
func (l *Linux) LoadKernel(_ Effect, kernel, initrd *os.File, cmdline string) error {
	if err := l.KexecSupport(); err != nil {
		return err
	}
	if err := l.kernel.kexecLoad(int(kernel.Fd()), int(initrd.Fd()), cmdline, 0); err != nil {
		return fmt.Errorf("load kernel: %w", err)
	}
	return nil
}

// UnloadKernel takes a loaded kernel away again. None there is no error.
func (l *Linux) UnloadKernel() error {
	if err := l.kernel.kexecLoad(-1, -1, "", kexecFileUnload); err != nil {
		return fmt.Errorf("unload kernel: %w", err)
	}
	return nil
}

// KernelLoaded says whether there is a kernel that could be entered.
func (l *Linux) KernelLoaded() (bool, error) {
	switch s := l.read("sys/kernel/kexec_loaded"); s {
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
func (l *Linux) EnterKernel(ctx context.Context, _ Effect) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch {
	case l.cfg.Kexec != nil:
		return l.cfg.Kexec(ctx)
	case l.systemd():
		// With a kernel loaded this starts kexec.target and looks for no other kernel (systemctl(1)).
		out, err := l.kernel.run(ctx, "systemctl", "--no-block", "--no-ask-password", "--no-wall", "kexec")
		if err != nil {
			return fmt.Errorf("ask systemd to enter the kernel: %w: %s", err, strings.TrimSpace(string(out)))
		}
		return nil
	}
	l.kernel.sync()
	if err := l.kernel.reboot(unix.LINUX_REBOOT_CMD_KEXEC); err != nil {
		return fmt.Errorf("enter the kernel: %w", err)
	}
	return nil
}

package pid1

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

// kernelMounts follow what systemd mounts at its own start, without cgroups.
func kernelMounts() []mount {
	const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	return []mount{
		{"proc", "/proc", "proc", quiet, ""},
		{"sysfs", "/sys", "sysfs", quiet, ""},
		{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID, "mode=0755"},
		{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
		{"tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	}
}

func mountKernel() error {
	for _, m := range kernelMounts() {
		if err := m.do(); err != nil {
			return err
		}
	}
	// Without this, Ctrl-Alt-Del resets the machine at once, and the state disk with it.
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF); err != nil {
		return fmt.Errorf("turn off the kernel's Ctrl-Alt-Del: %w", err)
	}
	return rebootAfterPanic("/proc/sys/kernel/panic")
}

// rebootAfterPanic makes a kernel that panics restart the machine. Without the parameter panic it would stand still for
// ever, out of everybody's reach; a value that was given stays.
func rebootAfterPanic(file string) error {
	const seconds = "10\n"
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read what happens after a panic: %w", err)
	}
	if strings.TrimSpace(string(text)) != "0" {
		return nil
	}
	if err := os.WriteFile(file, []byte(seconds), 0o644); err != nil {
		return fmt.Errorf("set what happens after a panic: %w", err)
	}
	return nil
}

// do mounts, and takes a mount that is there already for done.
func (m mount) do() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data)
	if err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("mount %s: %w", m.target, err)
	}
	return nil
}

// mountFirmwareVariables mounts efivarfs where the firmware is UEFI
// (https://docs.kernel.org/filesystems/efivarfs.html).
func mountFirmwareVariables() error {
	const dir = "/sys/firmware/efi/efivars"
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return mount{"efivarfs", dir, "efivarfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""}.do()
}

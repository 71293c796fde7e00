package pid1

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Ioctls of linux/fs.h that x/sys/unix doesn't name: _IOWR('X', 119, int) and _IOWR('X', 120, int).
const (
	ioctlFreeze = 0xc0045877
	ioctlThaw   = 0xc0045878
)

// kexecLoaded is 1 when a kernel was loaded (https://docs.kernel.org/admin-guide/abi-testing.html, kexec_loaded).
const kexecLoaded = "/sys/kernel/kexec_loaded"

// ErrNoKernel is returned when there is no kernel to enter.
var ErrNoKernel = errors.New("no kernel has been loaded for kexec")

// Reboot writes everything out and restarts the machine through its firmware. In process 1 it returns only when that
// failed, and then the state disk can be written again. In the child it asks process 1 and returns; the child is then
// told to end by SIGTERM.
//
// The child must not do it itself. While the disk is frozen, a thread that writes to a mapped file stops in a page
// fault, as SQLite's do. Go's scheduler waits for such a thread before it collects garbage, and the thread that wants
// to reboot waits for the scheduler.
func (s *System) Reboot() error {
	if isChild() {
		return askInit(unix.SIGINT)
	}
	return s.end(unix.LINUX_REBOOT_CMD_RESTART)
}

// Kexec enters the kernel that was loaded by kexec_file_load(2), as Reboot restarts the machine. It returns ErrNoKernel
// when none was loaded.
func (s *System) Kexec() error {
	loaded, err := os.ReadFile(kexecLoaded)
	if err != nil {
		return fmt.Errorf("ask for a loaded kernel: %w", err)
	}
	if strings.TrimSpace(string(loaded)) != "1" {
		return ErrNoKernel
	}
	if isChild() {
		return askInit(unix.SIGUSR1)
	}
	return s.end(unix.LINUX_REBOOT_CMD_KEXEC)
}

// askInit sends process 1 a signal that watchSignals knows.
func askInit(sig unix.Signal) error {
	if err := unix.Kill(1, sig); err != nil {
		return fmt.Errorf("ask process 1: %w", err)
	}
	return nil
}

// PowerOff writes everything out and switches the machine off, as Reboot restarts it.
func (s *System) PowerOff() error {
	if isChild() {
		return askInit(unix.SIGTERM)
	}
	return s.end(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func (s *System) end(how int) error {
	unix.Sync()
	undo, err := quiesce(s.stateDir)
	if err != nil {
		// The disk is synced and has a journal. A machine that can't be restarted is worse.
		undo = func() error { return nil }
	}
	if err := unix.Reboot(how); err != nil {
		return errors.Join(fmt.Errorf("call reboot(2): %w", err), undo())
	}
	return nil
}

// quiesce makes the file system at dir read-only. That isn't possible while a file is open for writing, as the
// agent's own database is; then it is frozen, which also empties the journal.
func quiesce(dir string) (undo func() error, err error) {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_REMOUNT
	err = unix.Mount("", dir, "", flags|unix.MS_RDONLY, "")
	if err == nil {
		return func() error { return unix.Mount("", dir, "", flags, "") }, nil
	}
	if !errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("make %s read-only: %w", dir, err)
	}
	if err := onDir(dir, ioctlFreeze); err != nil {
		return nil, fmt.Errorf("freeze %s: %w", dir, err)
	}
	return func() error { return onDir(dir, ioctlThaw) }, nil
}

func onDir(dir string, request uint) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.IoctlSetInt(fd, request, 0), unix.Close(fd))
}

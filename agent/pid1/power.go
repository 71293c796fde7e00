package pid1

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Ioctls of linux/fs.h that x/sys/unix doesn't name: _IOWR('X', 119, int) and _IOWR('X', 120, int).
const (
	ioctlFreeze = 0xc0045877
	ioctlThaw   = 0xc0045878
)

// Reboot writes everything out and restarts the machine through its firmware. It returns only when that
// failed, and then the state disk can be written again.
func (s *System) Reboot() error { return s.end(unix.LINUX_REBOOT_CMD_RESTART) }

// PowerOff writes everything out and switches the machine off. It returns only when that failed.
func (s *System) PowerOff() error { return s.end(unix.LINUX_REBOOT_CMD_POWER_OFF) }

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

package client

import (
	"os"

	"golang.org/x/sys/windows"
)

// lockFile waits until an open file is this process's alone. Closing it ends the lock.
func lockFile(f *os.File) error {
	const first = 1 // byte
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, first, 0,
		&windows.Overlapped{})
}

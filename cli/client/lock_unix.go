//go:build unix

package client

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFile waits until an open file is this process's alone. Closing it ends the lock.
func lockFile(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX) }

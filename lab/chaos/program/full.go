package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Mount mounts a file system on a directory, so that it can be full, and reports whether it could: that takes root.
func Mount(dir, options string) (mounted bool) {
	return unix.Mount("tmpfs", dir, "tmpfs", 0, options) == nil
}

// Fill writes a file until its file system has no room left.
func Fill(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("fill a disk: %w", err)
	}
	for _, size := range []int{1 << 20, 4 << 10, 512} {
		block := make([]byte, size)
		for err = nil; err == nil; {
			_, err = f.Write(block)
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		return errors.Join(fmt.Errorf("fill a disk: %w", err), f.Close())
	}
	return f.Close()
}

// BecomesFull waits until the file system of a directory has no block left, at most as long as a program with little
// room may take to use it up. It reports whether none was left.
func BecomesFull(ctx context.Context, dir string) (full bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	for !full && ctx.Err() == nil {
		var s unix.Statfs_t
		if err := unix.Statfs(dir, &s); err != nil {
			return false, fmt.Errorf("measure a disk: %w", err)
		}
		full = s.Bavail == 0
		Rest(ctx, 15*time.Millisecond)
	}
	return full, nil
}

// FillBut is Fill that leaves some room, in bytes.
func FillBut(path string, room int64) error {
	if err := Fill(path); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("fill a disk: %w", err)
	}
	return os.Truncate(path, max(info.Size()-room, 0))
}

// Empty makes room again.
func Empty(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

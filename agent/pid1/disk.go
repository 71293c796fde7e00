package pid1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrNoStateDisk says that no disk carries a file system labelled StateLabel.
var ErrNoStateDisk = errors.New("no disk has a file system labelled " + StateLabel)

// mountState waits for the state disk, mounts it on dir and returns the device.
func mountState(ctx context.Context, dir string) (string, error) {
	device := ""
	found := poll(ctx, diskTimeout, func() bool {
		device = findLabel("/sys/class/block", "/dev", StateLabel)
		return device != ""
	})
	if !found {
		return "", ErrNoStateDisk
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME
	if err := (mount{device, dir, "ext4", flags, "errors=remount-ro"}).do(); err != nil {
		return "", fmt.Errorf("mount state disk %s: %w", device, err)
	}
	return device, nil
}

// findLabel gives the first device, by name, whose ext2/3/4 file system has the label, or "".
func findLabel(sysDir, devDir, label string) string {
	devices, err := os.ReadDir(sysDir)
	if err != nil {
		return ""
	}
	for _, d := range devices {
		path := filepath.Join(devDir, d.Name())
		if got, err := readLabel(path); err == nil && got == label {
			return path
		}
	}
	return ""
}

func readLabel(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	// Opened for reading only: closing it loses nothing.
	defer f.Close()
	return extLabel(f)
}

// extLabel reads s_volume_name. The superblock stands at byte 1024 and holds the magic 0xEF53 at 0x38 and 16
// bytes of label at 0x78 (https://docs.kernel.org/filesystems/ext4/super.html).
func extLabel(r io.ReaderAt) (string, error) {
	const superblock, magicAt, labelAt, labelLen = 1024, 0x38, 0x78, 16
	sb := make([]byte, labelAt+labelLen)
	if _, err := r.ReadAt(sb, superblock); err != nil {
		return "", err
	}
	if sb[magicAt] != 0x53 || sb[magicAt+1] != 0xef {
		return "", errors.New("no ext file system")
	}
	label, _, _ := bytes.Cut(sb[labelAt:], []byte{0})
	return string(label), nil
}

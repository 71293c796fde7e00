package pid1

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/imagelayout"
)

// ErrNoStateDisk is returned where no disk carries a file system labelled imagelayout.StateLabel.
var ErrNoStateDisk = errors.New("no disk has a file system labelled " + imagelayout.StateLabel)

// mountState waits for the state disk, mounts it on dir and returns the device. Of several it takes the one that was
// written last: the others are what other installations have left on other disks.
func mountState(ctx context.Context, log *slog.Logger, dir string) (string, error) {
	var devices []string
	found := poll(ctx, diskTimeout, func() bool {
		devices = findLabel("/sys/class/block", "/dev", imagelayout.StateLabel)
		return len(devices) > 0
	})
	if !found {
		return "", ErrNoStateDisk
	}
	device := devices[0]
	if len(devices) > 1 {
		log.Warn("several file systems have the label; the one written last is used", "label", imagelayout.StateLabel,
			"devices", devices)
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME
	if err := (mount{device, dir, "ext4", flags, "errors=remount-ro"}).do(); err != nil {
		return "", fmt.Errorf("mount state disk %s: %w", device, err)
	}
	return device, nil
}

// findLabel returns the devices whose ext2/3/4 file system has the label, the one that was written last before the
// others.
func findLabel(sysDir, devDir, label string) []string {
	devices, err := os.ReadDir(sysDir)
	if err != nil {
		return nil
	}
	written := map[string]int64{}
	var found []string
	for _, d := range devices {
		path := filepath.Join(devDir, d.Name())
		if sb, err := readSuperblock(path); err == nil && sb.label == label {
			found = append(found, path)
			written[path] = sb.written
		}
	}
	slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(written[b], written[a]) })
	return found
}

func readSuperblock(path string) (superblock, error) {
	f, err := os.Open(path)
	if err != nil {
		return superblock{}, err
	}
	// Opened for reading only: closing it loses nothing.
	defer f.Close()
	return extSuperblock(f)
}

type superblock struct {
	label   string
	written int64 // seconds since 1970
}

// extSuperblock reads s_volume_name and s_wtime. The superblock stands at byte 1024. It holds the magic 0xEF53 at 0x38,
// 16 bytes of label at 0x78, and the time at 0x30 with its upper bits at 0x274. Source:
// https://docs.kernel.org/filesystems/ext4/super.html.
func extSuperblock(r io.ReaderAt) (superblock, error) {
	const start, length, timeAt, magicAt, labelAt, labelLen, timeHighAt = 1024, 1024, 0x30, 0x38, 0x78, 16, 0x274
	sb := make([]byte, length)
	if _, err := r.ReadAt(sb, start); err != nil {
		return superblock{}, err
	}
	if sb[magicAt] != 0x53 || sb[magicAt+1] != 0xef {
		return superblock{}, errors.New("no ext file system")
	}
	label, _, _ := bytes.Cut(sb[labelAt:labelAt+labelLen], []byte{0})
	written := int64(binary.LittleEndian.Uint32(sb[timeAt:])) | int64(sb[timeHighAt])<<32
	return superblock{label: string(label), written: written}, nil
}

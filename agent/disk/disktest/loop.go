package disktest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Loop makes a real block device of size bytes out of a file in dir, with partitions, until the returned function is
// called. It needs root and losetup (Debian package mount).
func Loop(dir string, size int64) (device string, detach func() error, err error) {
	path := filepath.Join(dir, "loop")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return "", nil, err
	}
	if err := os.Truncate(path, size); err != nil {
		return "", nil, err
	}
	out, err := exec.Command("losetup", "--find", "--show", "--partscan", "--direct-io=on", path).CombinedOutput()
	if err != nil {
		return "", nil, fmt.Errorf("losetup (needs root and /dev/loop-control): %w: %s", err, out)
	}
	device = strings.TrimSpace(string(out))
	return device, func() error {
		// A kernel removes the partitions that it has found itself, and not those that were added by ioctl.
		_ = exec.Command("partx", "--delete", device).Run() // it fails where there are none
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			return fmt.Errorf("losetup --detach: %w: %s", err, out)
		}
		return nil
	}, nil
}

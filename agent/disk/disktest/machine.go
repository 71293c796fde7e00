package disktest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// Serial is that of the disk of a Machine.
const Serial = "LOOP-1"

// Machine is a root directory that shows a machine whose only disk is a loop device, for packages that look below a
// root. It holds the file system of a state partition, compressed by zstd, as "template".
type Machine struct {
	Root, Device string
	// Detach ends the device.
	Detach func() error
}

// NewMachine makes one below dir. It needs root, and mke2fs (Debian package e2fsprogs).
func NewMachine(dir string, size int64) (m Machine, err error) {
	m.Root = filepath.Join(dir, "machine")
	if err := os.Mkdir(m.Root, 0o755); err != nil {
		return m, err
	}
	if m.Device, m.Detach, err = Loop(dir, size); err != nil {
		return m, err
	}
	if err := m.fill(size); err != nil {
		return m, errors.Join(err, m.Detach())
	}
	return m, nil
}

func (m Machine) fill(size int64) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	template, err := stateTemplate(filepath.Join(m.Root, "scratch"))
	if err != nil {
		return err
	}
	sys := "sys/block/" + filepath.Base(m.Device) + "/"
	for name, data := range map[string]string{
		sys + "size": fmt.Sprint(size / 512), sys + "device/x": "", sys + "serial": Serial, "proc/self/mountinfo": "",
		"proc/self/status": string(status), "proc/sys/kernel/random/boot_id": "boot-1\n", "run/x": "",
		"template": string(template),
	} {
		path := filepath.Join(m.Root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(data), 0o644)); err != nil {
			return err
		}
	}
	return nil
}

func stateTemplate(path string) ([]byte, error) {
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 32<<20)); err != nil {
		return nil, err
	}
	if out, err := exec.Command("/usr/sbin/mke2fs", "-q", "-t", "ext4", "-b", "4096", "-L", "INGOT-STATE",
		path).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mke2fs (Debian package e2fsprogs): %w: %s", err, out)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Pack(b)
}

// Pack compresses by zstd.
func Pack(b []byte) ([]byte, error) {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		return nil, err
	}
	return z.EncodeAll(b, nil), nil
}

// Image makes an image of size bytes with one partition, a third of which holds data. It needs sgdisk (Debian package
// gdisk).
func Image(dir string, size int64) ([]byte, error) {
	path := filepath.Join(dir, "image")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size)); err != nil {
		return nil, err
	}
	if out, err := exec.Command("sgdisk", "-n", "1:2048:0", "-c", "1:root", path).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("sgdisk (Debian package gdisk): %w: %s", err, out)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	// Never fails: see its documentation.
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b[1<<20 : 1<<20+size/3])
	return b, nil
}

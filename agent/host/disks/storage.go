// Package disks chooses, writes and erases the machine's disks. It works in the installer only, which runs from none of
// them.
package disks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	sysdisk "github.com/ingot-metal/ingot/agent/disk"
	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/system"
	"github.com/ingot-metal/ingot/internal/disk"
	"github.com/ingot-metal/ingot/internal/pki"
)

// Storage reads, writes and erases the machine's disks.
type Storage struct {
	sys *system.System
	// BootMAC is the address of the interface that the installer was booted from; "": unknown.
	BootMAC string
	// BootNetwork is the installer's own address where there is no DHCP server; nil: by DHCP.
	BootNetwork *firstboot.Network
	// Program is the agent's static binary, which systems without it are given.
	Program string
	// LoadModule inserts a driver by its alias, such as "fs-xfs"; nil: the kernel finds it by itself.
	LoadModule func(alias string) error

	patience Patience
	template string // the file system of a new state partition, compressed by zstd
	open     func(path string, write bool) (Disk, error)
	http     *http.Client // fetches images
	started  time.Time

	mu      sync.Mutex // of settled
	settled []disk.Device
}

// NewStorage returns the storage of a system. The installer's wait for disks begins now.
func NewStorage(
	system *system.System, patience Patience, template string, open func(path string, write bool) (Disk, error),
	client *http.Client,
) *Storage {
	return &Storage{sys: system, patience: patience, template: template, open: open, http: client, started: time.Now()}
}

// Disks lists the machine's disks as they are now.
func (s *Storage) Disks() ([]disk.Device, error) { return sysdisk.List(s.sys.Root) }

// ChooseDisk returns the only disk that the rule means, to be written: see disk.Choose. It fails with a
// *disk.NoUniqueMatch, and refuses where disks are not written.
func (s *Storage) ChooseDisk(rule string, protected []string) (disk.Device, error) {
	if err := s.refuseDisks(); err != nil {
		return disk.Device{}, err
	}
	r, err := disk.ParseRule(rule)
	if err != nil {
		return disk.Device{}, effect.Refuse(effect.ErrInvalid, effect.ReasonInvalid, "%v", err)
	}
	keep, err := disk.ParseRules(protected)
	if err != nil {
		return disk.Device{}, effect.Refuse(effect.ErrInvalid, effect.ReasonInvalid, "%v", err)
	}
	return waitForDisks(s, func(all []disk.Device) (d disk.Device, named bool, err error) {
		d, err = disk.Choose(all, r, keep)
		return d, r.Names(), err
	})
}

// CanWriteDisks: whole disks are overwritten from a system that runs from none of them, and nowhere else.
func (s *Storage) CanWriteDisks() bool {
	return s.sys.Installer && s.sys.HasCapability(unix.CAP_SYS_ADMIN)
}

// loadModule inserts a driver, unless the kernel finds it by itself.
func (s *Storage) loadModule(alias string) error {
	if s.LoadModule == nil {
		return nil
	}
	return s.LoadModule(alias)
}

func (s *Storage) refuseDisks() error {
	if s.CanWriteDisks() {
		return nil
	}
	return effect.Refuse(
		effect.ErrUnsupported,
		effect.ReasonNotInstaller,
		"disks are only written by the installer, with the right to do so",
	)
}

// fillPartition mounts the ext4 file system that lies on a part of the disk, writes the files, and reads them back
// through another mount. They get mode 0600, since a secret is among them.
func (s *Storage) fillPartition(ctx context.Context, d Disk, off, size int64, files map[string][]byte) error {
	return d.Part(ctx, off, size, func(device string) error {
		if err := mounted("ext4", device, false, func(dir string) error { return writeFiles(dir, files) }); err != nil {
			return err
		}
		return mounted("ext4", device, true, func(dir string) error { return compareFiles(dir, files) })
	})
}

// mounted calls fn with the root of a file system. The mount is in no directory tree (fsmount(2)): no other process
// sees it, none can keep it busy, and it ends with this process at the latest.
func mounted(kind, device string, readOnly bool, fn func(dir string) error) error {
	fd := -1
	// The file system of the mount before may still be on its way out.
	err := block.Patiently(func() (err error) {
		fd, err = mountDetached(kind, device, readOnly)
		return err
	})
	if err != nil {
		return fmt.Errorf("mount %s: %w", device, err)
	}
	dir := fmt.Sprintf("/proc/self/fd/%d", fd)
	if err = fn(dir); err == nil && !readOnly {
		err = syncFileSystem(dir)
	}
	if c := unix.Close(fd); c != nil {
		err = errors.Join(err, fmt.Errorf("unmount %s: %w", device, c))
	}
	return err
}

// syncFileSystem returns faults that an unmount would not report.
func syncFileSystem(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

func mountDetached(kind, device string, readOnly bool) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("fsopen: %w", err)
	}
	err = unix.FsconfigSetString(fs, "source", device)
	attributes := unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	if err == nil && readOnly {
		attributes |= unix.MOUNT_ATTR_RDONLY
		err = unix.FsconfigSetFlag(fs, "ro")
	}
	if err == nil {
		err = unix.FsconfigCreate(fs) // once: a context that has failed stays so
	}
	fd := -1
	if err == nil {
		fd, err = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes)
	}
	return fd, errors.Join(err, unix.Close(fs))
}

func writeFiles(dir string, files map[string][]byte) error {
	for name, data := range files {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("file name %q leads out of the partition", name)
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make directory for %s: %w", name, err)
		}
		if err := pki.WriteFile(path, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// compareFiles names a file that differs, and never its content.
func compareFiles(dir string, files map[string][]byte) error {
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("read back %s: %w", name, err)
		}
		if string(got) != string(want) {
			return fmt.Errorf("read back %s: %w", name, effect.ErrReadBack)
		}
	}
	return nil
}

// Package system reads and changes the operating system below a root directory: files, the host name, and units of
// systemd. The kernel's calls can be replaced by tests.
package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// System is the operating system below a root directory.
type System struct {
	// Root is where /etc, /proc, /run and /sys are.
	Root string
	// Installer is set when the system runs from memory, so that it may overwrite disks.
	Installer bool
	Log       *slog.Logger
	Kernel    Kernel
}

// Kernel holds the calls that a test must not make for real.
type Kernel struct {
	Sync        func()
	Reboot      func(cmd int) error
	Sethostname func([]byte) error
	Run         func(ctx context.Context, name string, args ...string) ([]byte, error)
	Euid        func() int
	KexecLoad   func(kernel, initrd int, cmdline string, flags int) error
	Arm         func(ctx context.Context, after time.Duration) error
	Disarm      func(ctx context.Context) error
	Restart     func(ctx context.Context, unit string) error
	UnitState   func(ctx context.Context, unit string) (string, error)
	// RunDetached runs a program outside of this service, so that what it leaves running outlives us, and is not bound
	// to what we may do. Without wait it returns once the program is started. An error may be that it failed.
	RunDetached func(ctx context.Context, what string, wait bool, argv ...string) error
}

// NewSystem returns the system with the real kernel's calls. It touches nothing.
func NewSystem(root string, installer bool, log *slog.Logger) *System {
	return &System{Root: root, Installer: installer, Log: log, Kernel: Kernel{
		Arm: armTimer, Disarm: disarmTimer, Restart: restartUnit, UnitState: unitState,
		RunDetached: runDetached,
		Sync:        unix.Sync, Reboot: unix.Reboot, Sethostname: unix.Sethostname, Euid: os.Geteuid,
		KexecLoad: unix.KexecFileLoad,
		Run: func(ctx context.Context, name string, args ...string) ([]byte, error) {
			return exec.CommandContext(ctx, name, args...).CombinedOutput()
		},
	}}
}

// HasCapability reads this process's effective capabilities (proc_pid_status(5), CapEff).
func (s *System) HasCapability(capability int) bool {
	for line := range strings.SplitSeq(s.ReadText("proc/self/status"), "\n") {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return err == nil && set&(1<<capability) != 0
		}
	}
	return false
}

// RunsSystemd reports whether systemd is init (sd_booted(3)).
func (s *System) RunsSystemd() bool {
	fi, err := os.Stat(s.Path("run/systemd/system"))
	return err == nil && fi.IsDir()
}

func (s *System) Path(rel string) string { return filepath.Join(s.Root, rel) }

// ReadText returns a file's text without surrounding space, "" if it cannot be read.
func (s *System) ReadText(rel string) string {
	b, err := os.ReadFile(s.Path(rel))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (s *System) ReadJSON(rel string, into any) (found bool, err error) {
	b, err := os.ReadFile(s.Path(rel))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", rel, err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return false, fmt.Errorf("read %s: %w", rel, err)
	}
	return true, nil
}

func (s *System) WriteJSON(rel string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", rel, err)
	}
	if err := ReplaceFile(s.Path(rel), append(b, '\n')); err != nil {
		return fmt.Errorf("write %s: %w", rel, err)
	}
	return nil
}

func (s *System) Remove(rel string) error {
	path := s.Path(rel)
	if err := os.Remove(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("remove %s: %w", rel, err)
	}
	return SyncDir(filepath.Dir(path))
}
func (s *System) BootID() string { return s.ReadText("proc/sys/kernel/random/boot_id") }

package host

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/agent/inventory"
	"github.com/ingot-metal/ingot/agent/pid1"
	"github.com/ingot-metal/ingot/internal/disk"
)

// Config says how to reach the operating system. The zero value is right for an agent under systemd.
type Config struct {
	// Root is where /etc, /proc, /run and /sys are. "": the root directory.
	Root string
	// EFIVars is the mount point of efivarfs. "": its usual place under Root.
	EFIVars string
	// Rebooter restarts the machine where the agent is init. nil: systemd, or reboot(2) where there is none.
	Rebooter Rebooter
	// Now is the time of collection of an inventory. nil: time.Now.
	Now func() time.Time

	// Installer says that the system runs from memory, so that it may overwrite disks.
	Installer bool
	// Disks says how long the installer waits for disks.
	Disks DiskPatience
	// StateTemplate holds the file system of a new system's state partition, compressed by zstd. "": where the
	// installer's image has it.
	StateTemplate string
	// BootMAC is the address of the interface that the installer was booted from; "": unknown.
	BootMAC string
	// Program is the agent's static binary, which systems without it are given. "": this process's own.
	Program string
	// LoadFileSystem inserts the driver of a file system; nil: the kernel finds it by itself.
	LoadFileSystem func(kind string) error
	// OpenDisk opens a disk by its path, exclusively where it is to be written. nil: block.Open.
	OpenDisk func(path string, write bool) (Disk, error)
	// HTTP fetches images. nil: image.NewClient.
	HTTP *http.Client
	Log  *slog.Logger
	// Kubeadm is the program that joins clusters. "": kubeadm, by PATH.
	Kubeadm string
	// Kexec enters the loaded kernel where the agent is init. nil: systemd, or reboot(2) where there is none.
	Kexec func(ctx context.Context) error
}

// Linux is the machine that this process runs on.
type Linux struct {
	cfg      Config
	kernel   kernel
	firewall sync.Mutex // from reading our table to having replaced it
	network  sync.Mutex // from writing our files to the kernel showing them

	started      time.Time
	disksMu      sync.Mutex // of settledDisks
	settledDisks []disk.Device
}

var _ Host = (*Linux)(nil)

// kernel holds the calls that a test must not make for real.
type kernel struct {
	sync        func()
	reboot      func(cmd int) error
	sethostname func([]byte) error
	run         func(ctx context.Context, name string, args ...string) ([]byte, error)
	euid        func() int
	kexecLoad   func(kernel, initrd int, cmdline string, flags int) error
	arm         func(ctx context.Context, after time.Duration) error
	disarm      func(ctx context.Context) error
	restart     func(ctx context.Context, unit string) error
	unitState   func(ctx context.Context, unit string) (string, error)
}

// New makes the real host. It touches nothing.
func New(cfg Config) *Linux {
	if cfg.Root == "" {
		cfg.Root = "/"
	}
	if cfg.EFIVars == "" {
		cfg.EFIVars = filepath.Join(cfg.Root, "sys/firmware/efi/efivars")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg = withInstallerDefaults(cfg)
	return &Linux{cfg: cfg, started: time.Now(), kernel: kernel{
		arm: armTimer, disarm: disarmTimer, restart: restartUnit, unitState: unitState,
		sync: unix.Sync, reboot: unix.Reboot, sethostname: unix.Sethostname, euid: os.Geteuid,
		kexecLoad: unix.KexecFileLoad,
		run: func(ctx context.Context, name string, args ...string) ([]byte, error) {
			return exec.CommandContext(ctx, name, args...).CombinedOutput()
		},
	}}
}

// Capabilities asks the machine each time, because a mount or a privilege may have changed.
func (l *Linux) Capabilities() []string {
	var caps []string
	if l.canReboot() {
		caps = append(caps, CapReboot)
	}
	if l.canNetboot() {
		caps = append(caps, CapNetboot)
	}
	if l.canReconfig() {
		caps = append(caps, CapReconfig)
		if l.NetworkSupport(context.Background(), NetworkConfig{}) == nil {
			caps = append(caps, CapNetwork)
		}
	}
	if l.canWriteDisks() {
		caps = append(caps, CapRepave, CapErase, CapPreflight)
	}
	if l.kernel.euid() == 0 {
		caps = append(caps, CapReset)
	}
	if l.canKexec() {
		caps = append(caps, CapKexec)
	}
	if l.canJoin() {
		caps = append(caps, CapJoin)
	}
	slices.Sort(caps)
	return caps
}

func withInstallerDefaults(cfg Config) Config {
	if cfg.StateTemplate == "" {
		cfg.StateTemplate = pid1.StateTemplate
	}
	if cfg.Program == "" {
		cfg.Program = "/proc/self/exe"
	}
	if cfg.HTTP == nil {
		cfg.HTTP = image.NewClient()
	}
	if cfg.OpenDisk == nil {
		cfg.OpenDisk = openDisk
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return cfg
}

func (l *Linux) canReboot() bool {
	if l.cfg.Rebooter != nil || l.has(unix.CAP_SYS_BOOT) {
		return true
	}
	return l.systemd() && l.kernel.euid() == 0
}

func (l *Linux) canNetboot() bool {
	if unix.Access(l.cfg.EFIVars, unix.W_OK) != nil {
		return false
	}
	entries, order, err := l.bootEntries()
	if err != nil {
		return false
	}
	_, ok := findEntry(entries, order, BootTarget{Method: BootPXE})
	return ok
}

func (l *Linux) canReconfig() bool {
	if !l.has(unix.CAP_NET_ADMIN) || !l.has(unix.CAP_SYS_ADMIN) {
		return false
	}
	_, err := l.Firewall(context.Background())
	return err == nil
}

// has reads this process's effective capabilities (proc_pid_status(5), CapEff).
func (l *Linux) has(capability int) bool {
	for line := range strings.SplitSeq(l.read("proc/self/status"), "\n") {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return err == nil && set&(1<<capability) != 0
		}
	}
	return false
}

// systemd says whether systemd is init (sd_booted(3)).
func (l *Linux) systemd() bool {
	fi, err := os.Stat(l.path("run/systemd/system"))
	return err == nil && fi.IsDir()
}

// Inventory collects with what this process may read.
func (l *Linux) Inventory(ctx context.Context) (inventory.Document, error) {
	if err := ctx.Err(); err != nil {
		return inventory.Document{}, err
	}
	return inventory.Collect(inventory.Config{Root: l.cfg.Root, Now: l.cfg.Now}), nil
}

// DiskImage is for simulated machines: a running system cannot vouch for the disk under it, and the installer
// reads back what it has written: see CheckImage.
func (l *Linux) DiskImage(context.Context) (DiskImage, error) { return DiskImage{}, repaveElsewhere() }

// Repave refuses: a running system cannot overwrite the disk it runs from. The installer uses WriteImage.
func (l *Linux) Repave(context.Context, Effect, RepaveRequest, func(RepaveProgress)) (RepaveEvidence, error) {
	return RepaveEvidence{}, repaveElsewhere()
}

func repaveElsewhere() error {
	return refuse(ErrUnsupported, ReasonNotInstaller, "a running system does not overwrite the disk that it runs from")
}

func (l *Linux) path(rel string) string { return filepath.Join(l.cfg.Root, rel) }

// read returns a file's text without surrounding space, "" if it cannot be read.
func (l *Linux) read(rel string) string {
	b, err := os.ReadFile(l.path(rel))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// ChangesAtOnce says that a change that a dead process asked for is there by now, or never comes: the host name and our
// table are set by system calls that end before they return, and what networkd may still do it does by files that a
// rollback takes away.
func (*Linux) ChangesAtOnce() bool { return true }

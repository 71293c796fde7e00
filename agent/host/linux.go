package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/disks"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/host/kubeadm"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/network/ifupdown"
	"github.com/ingot-metal/ingot/agent/host/network/networkd"
	"github.com/ingot-metal/ingot/agent/host/network/networkmanager"
	"github.com/ingot-metal/ingot/agent/host/rollback"
	"github.com/ingot-metal/ingot/agent/host/system"
	"github.com/ingot-metal/ingot/agent/hwtest"
	"github.com/ingot-metal/ingot/agent/inventory"
	"github.com/ingot-metal/ingot/agent/inventory/lldp"
	"github.com/ingot-metal/ingot/internal/imagelayout"
)

// Config is how to reach the operating system. The zero value is right for an agent under systemd.
type Config struct {
	// Root is where /etc, /proc, /run and /sys are. "": the root directory.
	Root string
	// EFIVars is the mount point of efivarfs. "": its usual place under Root.
	EFIVars string
	// Rebooter restarts the machine where the agent is init. nil: systemd, or reboot(2) where there is none.
	Rebooter boot.Rebooter
	// Now is the time of collection of an inventory. nil: time.Now.
	Now func() time.Time

	// Installer is set when the system runs from memory, so that it may overwrite disks.
	Installer bool
	// Disks is how long the installer waits for disks.
	Disks disks.Patience
	// StateTemplate holds the file system of a new system's state partition, compressed by zstd. "": where the
	// installer's image has it.
	StateTemplate string
	// BootMAC is the address of the interface that the installer was booted from; "": unknown.
	BootMAC string
	// BootNetwork is the installer's own address where there is no DHCP server; nil: by DHCP.
	BootNetwork *firstboot.Network
	// Program is the agent's static binary, which systems without it are given. "": this process's own.
	Program string
	// LoadModule inserts a driver by its alias, such as "fs-xfs"; nil: the kernel finds it by itself.
	LoadModule func(alias string) error
	// OpenDisk opens a disk by its path, exclusively for writing. nil: block.Open.
	OpenDisk func(path string, write bool) (disks.Disk, error)
	// HTTP fetches images. nil: image.NewClient.
	HTTP *http.Client
	Log  *slog.Logger
	// Kubeadm is the program that joins clusters. "": kubeadm, by PATH.
	Kubeadm string
	// RaiseLinks is set when the system runs from memory and may bring network interfaces up, without addresses, to hear
	// their neighbours.
	RaiseLinks bool
	// Kexec enters the loaded kernel where the agent is init. nil: systemd, or reboot(2) where there is none.
	Kexec func(ctx context.Context) error
}

// Linux is the machine that this process runs on.
type Linux struct {
	*system.System
	*boot.Control
	*disks.Storage
	*firewall.Nftables
	*network.Configurator
	*rollback.Watchdog
	*kubeadm.Joiner
	now        func() time.Time
	raiseLinks bool
	heard      atomic.Pointer[lldp.Heard]
	tpm        tpmKey
}

var _ Host = (*Linux)(nil)

// New makes the real host. It touches nothing.
func New(cfg Config) *Linux {
	cfg = withDefaults(cfg)
	l := &Linux{System: system.NewSystem(cfg.Root, cfg.Installer, cfg.Log), Nftables: &firewall.Nftables{}, now: cfg.Now,
		raiseLinks: cfg.RaiseLinks}
	l.Control = &boot.Control{System: l.System, EFIVars: cfg.EFIVars, Rebooter: cfg.Rebooter, Kexec: cfg.Kexec}
	l.Storage = disks.NewStorage(l.System, cfg.Disks, cfg.StateTemplate, cfg.OpenDisk, cfg.HTTP)
	l.Storage.BootNetwork = cfg.BootNetwork
	l.Storage.BootMAC, l.Storage.Program, l.Storage.LoadModule = cfg.BootMAC, cfg.Program, cfg.LoadModule
	l.Configurator = network.New(l.System, networkd.Manager{System: l.System}, networkmanager.Manager{System: l.System},
		ifupdown.Manager{System: l.System})
	l.Watchdog = &rollback.Watchdog{System: l.System, Table: l.Nftables, Interfaces: l.Configurator}
	l.Joiner = &kubeadm.Joiner{System: l.System, Program: cfg.Kubeadm}
	return l
}

func withDefaults(cfg Config) Config {
	if cfg.Root == "" {
		cfg.Root = "/"
	}
	if cfg.EFIVars == "" {
		cfg.EFIVars = filepath.Join(cfg.Root, "sys/firmware/efi/efivars")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.StateTemplate == "" {
		cfg.StateTemplate = imagelayout.StateTemplate
	}
	if cfg.Program == "" {
		cfg.Program = "/proc/self/exe"
	}
	if cfg.HTTP == nil {
		cfg.HTTP = image.NewClient()
	}
	if cfg.OpenDisk == nil {
		cfg.OpenDisk = disks.Open
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return cfg
}

// Capabilities asks the machine each time, because a mount or a privilege may have changed.
func (l *Linux) Capabilities() []string {
	var caps []string
	if l.CanReboot() {
		caps = append(caps, CapReboot)
	}
	if l.CanNetboot() {
		caps = append(caps, CapNetboot)
	}
	if l.canReconfig() {
		caps = append(caps, CapReconfig)
		if l.NetworkSupport(context.Background(), network.Config{}) == nil {
			caps = append(caps, CapNetwork)
		}
	}
	if l.CanWriteDisks() {
		caps = append(caps, CapRepave, CapErase, CapPreflight, CapAgentless, CapMirror, CapDataDisks)
	}
	if l.Kernel.Euid() == 0 {
		caps = append(caps, CapReset, CapTest)
	}
	if l.CanKexec() {
		caps = append(caps, CapKexec)
	}
	if l.CanJoin() {
		caps = append(caps, CapJoin)
	}
	slices.Sort(caps)
	return caps
}

func (l *Linux) canReconfig() bool {
	if !l.HasCapability(unix.CAP_NET_ADMIN) || !l.HasCapability(unix.CAP_SYS_ADMIN) {
		return false
	}
	_, err := l.Firewall(context.Background())
	return err == nil
}

// Inventory collects with what this process may read.
func (l *Linux) Inventory(ctx context.Context) (inventory.Document, error) {
	if err := ctx.Err(); err != nil {
		return inventory.Document{}, err
	}
	return inventory.Collect(inventory.Config{Root: l.Root, Now: l.now, Heard: l.heard.Load()}), nil
}

// Arrays reads the software RAID of this moment.
func (l *Linux) Arrays() []inventory.Array { return inventory.Arrays(l.Root) }

// TestHardware tests the hardware by the inventory of this moment.
func (l *Linux) TestHardware(ctx context.Context, cfg hwtest.Config) (hwtest.Report, error) {
	doc, err := l.Inventory(ctx)
	if err != nil {
		return hwtest.Report{}, err
	}
	cfg.Root, cfg.Doc, cfg.SMART = l.Root, doc, l.SMART
	return hwtest.Report{Model: hwtest.ModelOf(doc), Results: hwtest.Run(ctx, cfg)}, nil
}

// HearNeighbours listens for what the machine's network interfaces are plugged into. The next inventories have it.
func (l *Linux) HearNeighbours(ctx context.Context) {
	if l.Root != "/" {
		return // not this machine
	}
	names := inventory.Interfaces(l.Root)
	if l.raiseLinks {
		for _, name := range names {
			if err := raise(name); err != nil {
				l.Log.Warn("interface not brought up to hear its neighbours", "interface", name, "error", err)
			}
		}
	}
	heard := lldp.Listen(ctx, names, lldp.Round)
	if ctx.Err() == nil {
		l.heard.Store(&heard)
	}
}

// raise brings an interface up that is down, without addresses of IPv6.
func raise(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find: %w", err)
	}
	if link.Attrs().Flags&net.FlagUp != 0 {
		return nil
	}
	err = os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without IPv6
		return fmt.Errorf("switch IPv6 off: %w", err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring up: %w", err)
	}
	return nil
}

// DiskImage is for simulated machines: a running system cannot vouch for the disk under it, and the installer
// reads back what it has written: see CheckImage.
func (l *Linux) DiskImage(context.Context) (DiskImage, error) { return DiskImage{}, repaveElsewhere() }

// Repave refuses: a running system cannot overwrite the disk it runs from. The installer uses WriteImage.
func (l *Linux) Repave(context.Context, effect.Cause, RepaveRequest, func(RepaveProgress)) (RepaveEvidence, error) {
	return RepaveEvidence{}, repaveElsewhere()
}

func repaveElsewhere() error {
	return effect.Refuse(
		effect.ErrUnsupported,
		effect.ReasonNotInstaller,
		"a running system does not overwrite the disk that it runs from",
	)
}

// ChangesAtOnce reports whether a change that a dead process asked for has happened by now, or never will. The host
// name and our table are set by system calls that end before they return. Later changes of networkd come from files,
// which a rollback removes.
func (*Linux) ChangesAtOnce() bool { return true }

package host

import (
	"context"

	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/inventory"
)

// Host is the machine that the agent runs on. Methods that take an effect.Cause change it; all others only read.
//
// An error from a changing method is no proof that nothing happened, unless it is ErrUnsupported, ErrNotWired or
// ErrInvalid: a caller that must know reads the state back.
type Host interface {
	Network

	// Identity returns the machine and its boot. Parts that cannot be read are empty; only a missing boot id is an error,
	// because nothing can be proved without it.
	Identity(ctx context.Context) (Identity, error)
	// Capabilities are those of Cap* that this host really has, sorted.
	Capabilities() []string
	// Inventory collects what the machine is made of.
	Inventory(ctx context.Context) (inventory.Document, error)

	// Reboot returns once the reboot was accepted. The process is expected to be killed soon after.
	Reboot(ctx context.Context, e effect.Cause, mode boot.RebootMode) error

	// BootNext reads the one-shot boot entry.
	BootNext(ctx context.Context) (boot.NextState, error)
	// SetBootNext makes the next boot, and only that, start from the target. It reads back what it wrote.
	SetBootNext(ctx context.Context, e effect.Cause, target boot.Target) (boot.NextChange, error)
	// ClearBootNext removes the one-shot entry. Nothing set is no error.
	ClearBootNext(ctx context.Context, e effect.Cause) error

	Hostname(ctx context.Context) (string, error)
	// SetHostname sets the persistent and the running host name and reads both back.
	SetHostname(ctx context.Context, e effect.Cause, name string) error

	// Firewall reads our own table back from the kernel.
	Firewall(ctx context.Context) (firewall.State, error)
	// ApplyFirewall replaces our own table in one transaction. The same policy twice is a no-op.
	ApplyFirewall(ctx context.Context, e effect.Cause, p firewall.Policy) error
	// RemoveFirewall removes our own table. None there is no error.
	RemoveFirewall(ctx context.Context, e effect.Cause) error

	// DiskImage reads back which image the target disk holds.
	DiskImage(ctx context.Context) (DiskImage, error)
	// Repave writes an image to the target disk and reads it back. progress may be nil; it is called from
	// the same goroutine.
	Repave(ctx context.Context, e effect.Cause, r RepaveRequest, progress func(RepaveProgress)) (RepaveEvidence, error)
}

// What a host may be capable of.
const (
	CapReboot   = "reboot"
	CapNetboot  = "netboot"
	CapReconfig = "reconfig"
	CapRepave   = "repave"
	CapErase    = "erase"
	// CapPreflight: an installer proves that a repave can begin, before it is granted one.
	CapPreflight = "preflight"
	// CapAgentless: an installer can write a system without the agent, which proves itself by phoning home.
	CapAgentless = "agentless"
	// CapMirror: an installer can write two disks as a RAID 1.
	CapMirror = "mirror"
	// CapDataDisks: an installer can give further disks a file system.
	CapDataDisks = "data_disks"
	CapReset     = "reset_devices"
	// CapTest: the machine's hardware can be tested.
	CapTest  = "test_hardware"
	CapKexec = "kexec"
	// CapNetwork: interfaces can be configured.
	CapNetwork = "network"
	// CapJoin: the machine can join a cluster.
	CapJoin = "join"
)

// Identity identifies the machine and its boot.
type Identity struct {
	// BootID is random for each boot of the kernel (/proc/sys/kernel/random/boot_id).
	BootID string `json:"boot_id"`
	// MachineID is /etc/machine-id: it belongs to the installed system and is copied with its disk.
	MachineID string `json:"machine_id"`
	Hostname  string `json:"hostname"`
	// HardwareFingerprint is the text of hwid.Facts, or any other text of a simulated machine. It distinguishes a cloned
	// disk in another machine from the machine itself.
	HardwareFingerprint string `json:"hardware_fingerprint"`
	Simulated           bool   `json:"simulated"`
}

// DiskImage is what a disk holds, read back from the disk itself.
type DiskImage struct {
	Disk   string `json:"disk"`             // serial, WWN or path
	Digest string `json:"digest,omitempty"` // "sha256:<hex>" of the raw bytes; empty: no known image
	Bytes  int64  `json:"bytes,omitempty"`
	Nonce  string `json:"nonce,omitempty"` // of the operation that wrote it
}

// RepaveRequest is the image to write and its disk.
type RepaveRequest struct {
	ImageRef string `json:"image_ref"`
	URL      string `json:"url,omitempty"`
	Digest   string `json:"digest"` // "sha256:<hex>" of the raw bytes
	Bytes    int64  `json:"bytes,omitempty"`
	DiskRule string `json:"disk_rule,omitempty"` // such as serial=…, wwn=…; empty: the only disk
	Nonce    string `json:"nonce,omitempty"`     // handed over to the new system
}

// RepaveProgress is how far a repave has come.
type RepaveProgress struct {
	Stage   string `json:"stage"` // zero, write, verify
	Percent int    `json:"percent"`
	Bytes   int64  `json:"bytes"`
}

// RepaveEvidence is what was read back from the disk after the write.
type RepaveEvidence struct {
	Image     DiskImage `json:"image"`
	Simulated bool      `json:"simulated,omitempty"`
}

package host

import (
	"context"

	"github.com/ingot-metal/ingot/agent/inventory"
)

// Effect names the command that causes an effect, so that the world can be asked afterwards who did what, and
// how often. MachineID is the fleet's name of the target, not the machine-id of its operating system.
type Effect struct {
	CommandID   string `json:"command_id"`
	OperationID string `json:"operation_id,omitempty"`
	MachineID   string `json:"machine_id,omitempty"`
	Attempt     int    `json:"attempt,omitempty"`
}

// Host is the machine that the agent runs on. Methods that take an Effect change it; all others only read.
//
// An error from a changing method does not say that nothing happened, unless it is ErrUnsupported,
// ErrNotWired or ErrInvalid: whoever must know reads the world back.
type Host interface {
	Network

	// Identity says which machine this is and which boot of it. Parts that cannot be read are empty; only a
	// missing boot id is an error, because nothing can be proved without it.
	Identity(ctx context.Context) (Identity, error)
	// Capabilities are those of Cap* that this host really has, sorted.
	Capabilities() []string
	// Inventory collects what the machine is made of.
	Inventory(ctx context.Context) (inventory.Document, error)

	// Reboot returns once the reboot was accepted. The process is expected to be killed soon after.
	Reboot(ctx context.Context, e Effect, mode RebootMode) error

	// BootNext reads the one-shot boot entry.
	BootNext(ctx context.Context) (BootNextState, error)
	// SetBootNext makes the next boot, and only that, start from the target. It reads back what it wrote.
	SetBootNext(ctx context.Context, e Effect, target BootTarget) (BootNextChange, error)
	// ClearBootNext removes the one-shot entry. Nothing set is no error.
	ClearBootNext(ctx context.Context, e Effect) error

	Hostname(ctx context.Context) (string, error)
	// SetHostname sets the persistent and the running host name and reads both back.
	SetHostname(ctx context.Context, e Effect, name string) error

	// Firewall reads our own table back from the kernel.
	Firewall(ctx context.Context) (FirewallState, error)
	// ApplyFirewall replaces our own table in one transaction. The same policy twice is a no-op.
	ApplyFirewall(ctx context.Context, e Effect, p FirewallPolicy) error
	// RemoveFirewall removes our own table. None there is no error.
	RemoveFirewall(ctx context.Context, e Effect) error

	// DiskImage reads back which image the target disk holds.
	DiskImage(ctx context.Context) (DiskImage, error)
	// Repave writes an image to the target disk and reads it back. progress may be nil; it is called from
	// the same goroutine.
	Repave(ctx context.Context, e Effect, r RepaveRequest, progress func(RepaveProgress)) (RepaveEvidence, error)
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
	CapReset     = "reset_devices"
	CapKexec     = "kexec"
)

// Identity says which machine this is, and which boot of it.
type Identity struct {
	// BootID is random for each boot of the kernel (/proc/sys/kernel/random/boot_id).
	BootID string `json:"boot_id"`
	// MachineID is /etc/machine-id: it belongs to the installed system and is copied with its disk.
	MachineID string `json:"machine_id"`
	Hostname  string `json:"hostname"`
	// HardwareFingerprint is a SHA-256 in hex over the DMI system UUID, board and chassis serials and the
	// sorted permanent MACs. It tells a cloned disk in another machine from the machine itself.
	HardwareFingerprint string `json:"hardware_fingerprint"`
	Simulated           bool   `json:"simulated"`
}

// RebootMode says how a reboot treats what is running.
type RebootMode string

const (
	// RebootGraceful stops services first.
	RebootGraceful RebootMode = "graceful"
	// RebootForced syncs the disks and restarts the kernel at once.
	RebootForced RebootMode = "forced"
)

// Rebooter restarts the machine where the agent itself is init and nobody else can. It returns once the reboot
// was accepted, or never.
type Rebooter func(ctx context.Context, mode RebootMode) error

// BootMethod is a way to boot.
type BootMethod string

const (
	// BootPXE is PXE over IPv4.
	BootPXE BootMethod = "pxe"
	// BootHTTP is UEFI HTTP boot over IPv4.
	BootHTTP BootMethod = "http"
)

// BootTarget says what to boot. An empty MAC takes the first matching entry in the firmware's own order.
type BootTarget struct {
	Method BootMethod `json:"method"`
	MAC    string     `json:"mac,omitempty"` // lower case with colons
}

// BootNextState is the one-shot boot entry as the firmware holds it.
type BootNextState struct {
	Set         bool   `json:"set"`
	Entry       string `json:"entry,omitempty"`       // such as Boot0003
	Description string `json:"description,omitempty"` // the firmware's name of it
	// Ordered says that the firmware has it for the next reset and doesn't show it before.
	Ordered bool   `json:"ordered,omitempty"`
	Target  string `json:"target,omitempty"` // what its device path means, such as "pxe 52:54:00:12:34:56"
}

// BootNextChange is what SetBootNext found and what it left, both read from the firmware.
type BootNextChange struct {
	Old BootNextState `json:"old"`
	New BootNextState `json:"new"`
}

// DiskImage is what a disk holds, read back from the disk itself.
type DiskImage struct {
	Disk   string `json:"disk"`             // serial, WWN or path
	Digest string `json:"digest,omitempty"` // "sha256:<hex>" of the raw bytes; empty: no known image
	Bytes  int64  `json:"bytes,omitempty"`
	Nonce  string `json:"nonce,omitempty"` // of the operation that wrote it
}

// RepaveRequest says what to write and where.
type RepaveRequest struct {
	ImageRef string `json:"image_ref"`
	URL      string `json:"url,omitempty"`
	Digest   string `json:"digest"` // "sha256:<hex>" of the raw bytes
	Bytes    int64  `json:"bytes,omitempty"`
	DiskRule string `json:"disk_rule,omitempty"` // such as serial=…, wwn=…; empty: the only disk
	Nonce    string `json:"nonce,omitempty"`     // handed over to the new system
}

// RepaveProgress says how far a repave got.
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

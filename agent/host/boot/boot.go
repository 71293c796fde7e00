// Package boot restarts the machine, enters another kernel by kexec, and sets what the firmware starts next. A new
// boot id proves a reboot. BootNext is one variable of the firmware, which the next boot consumes.
package boot

import "context"

// RebootMode is how a reboot treats running programs.
type RebootMode string

const (
	// RebootGraceful stops services first.
	RebootGraceful RebootMode = "graceful"
	// RebootForced syncs the disks and restarts the kernel at once.
	RebootForced RebootMode = "forced"
)

// Rebooter restarts the machine where the agent itself is init and no other program can. It returns once the reboot was
// accepted, or never.
type Rebooter func(ctx context.Context, mode RebootMode) error

// Method is a way to boot.
type Method string

const (
	// PXE is PXE over IPv4.
	PXE Method = "pxe"
	// HTTP is UEFI HTTP boot over IPv4.
	HTTP Method = "http"
)

// Target is the entry to boot. An empty MAC takes the first matching entry in the firmware's own order.
type Target struct {
	Method Method `json:"method"`
	MAC    string `json:"mac,omitempty"` // lower case with colons
}

// NextState is the one-shot boot entry as the firmware holds it.
type NextState struct {
	Set         bool   `json:"set"`
	Entry       string `json:"entry,omitempty"`       // such as Boot0003
	Description string `json:"description,omitempty"` // the firmware's name of it
	// Ordered is set when the firmware applies the entry at the next reset and doesn't show it before.
	Ordered bool   `json:"ordered,omitempty"`
	Target  string `json:"target,omitempty"` // what its device path means, such as "pxe 52:54:00:12:34:56"
}

// NextChange is what SetBootNext found and what it left, both read from the firmware.
type NextChange struct {
	Old NextState `json:"old"`
	New NextState `json:"new"`
}

package effect

import (
	"errors"
	"fmt"
)

// Refusals. A method that returns one of these has changed nothing.
var (
	// ErrUnsupported: this machine cannot do that, and trying again will not help.
	ErrUnsupported = errors.New("not supported by this machine")
	// ErrNotWired: this version of the agent does not do that yet.
	ErrNotWired = errors.New("not wired in this version")
	// ErrInvalid: the request makes no sense.
	ErrInvalid = errors.New("invalid request")
	// ErrDeclined: the system has declined the request, and may grant it at another time.
	ErrDeclined = errors.New("declined by the system")
	// ErrDrift: another program changed our settings; it is reported, not overwritten.
	ErrDrift = errors.New("changed by another party")
)

// ErrReadBack: the change was made without an error, but reading the world shows something else.
var ErrReadBack = errors.New("read back differs from what was set")

// Stable reasons of a refusal.
const (
	ReasonDeclined         = "DECLINED"
	ReasonNotInstaller     = "NOT_INSTALLER"
	ReasonDiskBusy         = "DISK_BUSY"
	ReasonNoKexec          = "NO_KEXEC"
	ReasonNoUEFI           = "NO_UEFI"
	ReasonNoEFIVars        = "NO_EFIVARFS"
	ReasonNoBootEntry      = "NO_BOOT_ENTRY"
	ReasonNoPrivilege      = "NO_PRIVILEGE"
	ReasonNoNftables       = "NO_NFTABLES"
	ReasonInvalid          = "INVALID"
	ReasonFirewallDrift    = "FIREWALL_DRIFT"
	ReasonGenerationReused = "GENERATION_REUSED"
	ReasonNetworkNotWired  = "NETWORK_NOT_WIRED"
	ReasonGuardPending     = "CHANGE_PENDING"
)

// Refusal is an error with a stable reason. errors.Is finds its Kind, one of the sentinels above.
type Refusal struct {
	Kind   error
	Reason string
	Detail string
}

func (r *Refusal) Error() string { return fmt.Sprintf("%v: %s: %s", r.Kind, r.Reason, r.Detail) }

// Unwrap makes errors.Is(err, ErrUnsupported) and its like work.
func (r *Refusal) Unwrap() error { return r.Kind }

// ReasonOf returns the stable reason of a refusal anywhere in err, or "".
func ReasonOf(err error) string {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Reason
	}
	return ""
}

func Refuse(kind error, reason, format string, args ...any) error {
	return &Refusal{Kind: kind, Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

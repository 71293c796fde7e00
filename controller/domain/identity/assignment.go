package identity

import (
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Assignment is the boot assignment of a machine, as it is when a system asks to be certified for it.
type Assignment struct {
	// Vouched reports whether the agent that vouches for the system is of the machine's site.
	Vouched bool
	// Mode is empty where there is no assignment; OperationID is empty where none has made it.
	Mode, OperationID string
	// TokenFits reports whether the system has shown the assignment's token.
	TokenFits bool
	// Ended reports whether the operation is over, and Busy, whether the machine has other work.
	Ended, Busy bool
}

// Refuse returns why no system is certified for the assignment. One that is over is refused, but for the rescue system
// that it leaves on a machine without other work.
func (a Assignment) Refuse() error {
	if a.Vouched && a.Mode != "" && a.Mode != operation.BootDisk && a.TokenFits && a.OperationID != "" &&
		(!a.Ended || a.Mode == operation.BootRescue && !a.Busy) {
		return nil
	}
	return failure.Precondition("ENROLMENT_CONTESTED", "the machine has no such assignment, or it is over")
}

// MayRepeat refuses the certificate that a key had before where that is not in force.
func MayRepeat(inForce bool) error {
	if inForce {
		return nil
	}
	return failure.Unauthenticated("CERTIFICATE_REVOKED", "the certificate of this key has been revoked")
}

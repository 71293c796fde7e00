package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Installer is the role of agents that are certified for one operation.
const Installer = "installer"

// MayRenew refuses a further certificate to an installer, whose only one ends with its operation, and to an agent whose
// machine may not come back. The machine is nil for an agent of a site.
func MayRenew(role string, m *Machine) error {
	switch {
	case role == Installer:
		return failure.Precondition("REENROLL_REFUSED",
			"an installer is certified for one operation, and its certificate ends with that; it gets no other")
	case m == nil:
		return nil
	case m.Deleted || m.State == fleet.Retired || m.State == fleet.Quarantined:
		return failure.Precondition("REENROLL_REFUSED", "machine %s is %s; its agent gets no certificate", m.ID, m.State)
	}
	return nil
}

// Certificate is a certificate that is recorded.
type Certificate struct{ Revoked, Replaced bool }

// Hello is an agent that opens a session, with all that decides it.
type Hello struct {
	// Known reports whether there is such an agent.
	Known bool
	Role  string
	// Machine is nil for an agent of a site.
	Machine *Machine
	// Certificate is that of the connection; nil if none is recorded for the agent.
	Certificate *Certificate
	// Stands reports whether an installer still has what it was certified for.
	Stands bool
}

// Refuse returns why there is no session; nil where there is one. The deletion of a machine revokes the certificates
// of the agent that the machine knew; one that never called is refused here.
func (h Hello) Refuse() error {
	switch {
	case !h.Known:
		return failure.Unauthenticated("CERTIFICATE_UNKNOWN", "the agent is not known")
	case h.Machine != nil && h.Machine.Deleted:
		return failure.Unauthenticated("CERTIFICATE_REVOKED", "the machine of this agent has been deleted")
	case h.Certificate == nil:
		return failure.Unauthenticated("CERTIFICATE_UNKNOWN", "the certificate is not recorded")
	case h.Certificate.Revoked || h.Certificate.Replaced:
		return failure.Unauthenticated("CERTIFICATE_REVOKED", "the certificate has been revoked or replaced")
	case h.Role == Installer && !h.Stands:
		return failure.Unauthenticated("CERTIFICATE_REVOKED",
			"the operation that this installer was certified for has ended")
	}
	return nil
}

// Holder is an agent that holds a certificate of a generation of the CA.
type Holder struct{ AgentID, MachineID string }

// Name is how people call a holder: by the machine where there is one.
func (h Holder) Name() string {
	if h.MachineID != "" {
		return h.MachineID
	}
	return h.AgentID
}

// maxNamed is how many holders a refusal names.
const maxNamed = 5

// MayWithdraw refuses to withdraw a generation of the CA while agents hold certificates of it that are not named, by
// agent or machine, as those that may lose their sessions.
func MayWithdraw(generation int, held []Holder, leaveBehind []string) error {
	var names []string
	for _, h := range held {
		if !slices.Contains(leaveBehind, h.AgentID) &&
			(h.MachineID == "" || !slices.Contains(leaveBehind, h.MachineID)) {
			names = append(names, h.Name())
		}
	}
	if len(names) == 0 {
		return nil
	}
	text := strings.Join(names[:min(maxNamed, len(names))], ", ")
	if len(names) > maxNamed {
		text += fmt.Sprintf(" and %d more", len(names)-maxNamed)
	}
	return failure.Precondition("AUTHORITY_IN_USE",
		"%d agents hold a certificate of generation %d of the CA: %s; wait for them, or name those that may lose their "+
			"sessions with --leave-behind (ingot ca status)", len(names), generation, text)
}

// Package credential decides which agent receives credentials, where they may be sent, and when they may change or be
// removed. They are those of BMCs, SSH, MAAS regions and clusters. It is pure: rows in, a refusal out.
package credential

import (
	"github.com/ingot-metal/ingot/controller/domain/start"
	"github.com/ingot-metal/ingot/internal/bmcaddr"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Kind is what credentials are for.
type Kind uint8

// The kinds.
const (
	BMC Kind = iota
	SSH
	MAAS
	Cluster
)

// NotFound returns the refusal of credentials that are not stored.
func (k Kind) NotFound(ref string) error {
	switch k {
	case SSH:
		return start.SSHCredentialsNotFound(ref)
	case MAAS:
		return failure.NotFound("CREDENTIALS_NOT_FOUND", "there is no MAAS region %q; see `ingot maas set`", ref).
			WithField("region_ref", "unknown")
	case Cluster:
		return start.ClusterNotFound(ref)
	default:
		return failure.NotFound("CREDENTIALS_NOT_FOUND", "there are no BMC credentials %q", ref).
			WithField("credentials_ref", "unknown")
	}
}

// Settings are credentials of BMCs as they are stored.
type Settings struct {
	Ref string
	// Sealed is the secret. It is nil where there are no such credentials.
	Sealed []byte
	// Allowed are the endpoints that they may be sent to.
	Allowed                  bmcaddr.Allowance
	PlainHTTP, UnverifiedTLS bool
	// Adopted is set when an upgrade has filled in the allowance.
	Adopted bool
}

// Change is an admin's change of the credentials of BMCs.
type Change struct {
	Ref string
	// Sealed is nil to keep the stored secret.
	Sealed []byte
	// Allowed are their endpoints; empty keeps the stored allowance.
	Allowed bmcaddr.Allowance
	// PlainHTTP and UnverifiedTLS are nil to keep the present values.
	PlainHTTP, UnverifiedTLS *bool
}

// Over returns the credentials that the change makes of the stored ones, which are empty for new credentials.
func (c Change) Over(old Settings) (Settings, error) {
	next := old
	next.Ref = c.Ref
	if c.Sealed != nil {
		next.Sealed = c.Sealed
	}
	if len(c.Allowed) > 0 {
		next.Allowed, next.Adopted = c.Allowed, false
	}
	if c.PlainHTTP != nil {
		next.PlainHTTP = *c.PlainHTTP
	}
	if c.UnverifiedTLS != nil {
		next.UnverifiedTLS = *c.UnverifiedTLS
	}
	switch {
	case next.Sealed == nil:
		return next, BMC.NotFound(c.Ref)
	case len(next.Allowed) == 0:
		return next, failure.Invalid("INVALID_FIELD", "allowed_endpoints: required: say which BMCs the credentials are for").
			WithField("allowed_endpoints", "required")
	}
	return next, nil
}

// MayGoTo refuses the endpoint of a BMC that the credentials were not made for.
func (s Settings) MayGoTo(endpoint string) error {
	a, err := bmcaddr.Parse(endpoint)
	if err != nil || !s.Allowed.Covers(a) {
		return failure.Precondition("BMC_ENDPOINT_NOT_ALLOWED",
			"the credentials %s are not for the BMC %s; an admin allows it: "+
				"ingot bmc credentials allow", s.Ref, endpoint)
	}
	if a.Plain() && !s.PlainHTTP {
		return failure.Precondition("BMC_PLAIN_HTTP_NOT_ALLOWED",
			"the credentials %s may not be sent to %s, which is without TLS", s.Ref, endpoint)
	}
	return nil
}

// Agent is the agent that asks. It is empty for one that is not known.
type Agent struct{ Role, Site string }

// serves refuses agents that act for no site.
func (a Agent) serves() error {
	if a.Role != "site" || a.Site == "" {
		return failure.Denied("SCOPE_TOO_SMALL", "only site agents get BMC credentials")
	}
	return nil
}

// Named are the credentials that a machine names, and the endpoint that they are for.
type Named struct{ Ref, Endpoint string }

// Request is an agent's request for the credentials of a machine, with all that decides it.
type Request struct {
	Kind           Kind
	By             Agent
	MachineID, Ref string
	// Machine is of the agent's site; nil if the site has no such machine. Of a MAAS region, MAAS must drive it.
	Machine *Named
	// Stored are the credentials of that name; nil for none. For other kinds than BMC they are empty.
	Stored *Settings
}

// Refuse returns why the agent does not receive the credentials; nil if it does.
func (r Request) Refuse() error {
	if err := r.By.serves(); err != nil {
		return err
	}
	switch {
	case r.Machine == nil:
		return r.noMachine()
	case r.Machine.Ref == "" || r.Machine.Ref != r.Ref:
		return r.notNamed()
	case r.Stored == nil:
		return r.Kind.NotFound(r.Ref)
	case r.Kind == BMC:
		return r.Stored.MayGoTo(r.Machine.Endpoint)
	}
	return nil
}

func (r Request) noMachine() error {
	if r.Kind == MAAS {
		return failure.NotFound("MACHINE_NOT_FOUND", "site %s has no machine %q of provider maas", r.By.Site, r.MachineID).
			WithField("machine_id", "not of this site, or not of provider maas")
	}
	return failure.NotFound("MACHINE_NOT_FOUND", "site %s has no machine %q", r.By.Site, r.MachineID).
		WithField("machine_id", "not of this site")
}

func (r Request) notNamed() error {
	const reason, field, why = "CREDENTIALS_NOT_FOUND", "credentials_ref", "not those of the machine"
	switch r.Kind {
	case MAAS:
		return failure.NotFound(reason, "machine %s does not name the MAAS region %q", r.MachineID, r.Ref).
			WithField("region_ref", "not that of the machine")
	case SSH:
		return failure.NotFound(reason, "machine %s does not name the SSH credentials %q", r.MachineID, r.Ref).
			WithField(field, why)
	default:
		return failure.NotFound(reason, "machine %s does not name the credentials %q", r.MachineID, r.Ref).
			WithField(field, why)
	}
}

// Use is what needs credentials that are to be removed. Empty texts stand for nothing.
type Use struct {
	// Machine names them; Operation is under way and needs them.
	Machine, Operation string
}

// MayRemove refuses to remove credentials that something needs.
func (k Kind) MayRemove(ref string, u Use) error {
	switch {
	case u.Machine != "" && k == MAAS:
		return failure.Precondition("CREDENTIALS_IN_USE", "MAAS region %s drives machine %s", ref, u.Machine).
			WithMeta("machine_id", u.Machine)
	case u.Machine != "" && k == Cluster:
		return failure.Precondition("CLUSTER_IN_USE", "machine %s names the cluster %s", u.Machine, ref).
			WithMeta("machine_id", u.Machine)
	case u.Machine != "":
		return failure.Precondition("CREDENTIALS_IN_USE", "machine %s names the credentials %s", u.Machine, ref).
			WithMeta("machine_id", u.Machine)
	case u.Operation != "":
		return failure.Precondition("CLUSTER_IN_USE", "operation %s needs %s", u.Operation, ref).
			WithMeta("operation_id", u.Operation)
	}
	return nil
}

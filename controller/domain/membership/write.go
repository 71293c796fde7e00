package membership

import (
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/label"
)

// Writer is the caller of a write, with the roles that count for it.
type Writer struct {
	access.Caller
	Roles Roles
}

// WriterOf returns a caller with its roles.
func WriterOf(c access.Caller) (Writer, error) {
	if len(c.Grants) == 0 {
		return Writer{c, Roles{{Level: levelOf(c.Scope)}}}, nil
	}
	roles, err := RolesOf(c.Grants)
	return Writer{c, roles}, err
}

// MayOperate refuses a call about a stored machine, or its tombstone, to callers whose roles are for other machines.
func (w Writer) MayOperate(f Fields) error {
	if w.Roles.LevelAt(f) < Operate {
		return w.OutsideSelection()
	}
	return nil
}

// Target are the fields of a machine's spec by which its credentials are sent, and the addresses of its hardware.
type Target struct {
	BMCEndpoint, BMCCredentials string
	SSHEndpoint, SSHCredentials string
	SSHHostKeys                 []string
	Site                        string
	MACs                        []string
}

// Write is a write of a machine's fields.
type Write struct {
	By Writer
	// Before is nil for a new machine.
	Before *Fields
	After  Fields
	// Uses are all things that depend on fields of machines. They may be left out where no field changes.
	Uses []Use
	// Was and Becomes are the machine's targets; those of a new machine begin with its site alone.
	Was, Becomes Target
	// Enrolled reports whether the machine has an agent, a recorded TPM or a level of identity.
	Enrolled bool
}

// AsksUses reports whether the decision depends on what else depends on fields of machines.
func (w Write) AsksUses() bool {
	return w.By.Roles.Everywhere() < Admin && (w.Before == nil || !w.Before.Equal(w.After))
}

// Refuse returns why the caller may not make the write; nil if it may.
func (w Write) Refuse() error {
	if w.By.Roles.Everywhere() >= Admin {
		return nil
	}
	if no := Decide(w.By.Roles, w.Before, w.After, w.Uses); no != nil {
		return no.failure(w.By)
	}
	return w.aim()
}

// aim refuses a change of the target of credentials, or of the hardware with a proven identity. Only an admin of the
// machine before and after the change may make it. Fields that stay as they are need no rights.
func (w Write) aim() error {
	written := w.After
	written.Image = "" // which no client writes
	if w.By.Roles.LevelAt(written) >= Admin && (w.Before == nil || w.By.Roles.LevelAt(*w.Before) >= Admin) {
		return nil
	}
	if changed := w.aimChanged(); changed != "" {
		return w.By.needsAdmin(changed, "it decides where the machine's credentials go")
	}
	credentials := w.Was.BMCCredentials != "" || w.Was.SSHCredentials != ""
	if (w.Enrolled || credentials) && !sameMACs(w.Was.MACs, w.Becomes.MACs) {
		return w.By.needsAdmin("mac_addresses", "the machine has credentials or an enrolled identity")
	}
	return nil
}

func (w Writer) needsAdmin(field, why string) error {
	return failure.Denied(access.ReasonScopeTooSmall, "only an admin changes %s: %s", field, why).
		WithField("machine.spec."+field, "needs scope admin").
		WithMeta("scope", w.Scope.String()).WithMeta("required_scope", access.ScopeAdmin.String())
}

func sameMACs(was, becomes []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(was)), slices.Sorted(slices.Values(becomes)))
}

// aimChanged returns the first field of a spec that changes the target of a BMC's password or an SSH key; "" if none
// does. An SSH endpoint without credentials is a note: nothing connects to it.
func (w Write) aimChanged() string {
	was, becomes := w.Was, w.Becomes
	ssh := was.SSHCredentials != "" || becomes.SSHCredentials != ""
	switch {
	case was.BMCEndpoint != becomes.BMCEndpoint:
		return "bmc_endpoint"
	case was.BMCCredentials != becomes.BMCCredentials:
		return "bmc_credentials_ref"
	case was.SSHCredentials != becomes.SSHCredentials:
		return "ssh_credentials_ref"
	case ssh && was.SSHEndpoint != becomes.SSHEndpoint:
		return "ssh_endpoint"
	case ssh && !slices.Equal(was.SSHHostKeys, becomes.SSHHostKeys):
		return "ssh_host_keys"
	case (becomes.BMCCredentials != "" || ssh) && was.Site != becomes.Site:
		return "site" // whose agent gets them
	}
	return ""
}

// TakenAddress is a MAC address of a write that another record had last.
type TakenAddress struct {
	By   Writer
	Last Fields
	// DeletedWithTPM reports whether the last record is deleted and has a recorded TPM.
	DeletedWithTPM bool
	After          Fields
	Uses           []Use
}

// Refuse refuses an address where the caller may not move the last record's fields to those of the machine: the
// hardware would leave its place by a deletion, or by a change of the address, and a new registration. One of a deleted
// machine whose TPM is recorded needs an admin.
func (a TakenAddress) Refuse() error {
	if a.By.Roles.Everywhere() >= Admin {
		return nil
	}
	if no := Decide(a.By.Roles, &a.Last, a.After, a.Uses); no != nil {
		return no.failure(a.By)
	}
	if a.DeletedWithTPM && a.By.Roles.LevelAt(a.After) < Admin {
		return a.By.needsAdmin("mac_addresses", "a deleted machine with it has a recorded TPM")
	}
	return nil
}

// MayOffer refuses a change of the label that offers the machine to a tool, unless the caller is an admin: the tool
// installs the machines that are offered to it.
func (w Writer) MayOffer(old, wanted map[string]string) error {
	before, had := old[label.Offered]
	after, has := wanted[label.Offered]
	if w.Scope.Covers(access.ScopeAdmin) || had == has && before == after {
		return nil
	}
	return failure.Denied(access.ReasonScopeTooSmall,
		"only an admin offers a machine: the tool that it is offered to installs it").
		WithField("machine.labels["+label.Offered+"]", "needs scope admin").
		WithMeta("scope", w.Scope.String()).WithMeta("required_scope", access.ScopeAdmin.String())
}

// failure returns the refusal as the error of a call. It names what depends on the field as far as the caller may read
// it: roles and tokens are for admins to read, the rest for callers with a role on all machines.
func (r *Refusal) failure(by Writer) error {
	if r.Outside {
		return by.OutsideSelection()
	}
	use := "a " + string(r.Use.Kind)
	if r.Use.Kind == ApprovalPolicy || r.Use.Kind == IdentityLevel {
		use = "an " + string(r.Use.Kind)
	}
	named := r.Use.Kind != Role && r.Use.Kind != Token && by.Roles.Everywhere() >= Read
	if named {
		use = string(r.Use.Kind) + " " + r.Use.Name
	}
	var e *failure.Error
	if r.Key == "" {
		e = failure.Denied("FIELD_IN_USE",
			"a machine may be registered only by an admin of all machines: their number is used by %s", use).
			WithField("machine", "needs scope admin")
	} else {
		e = failure.Denied("FIELD_IN_USE",
			"the field %s may be changed only by an admin of the machine, as it is and as it would be: it is used by %s",
			r.Key, use).WithField(fieldPath(r.Key), "needs scope admin").WithMeta("key", r.Key)
	}
	if named {
		e = e.WithMeta("used_by_name", r.Use.Name)
	}
	return e.WithMeta("used_by", string(r.Use.Kind))
}

// fieldPath returns the field of a request that a filter's key stands for.
func fieldPath(key string) string {
	switch {
	case key == "cluster":
		return "machine.spec.target_cluster_ref"
	case slices.Contains([]string{"provider", "site", "region", "rack", "group", "location", "serial"}, key):
		return "machine.spec." + key
	}
	return "machine." + key
}

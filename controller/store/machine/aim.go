package machine

import (
	"context"
	"slices"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/membership"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
)

// mayAim refuses a change of the target of credentials, or of the hardware with a proven identity. Only an admin of the
// machine before and after the change may make it. Fields that stay as they are need no rights. Without old the machine
// is new.
func mayAim(ctx context.Context, caller membership.Caller, old *dbsqlc.Machine, m *baremetalv1.Machine) error {
	before, enrolled := &baremetalv1.MachineSpec{Site: m.GetSpec().GetSite()}, false
	admin := caller.LevelAt(FieldsOf(m)) >= membership.Admin
	if old != nil {
		stored, err := StoredFields(*old)
		if err != nil {
			return err
		}
		if before, err = convert.SpecFromJSON(old.Spec); err != nil {
			return err
		}
		admin = admin && caller.LevelAt(stored) >= membership.Admin
		enrolled = old.AgentID != nil || old.TpmKeyDigest != nil || old.IdentityLevel != ""
	}
	if admin {
		return nil
	}
	if changed := aimChanged(before, m.GetSpec()); changed != "" {
		return needsAdmin(ctx, changed, "it decides where the machine's credentials go")
	}
	credentials := before.GetBmcCredentialsRef() != "" || before.GetSshCredentialsRef() != ""
	if (enrolled || credentials) && !sameMACs(before, m.GetSpec()) {
		return needsAdmin(ctx, "mac_addresses", "the machine has credentials or an enrolled identity")
	}
	return nil
}

func needsAdmin(ctx context.Context, field, why string) error {
	caller, _ := auth.CallerFrom(ctx) // there is one: work of the controller's own is not refused
	return failure.Denied(auth.ReasonScopeTooSmall, "only an admin changes %s: %s", field, why).
		WithField("machine.spec."+field, "needs scope admin").
		WithMeta("scope", caller.Scope.String()).WithMeta("required_scope", auth.ScopeAdmin.String())
}

func sameMACs(old, wanted *baremetalv1.MachineSpec) bool {
	sorted := func(s *baremetalv1.MachineSpec) []string { return slices.Sorted(slices.Values(s.GetMacAddresses())) }
	return slices.Equal(sorted(old), sorted(wanted))
}

// aimChanged returns the first field of a spec that changes the target of a BMC's password or an SSH key; "" if none
// does. An SSH endpoint without credentials is a note: nothing connects to it.
func aimChanged(old, wanted *baremetalv1.MachineSpec) string {
	ssh := old.GetSshCredentialsRef() != "" || wanted.GetSshCredentialsRef() != ""
	switch {
	case old.GetBmcEndpoint() != wanted.GetBmcEndpoint():
		return "bmc_endpoint"
	case old.GetBmcCredentialsRef() != wanted.GetBmcCredentialsRef():
		return "bmc_credentials_ref"
	case old.GetSshCredentialsRef() != wanted.GetSshCredentialsRef():
		return "ssh_credentials_ref"
	case ssh && old.GetSshEndpoint() != wanted.GetSshEndpoint():
		return "ssh_endpoint"
	case ssh && !slices.Equal(old.GetSshHostKeys(), wanted.GetSshHostKeys()):
		return "ssh_host_keys"
	case (wanted.GetBmcCredentialsRef() != "" || ssh) &&
		pgtx.OrText(old.GetSite(), defaultSite) != pgtx.OrText(wanted.GetSite(), defaultSite):
		return "site" // whose agent gets them
	}
	return ""
}

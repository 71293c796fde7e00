package store

import (
	"context"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/internal/failure"
)

// mayAim refuses a change of where the password of a BMC goes, unless the caller is an admin. Fields that stay as they
// are need no rights. Work of the controller's own has no caller.
func mayAim(ctx context.Context, old, wanted *baremetalv1.MachineSpec) error {
	caller, ok := auth.CallerFrom(ctx)
	if !ok || caller.Scope.Covers(auth.ScopeAdmin) {
		return nil
	}
	var changed string
	switch {
	case old.GetBmcEndpoint() != wanted.GetBmcEndpoint():
		changed = "bmc_endpoint"
	case old.GetBmcCredentialsRef() != wanted.GetBmcCredentialsRef():
		changed = "bmc_credentials_ref"
	case wanted.GetBmcCredentialsRef() != "" && orText(old.GetSite(), defaultSite) != orText(wanted.GetSite(), defaultSite):
		changed = "site" // whose agent gets the password
	default:
		return nil
	}
	return failure.Denied(auth.ReasonScopeTooSmall, "only an admin changes %s: it decides where the password of a BMC goes", changed).
		WithField("machine.spec."+changed, "needs scope admin").
		WithMeta("scope", caller.Scope.String()).WithMeta("required_scope", auth.ScopeAdmin.String())
}

package machine

import (
	"context"
	"slices"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
)

// mayAim refuses a change of where credentials go, unless the caller is an admin. Fields that stay as they are need no
// rights. Work of the controller's own has no caller.
func mayAim(ctx context.Context, old, wanted *baremetalv1.MachineSpec) error {
	caller, ok := auth.CallerFrom(ctx)
	if !ok || caller.Scope.Covers(auth.ScopeAdmin) {
		return nil
	}
	changed := aimChanged(old, wanted)
	if changed == "" {
		return nil
	}
	return failure.Denied(auth.ReasonScopeTooSmall,
		"only an admin changes %s: it decides where the machine's credentials go", changed).
		WithField("machine.spec."+changed, "needs scope admin").
		WithMeta("scope", caller.Scope.String()).WithMeta("required_scope", auth.ScopeAdmin.String())
}

// aimChanged names the first field of a spec that changes where the password of a BMC or a key for SSH goes; "" if none
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

package machine

import (
	"context"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/label"
)

// mayOffer refuses a change of the label that offers the machine to a tool, unless the caller is an admin: the tool
// installs the machines that are offered to it. Work of the controller's own has no caller.
func mayOffer(ctx context.Context, old, wanted map[string]string) error {
	caller, ok := auth.CallerFrom(ctx)
	before, had := old[label.Offered]
	after, has := wanted[label.Offered]
	if !ok || caller.Scope.Covers(auth.ScopeAdmin) || had == has && before == after {
		return nil
	}
	return failure.Denied(auth.ReasonScopeTooSmall,
		"only an admin offers a machine: the tool that it is offered to installs it").
		WithField("machine.labels["+label.Offered+"]", "needs scope admin").
		WithMeta("scope", caller.Scope.String()).WithMeta("required_scope", auth.ScopeAdmin.String())
}

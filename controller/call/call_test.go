package call_test

import (
	"context"
	"testing"

	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/failure"
)

// TestWhoACallIsOf: work of the controller's own has no caller and no address, an agent's call has an address alone.
func TestWhoACallIsOf(t *testing.T) {
	t.Parallel()
	agent := call.WithAddress(t.Context(), "10.0.0.2")
	ann := access.Caller{Name: "ann", Address: "10.0.0.1", Scope: access.ScopeRead}
	for name, c := range map[string]struct {
		ctx               context.Context
		identity, address string
		known             bool
	}{
		"the controller's own work": {t.Context(), "", "", false},
		"an agent's call":           {agent, "", "10.0.0.2", false},
		"a client's call":           {call.WithCaller(t.Context(), ann), "token ann", "10.0.0.1", true},
		"a client's inside another": {call.WithCaller(agent, ann), "token ann", "10.0.0.1", true},
	} {
		_, known := call.Caller(c.ctx)
		if known != c.known || call.Identity(c.ctx) != c.identity || call.Address(c.ctx) != c.address {
			t.Errorf("%s: %t, %q from %q", name, known, call.Identity(c.ctx), call.Address(c.ctx))
		}
	}
	if err := call.Outside(call.WithCaller(t.Context(), ann)); failure.ReasonOf(err) != "OUTSIDE_SELECTION" {
		t.Error(err)
	}
}

// TestWorkIsPreparedWithinTheRolesThatOperate: a caller who reads everything works on some machines alone.
func TestWorkIsPreparedWithinTheRolesThatOperate(t *testing.T) {
	t.Parallel()
	viewer := access.Grant{Role: access.Viewer}
	for name, c := range map[string]struct {
		grants     []access.Grant
		restricted bool
	}{
		"operates a site": {[]access.Grant{viewer, {Role: access.Operator, Selection: "site=x"}}, true},
		"operates all":    {[]access.Grant{{Role: access.Operator}, {Role: access.Viewer, Selection: "site=x"}}, false},
		"reads":           {[]access.Grant{viewer}, false},
	} {
		by := access.Caller{Name: "ann", Grants: c.grants, Need: access.ScopeRead}
		working, _ := call.Caller(call.Working(call.WithCaller(t.Context(), by)))
		if _, restricted := working.Within(); restricted != c.restricted {
			t.Errorf("%s: %+v", name, working)
		}
	}
	if _, known := call.Caller(call.Working(t.Context())); known {
		t.Error("the controller's own work has a caller")
	}
}

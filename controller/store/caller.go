package store

import (
	"context"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/start"
)

// callerOf returns what the rules of a start depend on of the call's caller. Work of the controller's own has none.
func callerOf(ctx context.Context) start.Caller {
	c, ok := auth.CallerFrom(ctx)
	if !ok {
		return start.Caller{}
	}
	return start.Caller{Identity: c.Identity(), Scope: c.Scope.String(), Admin: c.Scope.Covers(auth.ScopeAdmin)}
}

// Package call carries in a call's context who makes the call, as a value of the domain: without the proof that the
// caller has shown.
//
// Storage writes the caller into each row of the audit log, and decides again in its transaction what the caller may
// change. It takes the caller from the context and not as a parameter: some hundred functions would only pass it on.
// Work without a caller is the controller's own, which may do everything. A function that left the parameter out would
// widen the caller's rights, and no test of another function would notice.
package call

import (
	"context"

	"github.com/ingot-metal/ingot/controller/domain/access"
)

type (
	callerKey  struct{}
	addressKey struct{}
)

// Caller returns the caller that the guard of the frontpage has let in. It reports false for the controller's own work
// and for the calls of agents.
func Caller(ctx context.Context) (access.Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(access.Caller)
	return c, ok
}

// WithCaller returns the context of a call by a caller.
func WithCaller(ctx context.Context, c access.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// Identity returns the identity of the caller; empty where there is none.
func Identity(ctx context.Context) string {
	c, _ := Caller(ctx)
	return c.Identity()
}

// Address returns the IP address that the call of a client or an agent came from; empty where there is none.
func Address(ctx context.Context) string {
	if c, ok := Caller(ctx); ok {
		return c.Address
	}
	from, _ := ctx.Value(addressKey{}).(string)
	return from
}

// WithAddress returns the context of an agent's call from an address.
func WithAddress(ctx context.Context, from string) context.Context {
	return context.WithValue(ctx, addressKey{}, from)
}

// Working returns the context of a call that prepares work: its caller is held to the machines on which it may begin
// the work, if there are any.
func Working(ctx context.Context) context.Context {
	if c, ok := Caller(ctx); ok {
		return WithCaller(ctx, c.Working())
	}
	return ctx
}

// Outside is the refusal of a call about a machine that none of the caller's roles is for.
func Outside(ctx context.Context) error {
	c, _ := Caller(ctx) // there is one: work of the controller's own is not refused
	return c.OutsideSelection()
}

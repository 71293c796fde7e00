package auth

import (
	"context"
	"crypto/x509"
)

// Caller is who holds the bearer token of a call. Name is the actor in the audit log.
type Caller struct {
	Name  string
	Scope Scope
	// TokenID is empty for tokens of the file.
	TokenID string
	// Address is the IP address that the call came from; empty for work of the controller's own.
	Address string
	// Person has signed on; nil for a token. Grants are the person's roles.
	Person *Person
	Grants []Grant

	// owner is the identity of the person who made a token; need is what the call asks for.
	owner string
	need  Scope
}

// Identity tells callers apart, whatever they are called: two people of one name are two, and a token that a person has
// made is that person.
func (c Caller) Identity() string {
	switch {
	case c.Person != nil:
		return c.Person.Identity()
	case c.owner != "":
		return c.owner
	}
	return "token " + c.Name
}

// Client is who shares the bounds of one client: a person with all sessions, or a token.
func (c Caller) Client() string {
	if c.Person != nil {
		return c.Person.Identity()
	}
	return c.Name
}

// Identity tells people apart.
func (p Person) Identity() string { return "person " + p.Issuer + " " + p.Subject }

// IdentityFrom gives the identity of a call's caller; empty where there is none.
func IdentityFrom(ctx context.Context) string {
	if c, ok := CallerFrom(ctx); ok {
		return c.Identity()
	}
	return ""
}

// Owner is the identity that a token has which the caller makes; empty where a token is nobody's.
func Owner(ctx context.Context) string {
	if c, ok := CallerFrom(ctx); ok && (c.Person != nil || c.owner != "") {
		return c.Identity()
	}
	return ""
}

// Agent is who holds the client certificate of a call.
type Agent struct {
	// ID is the agent_id in the certificate's URI.
	ID   string
	Cert *x509.Certificate
	// Address is the IP address that the call came from.
	Address string
}

// AddressFrom gives the address that the call of a client or an agent came from; empty where there is none.
func AddressFrom(ctx context.Context) string {
	if c, ok := CallerFrom(ctx); ok {
		return c.Address
	}
	a, _ := AgentFrom(ctx)
	return a.Address
}

type (
	callerKey struct{}
	agentKey  struct{}
)

// CallerFrom gives the caller that the guard of the frontpage has let in.
func CallerFrom(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// WithCaller is for tests of handlers and for work that the controller does on its own account.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// AgentFrom gives the agent that the guard of the fleet listener has let in.
func AgentFrom(ctx context.Context) (Agent, bool) {
	a, ok := ctx.Value(agentKey{}).(Agent)
	return a, ok
}

// WithAgent is for tests of handlers.
func WithAgent(ctx context.Context, a Agent) context.Context {
	return context.WithValue(ctx, agentKey{}, a)
}

package auth

import (
	"context"
	"crypto/x509"
	"time"
)

// Caller is who holds the bearer token of a call. Name is the actor in the audit log.
type Caller struct {
	Name  string
	Scope Scope
	// TokenID is empty for tokens of the file.
	TokenID string
	// Address is the IP address that the call came from; empty for work of the controller's own.
	Address string
	// Person has signed on; nil for a token. Grants are the roles of a person, or of a token that is not good for all
	// that its scope opens.
	Person *Person
	Grants []Grant
	// TokenEnds is when a token of the database expires.
	TokenEnds time.Time

	// owner is the identity of who made a token; need is what the call asks for.
	owner string
	need  Scope
}

// Identity distinguishes callers, whatever they are called: two people of one name are two, and a token is who has made
// it, through any number of tokens.
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

// Identity distinguishes people.
func (p Person) Identity() string { return personPrefix + p.Issuer + " " + p.Subject }

// personPrefix begins the identity of a person, and of no token.
const personPrefix = "person "

// IdentityFrom returns the identity of a call's caller; empty where there is none.
func IdentityFrom(ctx context.Context) string {
	if c, ok := CallerFrom(ctx); ok {
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

// AddressFrom returns the address that the call of a client or an agent came from; empty where there is none.
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

// CallerFrom returns the caller that the guard of the frontpage has let in.
func CallerFrom(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// WithCaller is for tests of handlers and for work that the controller does on its own account.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// AgentFrom returns the agent that the guard of the fleet listener has let in.
func AgentFrom(ctx context.Context) (Agent, bool) {
	a, ok := ctx.Value(agentKey{}).(Agent)
	return a, ok
}

// WithAgent is for tests of handlers.
func WithAgent(ctx context.Context, a Agent) context.Context {
	return context.WithValue(ctx, agentKey{}, a)
}

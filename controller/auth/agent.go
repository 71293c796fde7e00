package auth

import (
	"context"
	"crypto/x509"

	"github.com/ingot-metal/ingot/controller/call"
)

// Agent is who holds the client certificate of a call.
type Agent struct {
	// ID is the agent_id in the certificate's URI.
	ID   string
	Cert *x509.Certificate
	// Address is the IP address that the call came from.
	Address string
}

type agentKey struct{}

// AgentFrom returns the agent that the guard of the fleet listener has let in.
func AgentFrom(ctx context.Context) (Agent, bool) {
	a, ok := ctx.Value(agentKey{}).(Agent)
	return a, ok
}

// WithAgent is for tests of handlers.
func WithAgent(ctx context.Context, a Agent) context.Context {
	return context.WithValue(call.WithAddress(ctx, a.Address), agentKey{}, a)
}

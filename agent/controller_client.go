package agent

import (
	"context"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
)

// controllerClient asks the controller for what a command or a machine of the site needs: credentials, keys, identities
// and files. The agent keeps none of them beyond the call.
type controllerClient struct {
	// call runs a function with the client of the current session, and waits for a session (session.Runner.Call).
	call func(ctx context.Context, fn func(context.Context, fleetv1.AgentServiceClient) error) error
}

package dispatch

import (
	"context"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/state"
)

// Store is what the dispatcher keeps in the agent's memory. *state.Store is one that survives the process.
type Store interface {
	StateID(ctx context.Context) (string, error)
	Meta(ctx context.Context) (state.Meta, error)
	NextGrantSeqs(ctx context.Context, commandIDs ...string) ([]state.GrantNumber, error)
	Receive(ctx context.Context, c state.Command) (stored state.Command, known bool, err error)
	Start(ctx context.Context, id string, intent, grant []byte, now time.Time) error
	Unstart(ctx context.Context, id string) error
	UpdateIntent(ctx context.Context, id string, intent []byte) error
	Finish(ctx context.Context, id string, result []byte, now time.Time) error
	Settle(ctx context.Context, id string) error
	Unsettled(ctx context.Context) ([]state.Command, error)
	Evict(ctx context.Context, now time.Time) (int64, error)
	Append(ctx context.Context, e *fleetv1.Event, now time.Time) error
}

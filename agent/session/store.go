package session

import (
	"context"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/state"
)

// Store is what a session needs of the agent's memory. *state.Store is one that survives the process.
type Store interface {
	Meta(ctx context.Context) (state.Meta, error)
	Unsettled(ctx context.Context) ([]state.Command, error)
	SawControllerTime(ctx context.Context, t time.Time) error
	Recognized(ctx context.Context, stored uint64) error
	Append(ctx context.Context, e *fleetv1.Event, now time.Time) error
	Events(ctx context.Context, after uint64, limit int, now time.Time) ([]*fleetv1.Event, error)
	BufferedEvents(ctx context.Context) (int64, error)
	Trim(ctx context.Context, seq uint64) error
	// Changed receives after events were appended.
	Changed() <-chan struct{}
}

package engine

import (
	"context"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
)

// pendingQueue are operations that have just been created here, each waiting for its first look. They stand in memory
// only: what is lost with this controller, or does not find room, is found by the sweep of any controller, since
// wake_at of each comes soon.
type pendingQueue chan string

const (
	looksAtMost = 20_000
	// lookers look at once. Looks that come together are stored together.
	lookers = 64
	// lookTries bounds how often a first look that fails is repeated. After that the sweep goes on.
	lookTries = 3
	lookTime  = 10 * time.Second
)

// add never waits.
func (l pendingQueue) add(operationID string) {
	select {
	case l <- operationID:
	default:
	}
}

// evaluateQueued looks at new operations until ctx ends.
func (e *Engine) evaluateQueued(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case id := <-e.looks:
			e.queueFirst(ctx, id)
		}
	}
}

func (e *Engine) queueFirst(ctx context.Context, operationID string) {
	err := e.evaluateInTime(ctx, operationID, 1)
	for try := 1; err != nil && try < lookTries; try++ {
		select {
		case <-ctx.Done():
			return
		case <-e.clock.After(time.Second):
		}
		// The look before may have committed and failed before its commands left: look at whatever there is now.
		err = e.evaluateInTime(ctx, operationID, 0)
	}
	if err != nil && ctx.Err() == nil {
		e.log.Warn("first look failed; the sweep goes on", "operation_id", operationID, "error", err.Error())
	}
}

func (e *Engine) evaluateInTime(ctx context.Context, operationID string, version int64) error {
	limited, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	// A look that panics ends itself and not the controller.
	return task.Run(limited, "first look",
		func(ctx context.Context) error { return e.evaluate(ctx, operationID, version) })
}

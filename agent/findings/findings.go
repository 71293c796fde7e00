// Package findings keeps looking at states of a host, such as a drift of its configuration, and reports each change.
//
// # Failure handling
//
// What was reported is remembered with the event, in one transaction. An agent that is killed reports nothing twice,
// and it reports changes from its absence at its next start.
package findings

import (
	"context"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/internal/clock"
)

// again is when a change is looked at once more before it is reported: something under way is no finding.
const again = 10 * time.Second

// State is what a host shows at one moment.
type State struct {
	// Name is equal for equal states; empty when there is nothing to look at.
	Name string
	// Report reports the state.
	Report *fleetv1.Report
}

// Finding is one thing to look at.
type Finding struct {
	// Kind is that of its reports.
	Kind  string
	Every time.Duration
	Look  func(ctx context.Context) (State, error)
	// Reported is called after each report; nil does nothing.
	Reported func()
}

// Memory remembers which state was reported last; *state.Store is one.
type Memory interface {
	// Finding is the name of that state; empty when none was reported.
	Finding(ctx context.Context, kind string) (state string, err error)
	// AppendFinding buffers the report and remembers the name of its state, both or neither.
	AppendFinding(ctx context.Context, r *fleetv1.Report, state string, now time.Time) error
}

// Watcher watches findings until its context ends.
type Watcher struct {
	Clock  clock.Clock
	Memory Memory
	// Failed logs an error of looking or reporting. The watcher tries again at the next turn.
	Failed func(kind string, err error)
}

// Watch reports each state of the finding that lasts and is another one than the last that was reported.
func (w Watcher) Watch(ctx context.Context, f Finding) {
	for {
		if err := w.once(ctx, f); err != nil && ctx.Err() == nil {
			w.Failed(f.Kind, err)
		}
		if !w.pause(ctx, f.Every) {
			return
		}
	}
}

func (w Watcher) once(ctx context.Context, f Finding) error {
	told, err := w.Memory.Finding(ctx, f.Kind)
	if err != nil {
		return err
	}
	now, err := f.Look(ctx)
	for err == nil && now.Name != told {
		if !w.pause(ctx, again) {
			return context.Cause(ctx)
		}
		before := now
		now, err = f.Look(ctx)
		if err != nil || now.Name != before.Name {
			continue
		}
		err = w.Memory.AppendFinding(ctx, now.Report, now.Name, w.Clock.Now())
		if err == nil && f.Reported != nil {
			f.Reported()
		}
		return err
	}
	return err
}

// pause reports whether the context still holds after a while.
func (w Watcher) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-w.Clock.After(d):
		return true
	}
}

// Package stuck finds operations whose step runs far longer than its kind does.
package stuck

import (
	"context"
	"log/slog"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/explain/rules"
	explainstore "github.com/ingot-metal/ingot/controller/store/explain"
	"github.com/ingot-metal/ingot/internal/clock"
)

const (
	// Every is the time between two searches.
	Every = 30 * time.Second
	// page bounds the steps that are looked at each time; the longest come first.
	page = 1000
)

// Search finds operations whose step runs far longer than its kind does while nothing automatic is in sight. It fails
// none of them.
type Search struct {
	Store *explainstore.Store
	Clock clock.Clock
	Log   *slog.Logger
	// Found takes the number of stuck operations of each search.
	Found func(n int)
}

// Find counts the operations whose step runs far longer than its kind does while nothing automatic is in sight,
// and notes each step once in the operation's log. It fails nothing.
func (s Search) Find(ctx context.Context) (int, error) {
	now := s.Clock.Now()
	long, err := s.Store.LongSteps(ctx, now.Add(-explain.StuckFloor), page)
	if err != nil || len(long) == 0 {
		return 0, err
	}
	normals, err := s.Store.StepNormals(ctx)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, step := range long {
		normal := normals.For(step.Kind, step.Group, step.Model, step.Simulated)
		if !explain.Overlong(now.Sub(step.StartedAt), normal) {
			continue
		}
		stuck, err := s.judge(ctx, step, normals, now)
		if err != nil {
			return 0, err
		}
		if stuck {
			n++
		}
	}
	return n, nil
}

// judge looks at all that is known about one operation, and notes it if it is stuck.
func (s Search) judge(
	ctx context.Context, step explainstore.LongStep, normals explain.Baselines, now time.Time,
) (bool, error) {
	facts, err := s.Store.ExplainFacts(ctx, step.MachineID, step.OperationID, now)
	if err != nil {
		return false, err
	}
	x := rules.Explain(facts.WithBaselines(normals))
	if !x.Stuck {
		return false, nil
	}
	first, err := s.Store.NoteStuck(ctx, step.OperationID, x.Step, "stuck: "+x.Summary, now)
	if first {
		s.Log.Warn("operation is stuck", "operation_id", step.OperationID, "machine_id", step.MachineID, "step", x.Step,
			"waits_on", string(x.WaitsOn), "reason", x.Cause.Reason, "ran",
			now.Sub(step.StartedAt).Truncate(time.Second).String())
	}
	return true, err
}

// Watch searches once and reports the number.
func (s Search) Watch(ctx context.Context) error {
	n, err := s.Find(ctx)
	if err == nil {
		s.Found(n)
	}
	return err
}

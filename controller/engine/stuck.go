package engine

import (
	"context"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/explain/rules"
	explainstore "github.com/ingot-metal/ingot/controller/store/explain"
)

const (
	// stuckEvery is how often steps are held against their normal durations.
	stuckEvery = 30 * time.Second
	// stuckPage bounds the steps that are looked at each time; the longest come first.
	stuckPage = 1000
)

// FindStuck counts the operations whose step runs far longer than its kind does while nothing automatic is in sight,
// and notes each step once in the operation's log. It fails nothing.
func (e *Engine) FindStuck(ctx context.Context) (int, error) {
	now := e.clock.Now()
	long, err := e.store.Explain.LongSteps(ctx, now.Add(-explain.StuckFloor), stuckPage)
	if err != nil || len(long) == 0 {
		return 0, err
	}
	normals, err := e.store.Explain.StepNormals(ctx)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, step := range long {
		normal := normals.For(step.Kind, step.Group, step.Model, step.Simulated)
		if !explain.Overlong(now.Sub(step.StartedAt), normal) {
			continue
		}
		stuck, err := e.stuck(ctx, step, normals, now)
		if err != nil {
			return 0, err
		}
		if stuck {
			n++
		}
	}
	return n, nil
}

// stuck looks at all that is known about one operation, and notes it if it is stuck.
func (e *Engine) stuck(
	ctx context.Context, step explainstore.LongStep, normals explain.Baselines, now time.Time,
) (bool, error) {
	facts, err := e.store.Explain.ExplainFacts(ctx, step.MachineID, step.OperationID, now)
	if err != nil {
		return false, err
	}
	x := rules.Explain(facts.WithBaselines(normals))
	if !x.Stuck {
		return false, nil
	}
	first, err := e.store.Explain.NoteStuck(ctx, step.OperationID, x.Step, "stuck: "+x.Summary, now)
	if first {
		e.log.Warn("operation is stuck", "operation_id", step.OperationID, "machine_id", step.MachineID, "step", x.Step,
			"waits_on", string(x.WaitsOn), "reason", x.Cause.Reason, "ran",
			now.Sub(step.StartedAt).Truncate(time.Second).String())
	}
	return true, err
}

// watchStuck shows the count to whoever observes.
func (e *Engine) watchStuck(ctx context.Context) error {
	n, err := e.FindStuck(ctx)
	if err == nil {
		e.cfg.Observer.Stuck(n)
	}
	return err
}

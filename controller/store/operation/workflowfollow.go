package operation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	"github.com/ingot-metal/ingot/controller/store/workflowstate"
)

// readWorkflow loads the workflow whose attempt the operation is, and what its stages judge by.
func (l *OperationContext) readWorkflow(ctx context.Context, q *dbsqlc.Queries, w *operation.World) error {
	if !workflowstate.OfWorkflow(l.Snap.Op.Type) {
		return nil
	}
	row, err := q.LockWorkflowOfOperation(ctx, &l.Row.OperationID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // an older attempt's late event
	}
	if err != nil {
		return fmt.Errorf("lock workflow: %w", err)
	}
	wf, err := workflowstate.WorkflowFromRow(row)
	if err != nil {
		return err
	}
	wf.Provider = l.Machine.Provider
	l.workflow = &wf
	w.Stage, err = workflowstate.StageFacts(ctx, q, l.Machine, wf)
	return err
}

// followWorkflow moves the workflow, and the node with it, as the decision on its attempt says.
func (l *OperationContext) followWorkflow(
	ctx context.Context, q *dbsqlc.Queries, d operation.Decision, now time.Time,
) error {
	if l.workflow == nil {
		return nil
	}
	a := workflow.Attempt{Phase: string(d.Op.Phase), Step: d.Op.CurrentStage, Evidence: d.Op.Evidence, Granted: d.Grant}
	if d.Op.Error != nil {
		a.Reason, a.Message = d.Op.Error.Code, d.Op.Error.Message
	}
	w := workflow.Follow(*l.workflow, a)
	if err := l.beginStages(ctx, q, d, now); err != nil {
		return err
	}
	if operation.IsTerminal(d.Op.Phase) {
		if err := workflowstate.EndWork(ctx, q, w, "", l.Snap.World.TargetAgentLive, now); err != nil {
			return err
		}
	}
	if err := workflowstate.WorkflowCures(ctx, q, w, now); err != nil {
		return err
	}
	observed, err := nodestate.ObservedProviderState(ctx, q, l.Machine)
	if err != nil {
		return err
	}
	return workflowstate.SaveWorkflow(ctx, q, w, observed, now)
}

// beginStages does what belongs to the stages that this decision has begun, or whose own check it has passed.
func (l *OperationContext) beginStages(
	ctx context.Context, q *dbsqlc.Queries, d operation.Decision, now time.Time,
) error {
	for i, s := range d.Op.Steps {
		was := l.Snap.Op.Steps[i].State
		begun := was == operation.StepWaiting && s.State != operation.StepWaiting && !s.IsStage()
		passed := was != operation.StepSucceeded && s.State == operation.StepSucceeded && s.IsStage()
		if !begun && !passed {
			continue
		}
		stage := workflow.StageOf(l.workflow.Kind, s.Name)
		if err := workflowstate.MoveNodeAlong(ctx, q, l.Machine.MachineID, l.Row.OperationID, "", "",
			func(m dbsqlc.Machine) []workflow.Move {
				return workflow.At(stage, fleet.NodeState(m.NodeState))
			}, now); err != nil {
			return err
		}
		if stage == workflow.CleanupSecrets {
			if err := workflowstate.ForgetSecrets(ctx, q, l.Machine, now); err != nil {
				return err
			}
		}
	}
	return nil
}

package workflowstate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
)

// CancelOpenWorkflow cancels the workflow that holds a machine while no attempt of it is under way, and returns the
// machine as it is then.
func CancelOpenWorkflow(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, user string, now time.Time,
) (dbsqlc.Machine, error) {
	row, err := q.OpenWorkflowOf(ctx, m.MachineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return m, nil
	}
	if err != nil {
		return m, fmt.Errorf("look for an open workflow: %w", err)
	}
	w, err := WorkflowFromRow(row)
	if err != nil {
		return m, err
	}
	e, refusal := workflow.Act(w, workflow.Cancel, workflow.Facts{})
	if refusal != nil || e.Nothing {
		return m, nil // it is on its way out
	}
	if err := history.Audit(ctx, q, history.AuditEntry{
		Actor: user, Verb: "WORKFLOW_CANCEL", Target: m.MachineID, Operation: w.OperationID,
		Data: map[string]string{"workflow_id": w.ID, "stage": w.Stage},
	}, now); err != nil {
		return m, err
	}
	if err := SaveWorkflow(ctx, q, e.Workflow, m.PowerState, now); err != nil {
		return m, err
	}
	if err := EndWork(ctx, q, e.Workflow, user, false, now); err != nil {
		return m, err
	}
	return machinestore.LockMachine(ctx, q, m.MachineID)
}

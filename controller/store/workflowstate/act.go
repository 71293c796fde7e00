package workflowstate

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
)

// LockWorkflow locks the machine first, as everything does.
func LockWorkflow(ctx context.Context, q *dbsqlc.Queries, id string) (dbsqlc.Workflow, dbsqlc.Machine, error) {
	row, err := q.GetWorkflow(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return row, dbsqlc.Machine{}, WorkflowNotFound(id)
	}
	if err != nil {
		return row, dbsqlc.Machine{}, fmt.Errorf("read workflow: %w", err)
	}
	m, err := machinestore.LockMachine(ctx, q, row.MachineID)
	if err != nil {
		return row, m, err
	}
	if row, err = q.LockWorkflow(ctx, id); err != nil {
		return row, m, fmt.Errorf("lock workflow: %w", err)
	}
	return row, m, nil
}

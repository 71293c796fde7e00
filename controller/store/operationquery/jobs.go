package operationquery

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// JobKind is the kind of the River jobs that evaluate operations.
const JobKind = "operation"

// JobKey names the River job of an operation. A transaction that creates an operation notes its key.
type JobKey struct{ OperationID, MachineID, RequestID string }

// unfinishedJobs are the operations whose job waits or runs. The table is River's.
const unfinishedJobs = `SELECT args->>'operation_id' FROM river_job
	WHERE kind = '` + JobKind + `' AND state IN ('available', 'pending', 'retryable', 'running', 'scheduled')`

// DueOperations returns active operations whose wake_at has come and that have no unfinished job: those due for
// longest, limit at most. They stay due until an evaluation has moved them.
func (s *Store) DueOperations(ctx context.Context, now time.Time, limit int) ([]JobKey, error) {
	rows, err := s.db.Pool().Query(ctx, `SELECT operation_id, target_id, request_id FROM operations
		WHERE phase IN ('PENDING', 'RUNNING') AND wake_at <= $1 AND operation_id NOT IN (`+unfinishedJobs+`)
		ORDER BY wake_at LIMIT $2`, now, limit)
	if err != nil {
		return nil, fmt.Errorf("read due operations: %w", err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[JobKey])
	if err != nil {
		return nil, fmt.Errorf("read due operations: %w", err)
	}
	return keys, nil
}

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// quarantineBusy quarantines a node on which something is under way. The node is quarantined at once, so that nothing
// is granted for it any more, and the operation is cancelled in the same transaction: a granted command is ordered to
// stop, and ends as any cancelled operation does. That operation is the answer, also of a repeat.
func (s *Store) quarantineBusy(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r TransitionRequest, now time.Time,
) (*baremetalv1.Operation, bool, error) {
	owner := pgtx.StrVal(m.CurrentOperationID)
	v := nodestate.Move{
		To: node.Quarantined, By: node.Admin, User: r.Actor, Comment: r.Comment, Ended: owner,
		Metadata: map[string]string{"operation_id": owner, "request_id": r.RequestID},
	}
	if err := s.recordMove(ctx, q, m, v, now); err != nil {
		return nil, false, err
	}
	if _, err := s.operations.StopWork(ctx, q, m, r.Actor, "the node is quarantined", now); err != nil {
		return nil, false, err
	}
	row, err := q.GetOperation(ctx, owner)
	if err != nil {
		return nil, false, fmt.Errorf("read the operation that is cancelled: %w", err)
	}
	op, err := operationquery.OperationOf(ctx, q, row)
	return op, false, err
}

// quarantinedBefore answers a repeat of the request that has quarantined the node while something was under way.
func (s *Store) quarantinedBefore(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r TransitionRequest,
) (*baremetalv1.Operation, bool, error) {
	id, err := q.MovedByRequest(ctx, dbsqlc.MovedByRequestParams{MachineID: m.MachineID, RequestID: r.RequestID})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, false, fmt.Errorf("look for the request: %w", err)
	}
	if err := node.MayRepeat(m.MachineID, m.NodeState, id); err != nil {
		return nil, false, err
	}
	row, err := q.GetOperation(ctx, id)
	if err != nil {
		return nil, false, fmt.Errorf("read the operation that was cancelled: %w", err)
	}
	op, err := operationquery.OperationOf(ctx, q, row)
	return op, false, err
}

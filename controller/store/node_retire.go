package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/node"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/workflow"
)

// A machine that is blocked or retired runs nothing. The operation under way is cancelled in the transaction that blocks it:
// what was never granted never starts, queued or sent; what was granted is told to stop, and the operation ends with its
// answer, or after the patience of any cancel. From the block on nothing new is made or granted.

// stopWork cancels what is under way on a machine, in the caller's transaction. ended says that nothing is any more.
func (s *Store) stopWork(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, actor, why string, now time.Time) (ended bool, err error) {
	if m.CurrentOperationID == nil {
		return true, nil
	}
	a, err := s.decideIn(ctx, q, *m.CurrentOperationID, 0, operation.CancelAsked{Actor: actor, Why: why}, now)
	if err != nil {
		return false, fmt.Errorf("cancel operation %s: %w", *m.CurrentOperationID, err)
	}
	afterCommit(q).note(a)
	return operation.IsTerminal(a.Phase), nil
}

// retirement is a request to retire a node that waits for the end of the operation that it has cancelled.
type retirement struct {
	RequestID string `json:"request_id"`
	User      string `json:"user"`
	Force     bool   `json:"force,omitempty"`
	Purge     bool   `json:"purge,omitempty"`
	// AuditID is the row that has the comment.
	AuditID int64 `json:"audit_id"`
}

func (r retirement) request(machineID string) TransitionRequest {
	return TransitionRequest{MachineID: machineID, RequestID: r.RequestID, To: node.Retired, Force: r.Force, Purge: r.Purge, Actor: r.User}
}

// retireBusy retires a node on which something is under way: that is cancelled first. Where it ends at once, so does the
// move; else the machine is blocked now, the node is retired in the transaction that ends the operation, and until then that
// operation is the answer.
func (s *Store) retireBusy(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r TransitionRequest, now time.Time) (*baremetalv1.Operation, bool, error) {
	ended, err := s.stopWork(ctx, q, m, r.Actor, "the node is retired", now)
	if err != nil {
		return nil, false, err
	}
	was := strVal(m.CurrentOperationID)
	if m, err = lockMachine(ctx, q, m.MachineID); err != nil {
		return nil, false, err
	}
	if ended {
		return s.transition(ctx, q, m, r, now)
	}
	if m.Retiring == nil {
		if err := retireLater(ctx, q, m, r, now); err != nil {
			return nil, false, err
		}
	}
	row, err := q.GetOperation(ctx, was)
	if err != nil {
		return nil, false, fmt.Errorf("read the operation that is cancelled: %w", err)
	}
	op, err := s.operationOf(ctx, q, row)
	return op, false, err
}

func retireLater(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r TransitionRequest, now time.Time) error {
	id, err := auditID(ctx, q, auditEntry{
		actor: r.Actor, verb: "NODE_RETIRING", target: m.MachineID, request: r.RequestID, operation: strVal(m.CurrentOperationID), comment: r.Comment,
	}, now)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(retirement{RequestID: r.RequestID, User: r.Actor, Force: r.Force, Purge: r.Purge, AuditID: id})
	if err != nil {
		return fmt.Errorf("serialize retirement: %w", err)
	}
	if err := q.SetRetiring(ctx, dbsqlc.SetRetiringParams{MachineID: m.MachineID, Retiring: raw}); err != nil {
		return fmt.Errorf("note the retirement: %w", err)
	}
	return setCondition(ctx, q, m.MachineID, operation.ConditionChange{
		Type: fleet.RetiredFlag, Status: true, Reason: "NodeState", Message: "the node is retired when operation " + strVal(m.CurrentOperationID) + " has ended",
	}, now)
}

// retireNow carries out a retirement whose operation has just ended, however it ended.
func (s *Store) retireNow(ctx context.Context, q *dbsqlc.Queries, machineID string, now time.Time) error {
	m, err := lockMachine(ctx, q, machineID)
	if err != nil {
		return err
	}
	var r retirement
	if err := json.Unmarshal(m.Retiring, &r); err != nil {
		return fmt.Errorf("parse the stored retirement: %w", err)
	}
	if err := q.SetRetiring(ctx, dbsqlc.SetRetiringParams{MachineID: machineID}); err != nil {
		return fmt.Errorf("forget the retirement: %w", err)
	}
	if node.Gone(node.Parse(m.NodeState)) {
		return nil
	}
	if m, err = cancelOpenWorkflow(ctx, q, m, r.User, now); err != nil {
		return err
	}
	// Whether a decommission may be left out was judged when the retirement was asked for.
	v := move{to: node.Retired, by: node.Admin, user: r.User, auditID: &r.AuditID, purge: true}
	_, err = s.record(ctx, q, m, r.request(machineID).start(), v, now)
	return err
}

// cancelOpenWorkflow cancels the workflow that holds a machine while no attempt of it is under way, and gives the machine as
// it is then.
func cancelOpenWorkflow(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, user string, now time.Time) (dbsqlc.Machine, error) {
	row, err := q.OpenWorkflowOf(ctx, m.MachineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return m, nil
	}
	if err != nil {
		return m, fmt.Errorf("look for an open workflow: %w", err)
	}
	w, err := workflowFromRow(row)
	if err != nil {
		return m, err
	}
	e, refusal := workflow.Act(w, workflow.Cancel, workflow.Facts{})
	if refusal != nil || e.Nothing {
		return m, nil // it is on its way out
	}
	if err := audit(ctx, q, auditEntry{
		actor: user, verb: "WORKFLOW_CANCEL", target: m.MachineID, operation: w.OperationID, data: map[string]string{"workflow_id": w.ID, "stage": w.Stage},
	}, now); err != nil {
		return m, err
	}
	if err := saveWorkflow(ctx, q, e.Workflow, m.PowerState, now); err != nil {
		return m, err
	}
	if err := endWork(ctx, q, e.Workflow, user, false, now); err != nil {
		return m, err
	}
	return lockMachine(ctx, q, m.MachineID)
}

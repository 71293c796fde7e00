package node

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	approvalstore "github.com/ingot-metal/ingot/controller/store/approval"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/store/workflowstate"
)

// retirement is a request to retire a node that waits for the end of the operation that it has cancelled.
type retirement struct {
	RequestID string `json:"request_id"`
	User      string `json:"user"`
	Force     bool   `json:"force,omitempty"`
	Purge     bool   `json:"purge,omitempty"`
	// Holds: the machine held a system, and budgets and approval policies have judged its loss.
	Holds bool `json:"holds,omitempty"`
	// AuditID is the row that has the comment.
	AuditID int64 `json:"audit_id"`
}

func (r retirement) request(machineID string) TransitionRequest {
	return TransitionRequest{MachineID: machineID, RequestID: r.RequestID, To: node.Retired, Force: r.Force,
		Purge: r.Purge, Actor: r.User}
}

// retireBusy retires a node with work in progress, which is cancelled first. Where the work ends at once, so does the
// move. Else the machine is blocked now, and the node is retired in the transaction that ends the operation. Until then
// that operation is the answer.
func (s *Store) retireBusy(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r TransitionRequest, now time.Time,
) (*baremetalv1.Operation, bool, error) {
	ended, err := s.operations.StopWork(ctx, q, m, r.Actor, "the node is retired", now)
	if err != nil {
		return nil, false, err
	}
	was := pgtx.StrVal(m.CurrentOperationID)
	if m, err = machinestore.LockMachine(ctx, q, m.MachineID); err != nil {
		return nil, false, err
	}
	if ended {
		return s.transition(ctx, q, m, r, now)
	}
	if m.Retiring == nil {
		if err := s.retireLater(ctx, q, m, r, now); err != nil {
			return nil, false, err
		}
	}
	row, err := q.GetOperation(ctx, was)
	if err != nil {
		return nil, false, fmt.Errorf("read the operation that is cancelled: %w", err)
	}
	op, err := operationquery.OperationOf(ctx, q, row)
	return op, false, err
}

func (s *Store) retireLater(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r TransitionRequest, now time.Time,
) error {
	holds, err := nodestate.Holds(ctx, q, m)
	if err != nil {
		return err
	}
	if holds {
		if err := approvalstore.Admit(ctx, q, approvalstore.WorkOn(m.MachineID, r.Actor), now); err != nil {
			return err
		}
		if err := s.budgets.AdmitMachine(ctx, q, m, pgtx.StrVal(m.CurrentOperationID), now); err != nil {
			return err
		}
	}
	id, err := history.AuditID(ctx, q, history.AuditEntry{
		Actor: r.Actor, Verb: "NODE_RETIRING", Target: m.MachineID, Request: r.RequestID,
		Operation: pgtx.StrVal(m.CurrentOperationID), Comment: r.Comment,
	}, now)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(retirement{RequestID: r.RequestID, User: r.Actor, Force: r.Force, Purge: r.Purge,
		AuditID: id, Holds: holds})
	if err != nil {
		return fmt.Errorf("serialize retirement: %w", err)
	}
	if err := q.SetRetiring(ctx, dbsqlc.SetRetiringParams{MachineID: m.MachineID, Retiring: raw}); err != nil {
		return fmt.Errorf("note the retirement: %w", err)
	}
	return machinestore.SetCondition(ctx, q, m.MachineID, operation.ConditionChange{
		Type: fleet.RetiredFlag, Status: true, Reason: "NodeState", Message: "the node is retired when operation " +
			pgtx.StrVal(m.CurrentOperationID) + " has ended",
	}, now)
}

// retireNow carries out a retirement whose operation has just ended, however it ended.
func (s *Store) retireNow(ctx context.Context, q *dbsqlc.Queries, machineID string, now time.Time) error {
	m, err := machinestore.LockMachine(ctx, q, machineID)
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
	if m, err = workflowstate.CancelOpenWorkflow(ctx, q, m, r.User, now); err != nil {
		return err
	}
	// Whether a decommission may be left out was judged when the retirement was asked for.
	v := nodestate.Move{To: node.Retired, By: node.Admin, User: r.User, AuditID: &r.AuditID, Purge: true}
	start := r.request(machineID).start()
	start.Judged = true
	if r.Holds {
		start.Harm = kind.Destroys
	}
	_, err = s.record(ctx, q, m, start, v, now)
	return err
}

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
)

// OwnerlessNode is a node in a state that stands for work, while no operation is active on it and no workflow holds it.
type OwnerlessNode struct {
	MachineID string
	State     node.State
	Since     time.Time
}

// OwnerlessNodes reads the nodes that have been without an owner since before a time. There should be none.
func (s *Store) OwnerlessNodes(ctx context.Context, before time.Time) ([]OwnerlessNode, error) {
	rows, err := s.db.Q.OwnerlessNodes(ctx, dbsqlc.OwnerlessNodesParams{ChangedBefore: before, PageSize: 1000})
	if err != nil {
		return nil, fmt.Errorf("look for nodes without an owner: %w", err)
	}
	out := make([]OwnerlessNode, 0, len(rows))
	for _, r := range rows {
		out = append(out, OwnerlessNode{r.MachineID, node.Parse(r.NodeState), r.NodeStateChangedAt})
	}
	return out, nil
}

// RepairedNode is a node that was taken out of a state of work without a worker. OperationID records the move.
type RepairedNode struct{ MachineID, From, To, OperationID string }

// RepairOwnerless takes nodes that have been without an owner since before a time to a state that needs none. Each move
// is an operation of type NODE_TRANSITION that has ended with it. Its request id is of that state, so that any number
// of controllers make one.
func (s *Store) RepairOwnerless(ctx context.Context, before, now time.Time) ([]RepairedNode, error) {
	found, err := s.OwnerlessNodes(ctx, before)
	if err != nil {
		return nil, err
	}
	var out []RepairedNode
	for _, n := range found {
		r, err := s.repairNode(ctx, n, now)
		if err != nil {
			return out, fmt.Errorf("repair node %s: %w", n.MachineID, err)
		}
		if r != nil {
			out = append(out, *r)
		}
	}
	return out, nil
}

func (s *Store) repairNode(ctx context.Context, n OwnerlessNode, now time.Time) (out *RepairedNode, err error) {
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		out = nil
		m, err := machinestore.LockMachine(ctx, q, n.MachineID)
		if err != nil || m.NodeState != node.Name(n.State) || !m.NodeStateChangedAt.Equal(n.Since) ||
			m.CurrentOperationID != nil {
			return err // another caller was faster
		}
		if _, err := q.OpenWorkflowOf(ctx, n.MachineID); !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		to, _ := node.Ownerless(n.State)
		r := TransitionRequest{
			MachineID: n.MachineID, RequestID: fmt.Sprintf("work-lost/%s/%d", m.NodeState, n.Since.UnixMicro()), To: to,
			Actor: "system",
		}
		v := nodestate.Move{To: to, By: node.System, Metadata: map[string]string{"reason": "work_lost"}}
		start := r.start()
		start.Type, start.PlanID = fleet.NodeTransition, ""
		op, err := s.record(ctx, q, m, start, v, now)
		if err != nil {
			return err
		}
		out = &RepairedNode{n.MachineID, m.NodeState, node.Name(to), op.GetOperationId()}
		return nil
	})
	return out, err
}

// RecomputeConditions sets the conditions that stand for a node state by the state, and returns the number of machines
// with a change: Retired follows the states that are out of the inventory, quarantine needs intervention.
func (s *Store) RecomputeConditions(ctx context.Context, now time.Time) (int, error) {
	ids, err := s.db.Q.StaleConditions(ctx)
	if err != nil {
		return 0, fmt.Errorf("compare conditions: %w", err)
	}
	for i, id := range ids {
		if err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error { return recompute(ctx, q, id, now) }); err != nil {
			return i, fmt.Errorf("recompute conditions of %s: %w", id, err)
		}
	}
	return len(ids), nil
}

func recompute(ctx context.Context, q *dbsqlc.Queries, machineID string, now time.Time) error {
	m, err := machinestore.LockMachine(ctx, q, machineID)
	if err != nil {
		return err
	}
	conds, err := q.ConditionsOf(ctx, []string{machineID})
	if err != nil {
		return fmt.Errorf("read conditions: %w", err)
	}
	state, facts := node.Parse(m.NodeState), convert.FleetFacts(m, conds)
	var changes []operation.ConditionChange
	if gone := node.Gone(state) || m.Retiring != nil; gone != facts.Conditions[fleet.RetiredFlag] && !setByAdmin(conds) {
		changes = append(changes, operation.ConditionChange{Type: fleet.RetiredFlag, Status: gone, Reason: "NodeState",
			Message: "the node is " + m.NodeState})
	}
	if state == node.Quarantined && !facts.Conditions[fleet.NeedsIntervention] {
		if err := machinestore.RaiseCause(ctx, q, machineID, "",
			machinestore.QuarantineCause("MACHINE_QUARANTINED", "the node is quarantined"), now); err != nil {
			return err
		}
	}
	for _, c := range changes {
		if err := machinestore.SetCondition(ctx, q, machineID, c, now); err != nil {
			return err
		}
	}
	return nil
}

// setByAdmin reports whether an admin has set or cleared the condition Retired, whatever the node's state.
func setByAdmin(conds []dbsqlc.MachineCondition) bool {
	for _, c := range conds {
		if c.Type == string(fleet.RetiredFlag) {
			return c.Reason == "SetByAdmin"
		}
	}
	return false
}

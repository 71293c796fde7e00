package node

import (
	"context"
	"fmt"
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
	"github.com/ingot-metal/ingot/internal/ids"
)

// MayMoves lists where an admin may move the node now, each by a call that would succeed: one with a comment, and with
// force where that is allowed. A purge is left out.
func (s *Store) MayMoves(ctx context.Context, machineID string) (out []node.State, err error) {
	var cancels bool
	err = s.workflows.Probe(ctx, func(q *dbsqlc.Queries) error {
		m, err := q.GetMachine(ctx, machineID)
		if err != nil {
			return fmt.Errorf("read machine: %w", err)
		}
		for _, to := range node.Targets(node.Parse(m.NodeState), node.Admin) {
			refused, err := workflowstore.RefusalIn(s.MayMove(ctx, q, m,
				TransitionRequest{MachineID: machineID, To: to, Force: true, Comment: "given"}))
			if err != nil {
				return err
			}
			if refused == nil {
				out = append(out, to)
			}
		}
		cancels = m.CurrentOperationID != nil && node.CancelledIntoService(node.Parse(m.NodeState)) &&
			slices.Contains(out, node.Retired)
		return nil
	})
	if err != nil || !cancels {
		return out, err
	}
	refused, err := workflowstore.RefusalIn(s.mayRetireCancelled(ctx, machineID))
	if refused != nil {
		out = slices.DeleteFunc(out, func(to node.State) bool { return to == node.Retired })
	}
	return out, err
}

// mayRetireCancelled returns why a node would not be retired after its operation was cancelled. Where the cancel leaves
// the node depends on how far the work has come, so that both are done, and taken back.
func (s *Store) mayRetireCancelled(ctx context.Context, machineID string) error {
	_, _, err := s.TransitionNode(ctx, TransitionRequest{
		MachineID: machineID, RequestID: ids.New("offer"), To: node.Retired, Force: true, Comment: "given", DryRun: true,
	}, s.db.Now())
	return err
}

// MayMove returns why an admin's move would be refused.
func (s *Store) MayMove(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r TransitionRequest) error {
	v := nodestate.Move{To: r.To, By: node.Admin, Force: r.Force, Comment: r.Comment}
	if r.To == node.Retired {
		v.Ended = pgtx.StrVal(m.CurrentOperationID) // it is cancelled first
	}
	f, err := v.FactsWithPlan(ctx, q, m)
	if err != nil {
		return err
	}
	course, err := callOf(m, r, f).Decide()
	switch {
	case err != nil || course != node.Worked:
		return err
	case r.To == node.Enrolling:
		_, err := s.workflows.Fits(ctx, q, m, r.onboarding())
		return err
	}
	w, err := node.MayStart(m.MachineID, r.To)
	if err != nil {
		return err
	}
	start, err := r.work(ctx, q, m, w)
	if err != nil {
		return err
	}
	_, err = s.operations.Fits(ctx, q, m, start)
	return err
}

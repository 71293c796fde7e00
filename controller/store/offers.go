package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/node"
	"github.com/ingot-metal/ingot/controller/plan"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/workflow"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
)

// What is offered to an operator is decided here, by the checks that the calls themselves make: an action that a page names and
// the call refuses would send people in circles.

// errProbed takes a probe's transaction back.
var errProbed = errors.New("nothing is to be stored")

// probe runs fn in a transaction that is always taken back: the checks of a call may lock rows, and mark a plan as used.
func (s *Store) probe(ctx context.Context, fn func(*dbsqlc.Queries) error) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if err := fn(s.q.WithTx(tx)); err != nil {
			return err
		}
		return errProbed
	})
	if errors.Is(err, errProbed) {
		return nil
	}
	return err
}

// refusalIn separates a refusal from a fault that passes. It returns nil, nil for no error.
func refusalIn(err error) (*fleet.Refusal, error) {
	var f *failure.Error
	if errors.As(err, &f) && refusesMachine(f) {
		return &fleet.Refusal{Reason: f.Reason, Message: f.Message}, nil
	}
	return nil, err
}

// mayMoves lists where an admin may move the node now, each by a call that would succeed: one that says why, and forces what may be
// forced. A purge is left out.
func (s *Store) mayMoves(ctx context.Context, machineID string) (out []node.State, err error) {
	var cancels bool
	err = s.probe(ctx, func(q *dbsqlc.Queries) error {
		m, err := q.GetMachine(ctx, machineID)
		if err != nil {
			return fmt.Errorf("read machine: %w", err)
		}
		for _, to := range node.Targets(node.Parse(m.NodeState), node.Admin) {
			refused, err := refusalIn(s.mayMove(ctx, q, m, TransitionRequest{MachineID: machineID, To: to, Force: true, Comment: "given"}))
			if err != nil {
				return err
			}
			if refused == nil {
				out = append(out, to)
			}
		}
		cancels = m.CurrentOperationID != nil && slices.Contains(cancelledIntoService, node.Parse(m.NodeState)) && slices.Contains(out, node.Retired)
		return nil
	})
	if err != nil || !cancels {
		return out, err
	}
	refused, err := refusalIn(s.mayRetireCancelled(ctx, machineID))
	if refused != nil {
		out = slices.DeleteFunc(out, func(to node.State) bool { return to == node.Retired })
	}
	return out, err
}

// cancelledIntoService are states of work from which a cancel may put a node back into service. There, it is not retired without a
// decommission.
var cancelledIntoService = []node.State{node.Migrating, node.Deprovisioning, node.Draining}

// mayRetireCancelled says why a node would not be retired after its operation was cancelled. Where the cancel leaves the node depends
// on how far the work has come, so that both are done, and taken back.
func (s *Store) mayRetireCancelled(ctx context.Context, machineID string) error {
	_, _, err := s.TransitionNode(ctx, TransitionRequest{
		MachineID: machineID, RequestID: ids.New("offer"), To: node.Retired, Force: true, Comment: "given", DryRun: true,
	}, s.now())
	return err
}

// mayMove says why an admin's move would be refused.
func (s *Store) mayMove(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r TransitionRequest) error {
	v := move{to: r.To, by: node.Admin, force: r.Force, comment: r.Comment}
	if r.To == node.Retired {
		v.ended = strVal(m.CurrentOperationID) // it is cancelled first
	}
	f, err := v.factsWithPlan(ctx, q, m)
	if err != nil {
		return err
	}
	row, refusal := node.Check(node.Parse(m.NodeState), r.To, node.Admin, f)
	switch {
	case refusal != nil:
		return nodeRefused(m, refusal)
	case m.CurrentOperationID != nil && r.To != node.Retired && r.To != node.Quarantined:
		return nodeBusy(m)
	case !row.Work:
		return nil
	case r.To == node.Enrolling:
		return s.mayBegin(ctx, q, m, r.onboarding())
	}
	w, ok := nodeWork[r.To]
	if !ok {
		return failure.Precondition("NODE_GUARD_FAILED", "%s", noWork(r.To))
	}
	start := r.start()
	start.Type, start.PlanID, start.own = w.kind, w.plan, true
	_, _, err = s.fits(ctx, q, m, start)
	return err
}

// mayBegin says why a workflow would not begin.
func (s *Store) mayBegin(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r WorkflowStart) error {
	if err := noOpenWorkflow(ctx, q, m.MachineID); err != nil {
		return err
	}
	if x := workflow.Startable(r.Kind, r.Mode, fleet.NodeState(m.NodeState)); x != nil {
		return nodeRefused(m, x)
	}
	stages, traits, err := workflowPlan(ctx, q, m, r)
	if err != nil {
		return err
	}
	if workflow.Destructive(r.Kind, r.Mode) {
		if err := noDrift(ctx, q, m); err != nil {
			return err
		}
	}
	if r.EnterMaintenance {
		m.Phase = string(fleet.Maintenance) // by an operation that is opened first
	}
	w := workflow.Workflow{Kind: r.Kind, Mode: r.Mode, Plan: workflow.Names(stages), Stage: stages[0].Name, Attempts: 1}
	_, _, err = s.attemptFits(ctx, q, m, attempt{w: &w, traits: traits, stages: stages, request: r.request()})
	return err
}

// offeredActions are the actions on a workflow that would be taken now, and why the others that its state allows would not.
func (s *Store) offeredActions(ctx context.Context, w workflow.Workflow, params map[string]string, now time.Time) (workflow.Offer, error) {
	o := workflow.Offer{Refused: map[workflow.Action]*fleet.Refusal{}}
	stalled, _, err := stalledAttempt(ctx, s.q, w, now)
	if err != nil {
		return o, err
	}
	o.Stalled = stalled
	for _, a := range workflow.Legal(w.State, stalled) {
		refused, err := s.mayAct(ctx, w, a, params, now)
		if err != nil {
			return o, err
		}
		if refused != nil {
			o.Refused[a] = refused
			continue
		}
		o.Legal = append(o.Legal, a)
	}
	return o, nil
}

// mayAct says why an action on a workflow would be refused. The node is put back first, as the action would do it.
func (s *Store) mayAct(ctx context.Context, w workflow.Workflow, a workflow.Action, params map[string]string, now time.Time) (refused *fleet.Refusal, err error) {
	if a == workflow.Cancel || a == workflow.MarkManual {
		return nil, nil // they end work, and begin none
	}
	err = s.probe(ctx, func(q *dbsqlc.Queries) error {
		m, err := q.GetMachine(ctx, w.MachineID)
		if err != nil {
			return fmt.Errorf("read machine: %w", err)
		}
		w.Provider = m.Provider
		f, err := actFacts(ctx, q, m, w, now)
		if err != nil {
			return err
		}
		e, r := workflow.Act(w, a, f)
		if refused = r; r != nil || !e.Attempt {
			return nil
		}
		if w.State == workflow.Cancelled {
			if refused, err = refusalIn(noOpenWorkflow(ctx, q, m.MachineID)); refused != nil || err != nil {
				return err
			}
		}
		next := e.Workflow
		at, m, err := s.attemptOf(ctx, q, &next, e, StartRequest{
			MachineID: m.MachineID, Type: operationTypes[w.Kind], Inputs: plan.Inputs{ImageRef: params["image_ref"]},
		}, now)
		if err != nil {
			return err
		}
		_, _, err = s.attemptFits(ctx, q, m, at)
		refused, err = refusalIn(err)
		return err
	})
	return refused, err
}

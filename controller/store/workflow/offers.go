package workflow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/internal/failure"
)

// The checks of the calls themselves decide the offers to an operator here. An action that a page offers and the call
// refuses would mislead people.

// errProbed takes a probe's transaction back.
var errProbed = errors.New("nothing is to be stored")

// Probe runs fn in a transaction that is always taken back: the checks of a call may lock rows, and mark a plan as
// used.
func (s *Store) Probe(ctx context.Context, fn func(*dbsqlc.Queries) error) error {
	err := pgx.BeginFunc(ctx, s.db.Pool(), func(tx pgx.Tx) error {
		if err := fn(s.db.Q.WithTx(tx)); err != nil {
			return err
		}
		return errProbed
	})
	if errors.Is(err, errProbed) {
		return nil
	}
	return err
}

// RefusalIn separates a refusal from a fault that passes. It returns nil, nil for no error.
func RefusalIn(err error) (*fleet.Refusal, error) {
	var f *failure.Error
	if errors.As(err, &f) && RefusesMachine(f) {
		return &fleet.Refusal{Reason: f.Reason, Message: f.Message}, nil
	}
	return nil, err
}

// OfferedActions are the actions on a workflow that would be taken now, and why the others that its state allows would
// not.
func (s *Store) OfferedActions(
	ctx context.Context, w workflow.Workflow, params map[string]string, now time.Time,
) (workflow.Offer, error) {
	o := workflow.Offer{Refused: map[workflow.Action]*fleet.Refusal{}}
	stalled, _, err := stalledAttempt(ctx, s.db.Q, w, now)
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

// mayAct returns why an action on a workflow would be refused. The node is put back first, as the action would do it.
func (s *Store) mayAct(
	ctx context.Context, w workflow.Workflow, a workflow.Action, params map[string]string, now time.Time,
) (refused *fleet.Refusal, err error) {
	if a == workflow.Cancel || a == workflow.MarkManual {
		return nil, nil // they end work, and begin none
	}
	err = s.Probe(ctx, func(q *dbsqlc.Queries) error {
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
		refused, err = RefusalIn(s.nextFits(ctx, q, &next{
			from: w.State, effect: e, request: operationstore.StartRequest{
				MachineID: m.MachineID, Type: operationTypes[w.Kind], Inputs: kind.Inputs{ImageRef: params["image_ref"]},
			},
		}, now))
		return err
	})
	return refused, err
}

// RefusesMachine reports whether the work cannot be done on the machine as it is. Anything else is a fault that passes.
func RefusesMachine(f *failure.Error) bool {
	switch f.Kind {
	case failure.KindPrecondition, failure.KindInvalid, failure.KindNotFound, failure.KindAlreadyExists,
		failure.KindUnimplemented:
		return true
	default:
		return false
	}
}

package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/rollout"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
)

// StartRolloutMachine makes the operation of a machine that is claimed, or lets go of the machine where the rollout
// does not run any more. The operation and the machine's row change together, and the request is the rollout's: a
// repeat finds the same operation. It returns nil where another caller has done it.
func (s *Store) StartRolloutMachine(
	ctx context.Context, rolloutID, machineID string, now time.Time,
) (*baremetalv1.Operation, error) {
	var op *baremetalv1.Operation
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		op = nil
		c, claimed, err := holdClaim(ctx, q, rolloutID, machineID)
		if err != nil || !claimed {
			return err
		}
		if c.State != string(rollout.Running) && !rollout.Finishes(c.Type, c.left) {
			return letGo(ctx, q, c.Rollout, machineID, now)
		}
		if op, err = s.startFor(ctx, q, c, machineID, now); err != nil {
			return err
		}
		opID := op.GetOperationId()
		err = moveMachine(ctx, q, dbsqlc.MoveRolloutMachineParams{RolloutID: rolloutID, MachineID: machineID,
			State: "RUNNING", OperationID: &opID})
		if err != nil {
			return err
		}
		return fpRolloutStarts.HitCtx(ctx)
	})
	var f *failure.Error
	if errors.As(err, &f) && (workflowstore.RefusesMachine(f) || f.Reason == rollout.ReasonOutside) {
		return nil, s.refuseRolloutMachine(ctx, rolloutID, machineID, f, now)
	}
	if err != nil {
		return nil, fmt.Errorf("start %s of rollout %s: %w", machineID, rolloutID, err)
	}
	return op, fpRolloutStarted.HitCtx(ctx)
}

// claim is a machine's turn in a rollout.
type claim struct {
	dbsqlc.Rollout
	// left counts the operations that follow the one that is due.
	left int
}

// untouched reports whether nothing was done on the machine yet.
func (c claim) untouched() bool { return c.left == len(rollout.Stages(c.Type))-1 }

// holdClaim holds the rollout's state, and locks the machine's row while it is claimed.
func holdClaim(
	ctx context.Context, q *dbsqlc.Queries, rolloutID, machineID string,
) (c claim, claimed bool, err error) {
	if c.Rollout, err = q.HoldRollout(ctx, rolloutID); err != nil {
		return c, false, fmt.Errorf("hold rollout: %w", err)
	}
	left, err := q.LockStartingMachine(ctx, dbsqlc.LockStartingMachineParams{RolloutID: rolloutID, MachineID: machineID})
	if errors.Is(err, pgx.ErrNoRows) {
		return c, false, nil
	}
	if err != nil {
		return c, false, fmt.Errorf("lock machine of the rollout: %w", err)
	}
	c.left = int(left)
	return c, true, nil
}

// letGo releases a claimed machine: to wait for the rollout to go on, or for good.
func letGo(ctx context.Context, q *dbsqlc.Queries, row dbsqlc.Rollout, machineID string, now time.Time) error {
	p := dbsqlc.MoveRolloutMachineParams{RolloutID: row.RolloutID, MachineID: machineID, State: "PENDING"}
	if row.State != string(rollout.Paused) {
		p.State, p.Reason, p.FinishedAt = "CANCELED", "ROLLOUT_STOPPED", &now
	}
	return moveMachine(ctx, q, p)
}

func moveMachine(ctx context.Context, q *dbsqlc.Queries, p dbsqlc.MoveRolloutMachineParams) error {
	if err := q.MoveRolloutMachine(ctx, p); err != nil {
		return fmt.Errorf("write machine of the rollout: %w", err)
	}
	return nil
}

func (s *Store) startFor(
	ctx context.Context, q *dbsqlc.Queries, c claim, machineID string, now time.Time,
) (*baremetalv1.Operation, error) {
	spec := &baremetalv1.RolloutSpec{}
	if err := proto.Unmarshal(c.Spec, spec); err != nil {
		return nil, fmt.Errorf("parse stored spec: %w", err)
	}
	m, err := machinestore.LockMachine(ctx, q, machineID)
	if err != nil {
		return nil, err
	}
	if !rollout.Finishes(c.Type, c.left) { // what was begun is brought back into service
		if err := s.mayWork(ctx, q, c.Rollout, m, now); err != nil {
			return nil, err
		}
	}
	if w, ok, err := WorkflowOf(spec); ok {
		if err != nil {
			return nil, err
		}
		return s.beginWorkflow(ctx, q, c, m, w, now)
	}
	r, err := rolloutWork(c, spec, machineID)
	if err != nil {
		return nil, err
	}
	if op, err := s.operations.Replay(ctx, q, r); op != nil || err != nil {
		return op, err
	}
	if err := s.stillFits(ctx, q, c, m, spec); err != nil {
		return nil, err
	}
	return s.operations.Create(ctx, q, m, r, now)
}

// stillFits checks all operations of a machine before the first of several begins: the catalogue and the machine may
// have changed since the preview, and a machine whose installation is refused must not be left in maintenance.
func (s *Store) stillFits(
	ctx context.Context, q *dbsqlc.Queries, c claim, m dbsqlc.Machine, spec *baremetalv1.RolloutSpec,
) error {
	if c.left == 0 || !c.untouched() {
		return nil
	}
	install := c
	install.left-- // the installation follows, and the parameters are its own
	work, err := rolloutWork(install, spec, m.MachineID)
	if err != nil {
		return err
	}
	_, err = s.fits(ctx, q, m, spec, c.Type, work)
	return err
}

// rolloutWork is the request for the work on one machine that is due.
func rolloutWork(c claim, spec *baremetalv1.RolloutSpec, machineID string) (operationstore.StartRequest, error) {
	t, request := rollout.StageAt(c.Type, c.RolloutID, c.left)
	r := operationstore.StartRequest{
		MachineID: machineID, RequestID: request, Type: t, PlanID: c.PlanID,
		Params: map[string]string{rollout.Param: c.RolloutID}, Actor: c.CreatedBy, Judged: true,
	}
	params := spec.GetParams()
	switch several := len(rollout.Stages(c.Type)) > 1; {
	case several && t == fleet.TestHardware:
		params = validate.TestParams(spec.GetTest())
	case several && t != fleet.Reimage:
		return r, nil // the parameters are those of the installation
	}
	for k, v := range params {
		r.Params[k] = v
	}
	if spec.GetSeedId() != "" && t != fleet.TestHardware {
		r.Params[validate.ParamSeed] = spec.GetSeedId()
	}
	var err error
	r.Inputs, err = validate.Params(r.Type, params, func(k string) string { return "params[" + k + "]" })
	return r, err
}

// refuseRolloutMachine skips a machine that cannot be worked on any more; one on which work was done has failed. In a
// frozen fleet it keeps its turn.
func (s *Store) refuseRolloutMachine(
	ctx context.Context, rolloutID, machineID string, f *failure.Error, now time.Time,
) error {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		c, claimed, err := holdClaim(ctx, q, rolloutID, machineID)
		if err != nil || !claimed {
			return err
		}
		p := dbsqlc.MoveRolloutMachineParams{
			RolloutID: rolloutID, MachineID: machineID, State: "SKIPPED", Reason: f.Reason, Message: f.Message, FinishedAt: &now,
		}
		if !c.untouched() {
			p.State = "FAILED"
		}
		if f.Reason == "FLEET_FROZEN" {
			p = dbsqlc.MoveRolloutMachineParams{RolloutID: rolloutID, MachineID: machineID, State: "PENDING"}
		}
		return moveMachine(ctx, q, p)
	})
	if err != nil {
		return fmt.Errorf("skip %s of rollout %s: %w", machineID, rolloutID, err)
	}
	return nil
}

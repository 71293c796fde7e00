package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/store/workflowstate"
	"github.com/ingot-metal/ingot/internal/ids"
)

// Delete makes a tombstone of an idle machine. Deleting a deleted one changes nothing. purge leaves out the
// decommission of a machine that holds a system: that is retired first, under budgets and approval policies.
func (s *Store) Delete(
	ctx context.Context, id, actor string, purge bool, now time.Time, opts ...pgtx.WriteOption,
) (*baremetalv1.Machine, error) {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		m, err := q.LockMachine(ctx, id)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return convert.MachineNotFound(id)
		case err != nil:
			return fmt.Errorf("lock machine: %w", err)
		case m.DeletedAt != nil:
			return nil
		}
		if err := node.MayDelete(pgtx.StrVal(m.CurrentOperationID), pgtx.StrVal(m.UnresolvedCommandID)); err != nil {
			return err
		}
		if err := pgtx.ConditionsOf(opts).Check("machine "+id, machinestore.MachineExists,
			pgtx.Stored{Exists: true, Version: m.Version}); err != nil {
			return err
		}
		holds, err := nodestate.Holds(ctx, q, m)
		if err != nil {
			return err
		}
		if holds && purge {
			err = s.purge(ctx, q, m, actor, now)
		}
		if err != nil {
			return err
		}
		v := nodestate.Move{To: node.Deleted, By: node.Admin, User: actor, Deleting: true}
		if err := nodestate.MoveTo(ctx, q, id, v, now); err != nil {
			return err
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "DELETE", Target: id, Data: purged(purge)}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("delete machine: %w", err)
	}
	return s.machines.Machine(ctx, id, "")
}

// purge retires a machine that holds a system, where an admin leaves out its decommission.
func (s *Store) purge(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, actor string, now time.Time,
) (err error) {
	if m, err = workflowstate.CancelOpenWorkflow(ctx, q, m, actor, now); err != nil {
		return err
	}
	r := TransitionRequest{
		MachineID: m.MachineID,
		RequestID: ids.New("delete"),
		To:        node.Retired,
		Purge:     true,
		Actor:     actor,
	}
	_, _, err = s.transition(ctx, q, m, r, now)
	return err
}

func purged(purge bool) map[string]string {
	if !purge {
		return nil
	}
	return map[string]string{"purge": "true"}
}

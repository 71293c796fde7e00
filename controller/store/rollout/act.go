package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/domain/rollout"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
)

// RolloutAct is what a person does to a rollout.
type RolloutAct struct {
	RolloutID string
	Action    rollout.Action
	// Digest is what an approval is for.
	Digest string
	// CancelOperations asks operations under way to stop as well; only for a cancel.
	CancelOperations bool
	Actor, Comment   string
	// By is the caller.
	By access.Caller
}

var rolloutVerbs = map[rollout.Action]string{
	rollout.Approve: "APPROVE_ROLLOUT", rollout.Pause: "PAUSE_ROLLOUT", rollout.Resume: "RESUME_ROLLOUT",
	rollout.Cancel: "CANCEL_ROLLOUT",
}

// ActOnRollout takes the action. A repeat changes nothing. The remaining work is in the move.
func (s *Store) ActOnRollout(
	ctx context.Context, a RolloutAct, now time.Time,
) (*baremetalv1.Rollout, *RolloutMove, error) {
	var move *RolloutMove
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		move = nil
		row, err := q.LockRollout(ctx, a.RolloutID)
		if errors.Is(err, pgx.ErrNoRows) {
			return rolloutNotFound(a.RolloutID)
		}
		if err != nil {
			return fmt.Errorf("lock rollout: %w", err)
		}
		before := row
		changes, err := actOn(ctx, q, &row, a, now)
		if err != nil || !changes {
			return err
		}
		err = history.Audit(ctx, q, history.AuditEntry{
			Actor: a.Actor, Verb: rolloutVerbs[a.Action], Target: a.RolloutID, Comment: a.Comment,
			Data: map[string]string{"digest": row.Digest},
		}, now)
		if err != nil {
			return err
		}
		move, err = advanceRollout(ctx, q, before, row, now)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("%s rollout: %w", a.Action, err)
	}
	out, err := s.GetRollout(ctx, a.RolloutID)
	return out, move, err
}

// actOn changes the row, and reports whether there was anything to change.
func actOn(ctx context.Context, q *dbsqlc.Queries, row *dbsqlc.Rollout, a RolloutAct, now time.Time) (bool, error) {
	if a.Action == rollout.Approve {
		approval := rollout.Approval{Digest: row.Digest, Asked: a.Digest, CreatedBy: row.CreatedBy,
			CreatedByIdentity: row.CreatedByIdentity, Actor: a.Actor, Identity: a.By.Identity()}
		if err := approval.Refuse(); err != nil {
			return false, err
		}
	}
	to, err := rollout.Take(row.RolloutID, rollout.State(row.State), a.Action)
	if err != nil {
		return false, err
	}
	harder := a.CancelOperations && !row.CancelOperations && to == rollout.Stopping
	if string(to) == row.State && !harder {
		return false, nil
	}
	wasStopping := row.State == string(rollout.Stopping)
	row.State = string(to)
	switch a.Action {
	case rollout.Approve:
		row.ApprovedBy, row.ApprovedAt = a.Actor, &now
	case rollout.Pause:
		row.Cause = string(rollout.Operator)
	case rollout.Cancel:
		row.CancelOperations = row.CancelOperations || a.CancelOperations
		if !wasStopping {
			row.Cause = string(rollout.Operator)
		}
	case rollout.Resume:
		return true, acknowledge(ctx, q, row)
	}
	return true, nil
}

// acknowledge records the failures so far as known.
func acknowledge(ctx context.Context, q *dbsqlc.Queries, row *dbsqlc.Rollout) error {
	if _, err := q.SettleRolloutMachines(ctx, row.RolloutID); err != nil {
		return fmt.Errorf("collect results: %w", err)
	}
	counts, err := readTallies(ctx, q, []string{row.RolloutID})
	if err != nil {
		return err
	}
	row.Cause = ""
	row.Acked, row.AckedWave = int32(counts[row.RolloutID].total().Failed), int32(counts[row.RolloutID][row.Wave].Failed)
	return nil
}

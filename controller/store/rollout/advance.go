package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/rollout"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// RolloutMove is what a look at a rollout has changed.
type RolloutMove struct {
	RolloutID string
	State     rollout.State
	Wave      int
	Message   string
	// Moved is set when state or wave have changed.
	Moved bool
	// Changed is set when a client sees a difference.
	Changed bool
	// Starting are machines that are claimed and have no operation yet, of this look or of one that was cut off.
	Starting []string
	// Cancel are the operations to cancel.
	Cancel []string
}

// DueRollouts are those whose time to be looked at has come.
func (s *Store) DueRollouts(ctx context.Context, now time.Time) ([]string, error) {
	due, err := s.db.Q.DueRollouts(ctx, &now)
	if err != nil {
		return nil, fmt.Errorf("look for due rollouts: %w", err)
	}
	return due, nil
}

// AdvanceRollout looks at a rollout: it collects operations that have ended, decides what comes next, and claims the
// machines to begin on. nil: nothing is due, or another controller is at it.
func (s *Store) AdvanceRollout(ctx context.Context, id string, now time.Time) (*RolloutMove, error) {
	var out *RolloutMove
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		out = nil
		row, err := q.LockDueRollout(ctx, dbsqlc.LockDueRolloutParams{RolloutID: id, Now: &now})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("lock rollout: %w", err)
		}
		out, err = advanceRollout(ctx, q, row, row, now)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("advance rollout %s: %w", id, err)
	}
	return out, fpRolloutClaimed.HitCtx(ctx)
}

// advanceRollout decides on a rollout that is locked. before is as it is stored; row may hold what a person has
// changed.
func advanceRollout(
	ctx context.Context, q *dbsqlc.Queries, before, row dbsqlc.Rollout, now time.Time,
) (*RolloutMove, error) {
	settled, err := q.SettleRolloutMachines(ctx, row.RolloutID)
	if err != nil {
		return nil, fmt.Errorf("collect results: %w", err)
	}
	spec, w, err := rolloutWorld(ctx, q, row)
	if err != nil {
		return nil, err
	}
	d := rollout.Decide(spec, w, now)
	if err := claimOrCancel(ctx, q, row.RolloutID, d, now); err != nil {
		return nil, err
	}
	take(&row, d, now)
	out := &RolloutMove{
		RolloutID: row.RolloutID, State: d.State, Wave: d.Wave, Message: d.Message,
		Moved: before.State != row.State || before.Wave != row.Wave,
	}
	out.Changed = out.Moved || settled > 0 || len(d.Start) > 0 || d.CancelPending || before.WaitReason != row.WaitReason ||
		before.Message != row.Message || before.ApprovedBy != row.ApprovedBy ||
		before.CancelOperations != row.CancelOperations
	if err := writeRollout(ctx, q, before, row, out.Changed, now); err != nil {
		return nil, err
	}
	return out, out.rest(ctx, q, row)
}

// rest reads the work that is left once this is committed.
func (m *RolloutMove) rest(ctx context.Context, q *dbsqlc.Queries, row dbsqlc.Rollout) error {
	var err error
	if m.Starting, err = q.StartingMachines(ctx, row.RolloutID); err != nil {
		return fmt.Errorf("read claimed machines: %w", err)
	}
	if m.State != rollout.Stopping {
		return nil
	}
	m.Cancel, err = q.OperationsOfRollout(ctx, dbsqlc.OperationsOfRolloutParams{RolloutID: row.RolloutID,
		Unbegun: !row.CancelOperations})
	if err != nil {
		return fmt.Errorf("read operations of the rollout: %w", err)
	}
	return nil
}

func rolloutWorld(ctx context.Context, q *dbsqlc.Queries, row dbsqlc.Rollout) (rollout.Spec, rollout.World, error) {
	spec := &baremetalv1.RolloutSpec{}
	w := rollout.World{
		State: rollout.State(row.State), Cause: rollout.Cause(row.Cause), Wave: int(row.Wave), Waves: int(row.Waves),
		SoakUntil: pgtx.TimeVal(row.SoakUntil), Acked: int(row.Acked), AckedWave: int(row.AckedWave),
		InDomain: map[string]int{},
	}
	if err := proto.Unmarshal(row.Spec, spec); err != nil {
		return rollout.Spec{}, w, fmt.Errorf("parse stored spec: %w", err)
	}
	counts, err := readTallies(ctx, q, []string{row.RolloutID})
	if err != nil {
		return rollout.Spec{}, w, err
	}
	w.Total, w.InWave = counts[row.RolloutID].total(), counts[row.RolloutID][row.Wave]
	w.Refused = counts[row.RolloutID][0].Skipped
	if w.Wave == 0 {
		w.InWave = rollout.Tally{} // those that were refused from the beginning are no wave
	}
	domains, err := q.RunningByDomain(ctx, row.RolloutID)
	if err != nil {
		return rollout.Spec{}, w, fmt.Errorf("count machines under way: %w", err)
	}
	for _, d := range domains {
		w.InDomain[d.Domain] = int(d.Machines)
		w.HeldByBudget += int(d.Held)
	}
	if w.State != rollout.Running || w.InWave.Pending == 0 {
		return rolloutSpec(spec).Bounded(int(row.DefaultInFlight), int(row.DefaultPerRack)), w, nil
	}
	pending, err := q.PendingOfWave(ctx, dbsqlc.PendingOfWaveParams{RolloutID: row.RolloutID, Wave: row.Wave})
	if err != nil {
		return rollout.Spec{}, w, fmt.Errorf("read machines to come: %w", err)
	}
	for _, m := range pending {
		w.Pending = append(w.Pending, rollout.Machine{ID: m.MachineID, Domain: m.Domain})
	}
	frozen, err := q.FrozenSince(ctx)
	if err != nil {
		return rollout.Spec{}, w, fmt.Errorf("read freeze: %w", err)
	}
	w.FleetFrozen = frozen != nil
	return rolloutSpec(spec).Bounded(int(row.DefaultInFlight), int(row.DefaultPerRack)), w, nil
}

func claimOrCancel(ctx context.Context, q *dbsqlc.Queries, id string, d rollout.Decision, now time.Time) error {
	if len(d.Start) > 0 {
		if err := q.ClaimRolloutMachines(ctx, dbsqlc.ClaimRolloutMachinesParams{RolloutID: id, MachineIds: d.Start,
			Now: &now}); err != nil {
			return fmt.Errorf("claim machines: %w", err)
		}
	}
	if d.CancelPending {
		if _, err := q.CancelPendingMachines(ctx, dbsqlc.CancelPendingMachinesParams{RolloutID: id, Now: &now}); err != nil {
			return fmt.Errorf("cancel machines to come: %w", err)
		}
	}
	return nil
}

// take puts a decision into the row.
func take(row *dbsqlc.Rollout, d rollout.Decision, now time.Time) {
	row.State, row.Cause, row.Wave, row.WaitReason, row.Message = string(d.State), string(d.Cause), int32(d.Wave), d.Wait,
		d.Message
	row.Acked, row.AckedWave, row.SoakUntil, row.WakeAt = int32(d.Acked), int32(d.AckedWave), pgtx.TimePtr(d.SoakUntil),
		pgtx.TimePtr(d.Next)
	if d.State.Ended() && row.FinishedAt == nil {
		row.FinishedAt = &now
	}
}

func writeRollout(
	ctx context.Context, q *dbsqlc.Queries, before, row dbsqlc.Rollout, changed bool, now time.Time,
) error {
	if !changed {
		if err := q.SleepRollout(ctx, dbsqlc.SleepRolloutParams{RolloutID: row.RolloutID, WakeAt: row.WakeAt}); err != nil {
			return fmt.Errorf("write rollout: %w", err)
		}
		return nil
	}
	err := q.UpdateRollout(ctx, dbsqlc.UpdateRolloutParams{
		RolloutID: row.RolloutID, State: row.State, Cause: row.Cause, WaitReason: row.WaitReason, Message: row.Message,
		Wave:  row.Wave,
		Acked: row.Acked, AckedWave: row.AckedWave, CancelOperations: row.CancelOperations, SoakUntil: row.SoakUntil,
		ApprovedBy: row.ApprovedBy, ApprovedAt: row.ApprovedAt, FinishedAt: row.FinishedAt, WakeAt: row.WakeAt, Now: now,
	})
	if err != nil {
		return fmt.Errorf("write rollout: %w", err)
	}
	if before.State == row.State {
		return nil
	}
	return history.Audit(ctx, q, history.AuditEntry{
		Actor: history.System, Verb: "ROLLOUT_" + row.State, Target: row.RolloutID,
		Data: map[string]string{"from": before.State, "cause": row.Cause, "message": row.Message},
	}, now)
}

// Package past reads machines as they were at a moment.
package past

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store reads states of machines, and removes old ones. It is safe for concurrent use.
type Store struct {
	db *pgtx.DB
}

// New returns a store over the database.
func New(db *pgtx.DB) *Store {
	return &Store{db: db}
}

// MachinesAt reads the machines that there were at a moment, by machine_id behind the given one. What their agents'
// heartbeats and their providers said is not kept.
func (s *Store) MachinesAt(
	ctx context.Context, moment time.Time, afterID string, limit int32,
) ([]*baremetalv1.Machine, error) {
	rows, err := s.db.Lists(ctx).MachinesAt(ctx, dbsqlc.MachinesAtParams{Moment: moment, AfterID: afterID,
		PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("read machines of %v: %w", moment, err)
	}
	out := make([]*baremetalv1.Machine, 0, len(rows))
	for i := range rows {
		m, err := message(&rows[i])
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// MachineAt reads a machine, or its tombstone, as it was at a moment; nil where it was not there yet.
func (s *Store) MachineAt(ctx context.Context, id string, moment time.Time) (*baremetalv1.Machine, error) {
	row, err := s.db.Q.MachineAt(ctx, dbsqlc.MachineAtParams{MachineID: id, Moment: moment})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read machine of %v: %w", moment, err)
	}
	same := dbsqlc.MachinesAtRow(row)
	return message(&same)
}

// StatesSince is the first moment that can be answered.
func (s *Store) StatesSince(ctx context.Context) (time.Time, error) {
	since, err := s.db.Q.StatesSince(ctx)
	if err != nil {
		return since, fmt.Errorf("read since when states are kept: %w", err)
	}
	return since, nil
}

// machinesAtOnce is of how many machines old states are removed in one transaction.
const machinesAtOnce = 100

// ForgetStates removes the states that ended before a time.
func (s *Store) ForgetStates(ctx context.Context, before time.Time) error {
	if err := s.db.Q.ForgetStatesBefore(ctx, before); err != nil {
		return fmt.Errorf("keep states since %v: %w", before, err)
	}
	for after, more := "", true; more; {
		err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
			ids, err := q.LockMachinesAfter(ctx, dbsqlc.LockMachinesAfterParams{AfterID: after, PageSize: machinesAtOnce})
			if more = err == nil && len(ids) == machinesAtOnce; err != nil || len(ids) == 0 {
				return err
			}
			after = ids[len(ids)-1]
			if err := q.ForgetStates(ctx, dbsqlc.ForgetStatesParams{MachineIds: ids, Before: before}); err != nil {
				return err
			}
			return q.ForgetWords(ctx, ids)
		})
		if err != nil {
			return fmt.Errorf("remove old states: %w", err)
		}
	}
	return nil
}

// message makes the message of a state.
func message(r *dbsqlc.MachinesAtRow) (*baremetalv1.Machine, error) {
	conditions := make([]dbsqlc.MachineCondition, len(r.ConditionTypes))
	for i := range conditions {
		conditions[i] = dbsqlc.MachineCondition{
			MachineID: r.MachineID, Type: r.ConditionTypes[i], Status: r.ConditionStatuses[i],
			Reason: r.ConditionReasons[i], Message: r.ConditionMessages[i], LastTransition: r.ConditionTimes[i],
			Known: i >= len(r.ConditionKnowns) || r.ConditionKnowns[i],
		}
	}
	return convert.MachineMessage(dbsqlc.Machine{
		MachineID: r.MachineID, CreatedAt: r.CreatedAt, Labels: r.Labels, Spec: r.Spec, Version: r.Version,
		Phase: r.Phase, NodeState: r.NodeState, NodeStateChangedAt: r.NodeStateChangedAt,
		CurrentOperationID: r.CurrentOperationID, ActiveWorkflowID: r.ActiveWorkflowID,
		UnresolvedCommandID: r.UnresolvedCommandID, AgentID: r.AgentID, BootID: r.BootID, Simulated: r.Simulated,
		Agentless: r.Agentless, OsImageDigest: r.OsImageDigest, PowerState: r.PowerState, PowerStateAt: r.PowerStateAt,
		BootMode: r.BootMode, InstallAttempts: r.InstallAttempts, LastInstallError: r.LastInstallError,
		FirstProvisionedAt: r.FirstProvisionedAt, IdentityLevel: r.IdentityLevel, TpmKeyDigest: r.TpmKeyDigest,
		TpmKeyTrust: r.TpmKeyTrust, TpmKeyAt: r.TpmKeyAt, ProbeIp: r.ProbeIp, UpdatedAt: r.UpdatedAt,
		DeletedAt: r.DeletedAt,
	}, conditions, convert.Seen{})
}

package nodestate

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

const (
	// sliceSize is how many machines are looked at one by one each time. A fleet of that size is read whole. In a larger
	// one recent changes are found by their time, and the rest slice by slice.
	sliceSize = 2000
	// lately is how long a change counts as one that has happened lately.
	lately = time.Minute
)

// slices of the fleet, one after the other.
type fleetSlices struct {
	mu    sync.Mutex
	after string
}

// next returns the place after which the slice to read now begins.
func (f *fleetSlices) next(ctx context.Context, q *dbsqlc.Queries) (after string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	end, err := q.EndOfSlice(ctx, dbsqlc.EndOfSliceParams{AfterID: f.after, Size: sliceSize})
	if err != nil {
		return "", fmt.Errorf("cut the fleet into slices: %w", err)
	}
	after, f.after = f.after, end.Last
	if end.Machines < sliceSize {
		f.after = "" // from the beginning next time
	}
	return after, nil
}

// UpdateReachable sets and clears the condition Reachable by the heartbeats that have been stored, and moves nodes
// between active and offline with it.
func (s *Store) UpdateReachable(ctx context.Context, silentSince, now time.Time) error {
	after, err := s.reach.next(ctx, s.db.Q)
	if err != nil {
		return err
	}
	slice, err := s.db.Q.ReachableOfSlice(ctx, dbsqlc.ReachableOfSliceParams{AfterID: after, Size: sliceSize,
		SilentSince: silentSince})
	if err != nil {
		return fmt.Errorf("read a slice of the hosts: %w", err)
	}
	silent, err := s.db.Q.HostsSilentLately(ctx, dbsqlc.HostsSilentLatelyParams{HeardAfter: silentSince.Add(-lately),
		SilentSince: silentSince})
	if err != nil {
		return fmt.Errorf("read hosts that fell silent: %w", err)
	}
	speaking, err := s.db.Q.HostsSpeakingLately(ctx, dbsqlc.HostsSpeakingLatelyParams{OpenedAfter: now.Add(-lately),
		SilentSince: silentSince})
	if err != nil {
		return fmt.Errorf("read hosts that speak again: %w", err)
	}
	for _, m := range slice {
		if m.Silent {
			silent = append(silent, m.MachineID)
		} else {
			speaking = append(speaking, m.MachineID)
		}
	}
	for _, id := range once(silent) {
		if err := s.setReachable(ctx, id, false, "MissedHeartbeats", now); err != nil {
			return err
		}
	}
	for _, id := range once(speaking) {
		if err := s.setReachable(ctx, id, true, "Heartbeat", now); err != nil {
			return err
		}
	}
	return nil
}

// once has each of them once.
func once(ids []string) []string {
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (s *Store) setReachable(ctx context.Context, machineID string, status bool, reason string, now time.Time) error {
	return s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		m, err := q.LockMachine(ctx, machineID)
		if err != nil {
			return fmt.Errorf("lock machine: %w", err)
		}
		return Reach(ctx, q, m, status, reason, now)
	})
}

// Reach sets the condition Reachable of a machine that is locked, and moves its node between active and offline with
// it.
func Reach(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, status bool, reason string, now time.Time) error {
	from, to := node.Active, node.Offline
	if status {
		from, to = to, from
	}
	if node.Parse(m.NodeState) == from {
		if err := MoveNode(
			ctx,
			q,
			m.MachineID,
			to,
			node.System,
			"",
			"",
			map[string]string{"reason": reason},
			now,
		); err != nil {
			return err
		}
	}
	if err := ageFaults(ctx, q, m, status, now); err != nil {
		return err
	}
	return machinestore.SetCondition(ctx, q, m.MachineID,
		operation.ConditionChange{Type: fleet.Reachable, Status: status, Reason: reason}, now)
}

// ageFaults keeps the faults that the machine's own agent has reported, as unknown while the agent is silent.
func ageFaults(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, heard bool, now time.Time) error {
	switch {
	case convert.ObservedBySite(&m):
		return nil
	case heard:
		return KnowFaults(ctx, q, m.MachineID)
	}
	err := q.AgeFaults(ctx, dbsqlc.AgeFaultsParams{MachineID: m.MachineID, AgentID: *m.AgentID, Now: now,
		Types: ofAgents})
	return pgtx.Wrap(err, "age the faults that the agent has reported")
}

// KnowFaults makes the faults known again that the machine's own agent has reported: the agent is back.
func KnowFaults(ctx context.Context, q *dbsqlc.Queries, machineID string) error {
	err := q.RestoreConditions(ctx, dbsqlc.RestoreConditionsParams{MachineIds: []string{machineID}, Types: ofAgents})
	return pgtx.Wrap(err, "restore the faults that the agent has reported")
}

// ofAgents are the conditions that a machine's own agent reports.
var ofAgents = func() (out []string) {
	for _, t := range fleet.Witnessed(fleet.WitnessAgent, fleet.SilenceKeeps) {
		out = append(out, string(t))
	}
	return out
}()

func AgentLive(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, now time.Time) (bool, error) {
	rows, err := q.CandidatesFor(ctx, dbsqlc.CandidatesForParams{
		MachineIds: []string{m.MachineID}, OperationIds: []string{""}, Sites: []string{m.Site}, Now: now,
	})
	if err != nil {
		return false, fmt.Errorf("read agents: %w", err)
	}
	for _, r := range rows {
		if r.AgentID == pgtx.StrVal(m.AgentID) {
			return r.Live, nil
		}
	}
	return false, nil
}

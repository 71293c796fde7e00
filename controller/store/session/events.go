package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/timeline"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	"github.com/ingot-metal/ingot/controller/store/operationlog"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/planted"
)

// EventKey numbers an agent's event. Numbers count per agent and memory.
type EventKey struct {
	AgentID, StateID string
	Seq              uint64
	// Epoch is that of the session that the event came by. Once the agent has a newer session, the older one stores
	// nothing: it may be that of a copy, whose numbers the agent counts too. 0 is not compared.
	Epoch int64
	// InstallerOf is the machine that an installer was certified for, empty for any other agent. Once its operation has
	// ended, its events leave nothing but their numbers.
	InstallerOf string
}

// What take_event returns of a number that it has not taken.
const eventSeen, eventSuperseded = 0, 2

// errSeen takes back what was done for an event whose number has been taken before.
var errSeen = errors.New("event has been seen")

// once runs fn in the transaction that takes the event's number; one that has been seen does nothing.
func (s *Store) once(ctx context.Context, k EventKey, fn func(q *dbsqlc.Queries) error) error {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error { return take(ctx, q, k, fn) })
	if err != nil && !errors.Is(err, errSeen) {
		return fmt.Errorf("store event %d of agent %s: %w", k.Seq, k.AgentID, err)
	}
	return nil
}

// take runs fn and then takes the event's number: a grant, too, locks its operation and machine before the memory of
// the agent.
func take(ctx context.Context, q *dbsqlc.Queries, k EventKey, fn func(q *dbsqlc.Queries) error) error {
	counts, err := countsOf(ctx, q, k)
	if err != nil {
		return err
	}
	if counts {
		if err := fn(q); err != nil {
			return err
		}
	}
	taken, err := q.TakeEvent(ctx, dbsqlc.TakeEventParams{AgentID: k.AgentID, StateID: k.StateID,
		Seq: int64(k.Seq), Epoch: k.Epoch})
	switch {
	case err != nil:
		return fmt.Errorf("take event number: %w", err)
	case taken == eventSuperseded:
		return failure.Aborted("SESSION_SUPERSEDED", "a newer session of this agent is open")
	case taken == eventSeen && !planted.EventNumber:
		return errSeen
	}
	return nil
}

// countsOf reports whether an event may change something: an installer's only as long as it has what it was certified
// for. Its machine is locked then, so that its operation cannot end meanwhile.
func countsOf(ctx context.Context, q *dbsqlc.Queries, k EventKey) (bool, error) {
	if k.InstallerOf == "" {
		return true, nil
	}
	if _, err := q.LockMachine(ctx, k.InstallerOf); err != nil {
		return false, fmt.Errorf("lock machine: %w", err)
	}
	stands, err := q.InstallerStands(ctx, k.AgentID)
	return stands, pgtx.Wrap(err, "read the installer's operation")
}

// SkipEvent takes the number of an event that leaves nothing in the database.
func (s *Store) SkipEvent(ctx context.Context, k EventKey) error {
	return s.once(ctx, k, func(*dbsqlc.Queries) error { return nil })
}

// Piece is one event of log lines. The number replaces that of the key it comes with.
type Piece struct {
	Seq    uint64
	Stream string
	Data   []byte
	At     time.Time
}

// LogEvents appends pieces of an agent's log to the log of the command's operation. Pieces of a command that this agent
// did not receive are dropped. An installer's last pieces may follow the end of its operation, whose log takes them.
func (s *Store) LogEvents(ctx context.Context, k EventKey, commandID string, pieces ...Piece) error {
	k.InstallerOf = ""
	return s.appendPieces(ctx, k, pieces, func(q *dbsqlc.Queries) (operationID, step string, err error) {
		row, err := q.GetCommand(ctx, commandID)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && row.ExecutorID != k.AgentID {
			return "", "", nil
		}
		return row.OperationID, row.StepName, pgtx.Wrap(err, "read command")
	})
}

// appendPieces appends pieces to the log of one operation in one transaction; no operation drops them. Where a number
// has been seen before, each piece has a transaction of its own.
func (s *Store) appendPieces(ctx context.Context, k EventKey, pieces []Piece,
	of func(q *dbsqlc.Queries) (operationID, step string, err error),
) error {
	piece := func(q *dbsqlc.Queries, operationID, step string, p Piece) error {
		key := k
		key.Seq = p.Seq
		return take(ctx, q, key, func(q *dbsqlc.Queries) error {
			if operationID == "" {
				return nil
			}
			_, err := operationlog.AppendLog(ctx, q, dbsqlc.AppendLogParams{OperationID: operationID, Ts: p.At,
				Stream: p.Stream, Step: step, Data: p.Data})
			return err
		})
	}
	all := func(pieces []Piece) error {
		return s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
			operationID, step, err := of(q)
			for i := 0; i < len(pieces) && err == nil; i++ {
				err = piece(q, operationID, step, pieces[i])
			}
			return err
		})
	}
	err := all(pieces)
	if errors.Is(err, errSeen) && len(pieces) > 1 {
		for i := 0; i < len(pieces) && (err == nil || errors.Is(err, errSeen)); i++ { // at first it is errSeen
			err = all(pieces[i : i+1])
		}
	}
	if err != nil && !errors.Is(err, errSeen) {
		return fmt.Errorf("store %d pieces of a log of agent %s: %w", len(pieces), k.AgentID, err)
	}
	return nil
}

const (
	// driftEvery is how often the audit log takes a difference of one machine. keepDrift is the number of them that it
	// keeps. Older ones are scrubbed driftLot at a time, so that few rows announce it.
	driftEvery = 10 * time.Minute
	keepDrift  = 20
	driftLot   = 10
)

// DriftEvent records on a machine that its configuration has a foreign change. The audit log has the difference, and
// the digest by which an order accepts it. An empty difference means that it is over.
func (s *Store) DriftEvent(ctx context.Context, k EventKey, machineID, diff, digest string, now time.Time) error {
	return s.once(ctx, k, func(q *dbsqlc.Queries) error {
		if _, err := q.LockMachine(ctx, machineID); err != nil {
			return fmt.Errorf("lock machine: %w", err)
		}
		err := machinestore.SetCondition(ctx, q, machineID, operation.ConditionChange{
			Type: fleet.Degraded, Status: diff != "", Reason: "CONFIG_DRIFT",
			Message: "the configuration is not the one that was committed; the difference is in the audit log (ingot audit)",
		}, now)
		if err != nil || diff == "" {
			return err
		}
		newer, err := boundDrift(ctx, q, machineID, now)
		if err != nil || newer {
			return err
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: k.AgentID, Verb: "CONFIG_DRIFT", Target: machineID,
			Data: map[string]string{"diff": diff, "digest": digest}}, now)
	})
}

// boundDrift scrubs the older differences of a machine once there are many, and reports whether one was written within
// driftEvery.
func boundDrift(ctx context.Context, q *dbsqlc.Queries, machineID string, now time.Time) (newer bool, err error) {
	d, err := q.DriftOf(ctx, dbsqlc.DriftOfParams{MachineID: machineID, Since: now.Add(-driftEvery), Keep: keepDrift})
	if err != nil {
		return false, fmt.Errorf("read drifts of machine: %w", err)
	}
	if d.Kept >= keepDrift+driftLot {
		e := history.AuditEntry{Actor: history.System, Verb: timeline.ScrubDrift, Target: machineID}
		if _, err := history.Scrub(ctx, q, e, "CONFIG_DRIFT", d.Through, now); err != nil {
			return false, err
		}
	}
	return d.Newer > 0, nil
}

// RAIDEvent shows on a machine that a software RAID of its system is not whole. An empty fault means that it is over.
func (s *Store) RAIDEvent(ctx context.Context, k EventKey, machineID, fault string, now time.Time) error {
	return s.once(ctx, k, func(q *dbsqlc.Queries) error {
		if _, err := q.LockMachine(ctx, machineID); err != nil {
			return fmt.Errorf("lock machine: %w", err)
		}
		return machinestore.SetCondition(ctx, q, machineID, operation.ConditionChange{Type: fleet.RAIDDegraded,
			Status: fault != "", Reason: baremetalv1.Reason_RAID_DEGRADED.String(), Message: fault}, now)
	})
}

// ConsoleStream is the stream of what a machine's serial console has shown. It is for admins.
const ConsoleStream = "console"

// ConsoleEvents appends the output of a machine's serial console to the log of an operation on it. Pieces for an
// operation of another site are dropped.
func (s *Store) ConsoleEvents(ctx context.Context, k EventKey, site, operationID string, pieces ...Piece) error {
	return s.appendPieces(ctx, k, pieces, func(q *dbsqlc.Queries) (string, string, error) {
		_, err := q.OperationOfSite(ctx, dbsqlc.OperationOfSiteParams{OperationID: operationID, Site: site})
		if errors.Is(err, pgx.ErrNoRows) {
			return "", "", nil
		}
		return operationID, ConsoleStream, pgtx.Wrap(err, "read operation")
	})
}

// InventoryEvent keeps an inventory if it differs from the newest one. An empty document means "not known yet".
// Inventories that come together are stored together.
func (s *Store) InventoryEvent(
	ctx context.Context, k EventKey, machineID, hash string, document []byte, simulated bool, now time.Time,
) error {
	e := inventory{EventKey: k, machineID: machineID, hash: hash, simulated: simulated, at: now}
	if machineID != "" && nodestate.ReadableInventory(document) {
		e.document = document
	}
	if k.InstallerOf == "" {
		together, err := s.batches.inventories.Do(ctx, e)
		if together {
			return nil
		}
		if err != nil {
			s.db.Log.Debug("inventories were not stored together; each is stored alone", "error", err.Error())
		}
	}
	err := s.once(ctx, k, func(q *dbsqlc.Queries) error {
		if len(e.document) == 0 {
			return nil
		}
		err := q.InsertInventory(ctx, dbsqlc.InsertInventoryParams{
			MachineID: machineID, ReportedAt: now, AgentID: k.AgentID, Hash: hash, Document: document, Simulated: simulated,
		})
		if err != nil {
			return fmt.Errorf("store inventory: %w", err)
		}
		return pgtx.Wrap(q.PruneInventories(ctx, dbsqlc.PruneInventoriesParams{MachineID: machineID, Keep: keepInventories}),
			"prune inventories")
	})
	if pgtx.Unstorable(err) {
		// It would come again for ever, and nothing of the agent after it.
		s.db.Log.Warn("an inventory holds what no database keeps; dropped", "agent_id", k.AgentID, "machine_id", machineID,
			"error", err.Error())
		return s.SkipEvent(ctx, k)
	}
	return err
}

// keepInventories is how many inventories of one machine are kept at least. The next one prunes those before.
const keepInventories = 50

// inventory is an event with one; no document leaves nothing but its number.
type inventory struct {
	EventKey
	machineID, hash string
	document        []byte
	simulated       bool
	at              time.Time
}

// storeInventories stores those of different agents, and reports for each whether it did.
func (s *Store) storeInventories(ctx context.Context, lot []inventory) ([]bool, error) {
	p, stored, seen := dbsqlc.TakeInventoriesParams{Keep: keepInventories}, make([]bool, len(lot)), map[string]bool{}
	for i, e := range lot {
		if seen[e.AgentID] {
			continue // a second one of an agent comes after this one, alone
		}
		seen[e.AgentID], stored[i] = true, true
		p.AgentIds, p.StateIds, p.Seqs = append(p.AgentIds, e.AgentID), append(p.StateIds, e.StateID),
			append(p.Seqs, int64(e.Seq))
		p.MachineIds, p.Hashes = append(p.MachineIds, e.machineID), append(p.Hashes, e.hash)
		p.Documents, p.Simulated = append(p.Documents, string(e.document)), append(p.Simulated, e.simulated)
		p.Ats, p.Epochs = append(p.Ats, e.at), append(p.Epochs, e.Epoch)
	}
	taken, err := s.db.Q.TakeInventories(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("store inventories: %w", err)
	}
	for i, e := range lot {
		stored[i] = stored[i] && slices.Contains(taken, e.AgentID) // the rest are looked at alone
	}
	return stored, nil
}

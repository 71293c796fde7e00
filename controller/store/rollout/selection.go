package rollout

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/rollout"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
)

// SelectionRequest asks to keep a set of machines.
type SelectionRequest struct {
	RequestID, Filter string
	// Walks together give what the filter matches; MachineIDs are the machines where there is no filter.
	Walks      []machinestore.MachineFilter
	MachineIDs []string
	TTL        time.Duration
	Actor      string
}

// CreateSelection keeps the machines as they are now, or returns the selection that the same request has made before.
func (s *Store) CreateSelection(
	ctx context.Context, r SelectionRequest, now time.Time,
) (*baremetalv1.Selection, error) {
	if row, err := s.db.Q.GetSelectionByRequest(ctx, r.RequestID); !errors.Is(err, pgx.ErrNoRows) {
		return sameSelection(row, r, err)
	}
	machines, err := s.selected(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("create selection: %w", err)
	}
	row := dbsqlc.InsertSelectionParams{
		SelectionID: ids.New(ids.Selection), RequestID: r.RequestID, Filter: r.Filter, MachineIds: machines,
		Digest: digestOfMachines(machines), CreatedBy: r.Actor, Now: now, ExpiresAt: now.Add(r.TTL),
	}
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		if err := q.DeleteExpiredSelections(ctx, now); err != nil {
			return fmt.Errorf("delete expired selections: %w", err)
		}
		if err := q.InsertSelection(ctx, row); err != nil {
			return fmt.Errorf("insert selection: %w", err)
		}
		return history.Audit(ctx, q, history.AuditEntry{
			Actor: r.Actor, Verb: "CREATE_SELECTION", Target: row.SelectionID, Request: r.RequestID,
			Data: map[string]string{"filter": r.Filter, "count": fmt.Sprint(len(machines)), "digest": row.Digest},
		}, now)
	})
	if pgtx.UniqueViolation(err, "selections_request_id_key") {
		row, err := s.db.Q.GetSelectionByRequest(ctx, r.RequestID) // the same request at the same time
		return sameSelection(row, r, err)
	}
	if err != nil {
		return nil, fmt.Errorf("create selection: %w", err)
	}
	return selectionMessage(dbsqlc.Selection{
		SelectionID: row.SelectionID, Filter: row.Filter, MachineIds: row.MachineIds, Digest: row.Digest,
		CreatedBy: row.CreatedBy, CreatedAt: row.Now, ExpiresAt: row.ExpiresAt,
	}), nil
}

// sameSelection returns the selection of a repeated request, if it is the same request.
func sameSelection(row dbsqlc.Selection, r SelectionRequest, err error) (*baremetalv1.Selection, error) {
	if err != nil {
		return nil, fmt.Errorf("look for the request: %w", err)
	}
	if row.Filter != r.Filter || r.Filter == "" && !slices.Equal(row.MachineIds, sorted(r.MachineIDs)) {
		return nil, failure.AlreadyExists("REQUEST_ID_REUSED", "request_id %q was used for another selection (%s)",
			r.RequestID, row.SelectionID).WithMeta("selection_id", row.SelectionID)
	}
	return selectionMessage(row), nil
}

// selected are the ids of the machines that are asked for, sorted.
func (s *Store) selected(ctx context.Context, r SelectionRequest) ([]string, error) {
	if r.Filter == "" {
		return s.named(ctx, sorted(r.MachineIDs))
	}
	out := []string{}
	for _, f := range r.Walks {
		f.Limit = selectedAtOnce
		for {
			rows, err := s.machines.WalkRows(ctx, f)
			if err != nil {
				return nil, err
			}
			for _, m := range rows {
				out = append(out, m.MachineID)
			}
			if err := rollout.MayHold(len(out), "filter"); err != nil {
				return nil, err
			}
			if len(rows) < selectedAtOnce {
				break
			}
			f.AfterID = rows[len(rows)-1].MachineID
		}
	}
	return sorted(out), nil
}

// selectedAtOnce is how many machines are read by one statement.
const selectedAtOnce = 500

// named returns the ids, which must all be of machines of the inventory.
func (s *Store) named(ctx context.Context, machineIDs []string) ([]string, error) {
	if err := rollout.MayHold(len(machineIDs), "machine_ids"); err != nil {
		return nil, err
	}
	known, err := s.db.Q.KnownMachines(ctx, machineIDs)
	if err != nil {
		return nil, fmt.Errorf("look up machines: %w", err)
	}
	missing := slices.DeleteFunc(slices.Clone(machineIDs), func(id string) bool { return slices.Contains(known, id) })
	if len(missing) == 0 {
		return machineIDs, nil
	}
	const shown = 10
	text := strings.Join(missing[:min(shown, len(missing))], ", ")
	return nil, failure.NotFound("MACHINE_NOT_FOUND", "%d of %d machines do not exist: %s", len(missing), len(machineIDs),
		text).WithField("machine_ids", "unknown: "+text).WithMeta("machine_id", missing[0])
}

func sorted(machineIDs []string) []string {
	out := slices.Clone(machineIDs)
	slices.Sort(out)
	return slices.Compact(out)
}

func digestOfMachines(machineIDs []string) string {
	h := sha256.New()
	for _, id := range machineIDs {
		fmt.Fprintln(h, id)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func selectionMessage(r dbsqlc.Selection) *baremetalv1.Selection {
	return &baremetalv1.Selection{
		SelectionId: r.SelectionID, Count: int32(len(r.MachineIds)), Digest: r.Digest, Filter: r.Filter,
		CreatedBy: r.CreatedBy, CreatedAt: convert.Timestamp(r.CreatedAt), ExpiresAt: convert.Timestamp(r.ExpiresAt),
	}
}

// GetSelection reads a selection with its machines.
func (s *Store) GetSelection(ctx context.Context, id string, now time.Time) (*baremetalv1.Selection, error) {
	row, err := s.selection(ctx, id, now)
	if err != nil {
		return nil, err
	}
	out := selectionMessage(row)
	out.MachineIds = row.MachineIds
	return out, nil
}

func (s *Store) selection(ctx context.Context, id string, now time.Time) (dbsqlc.Selection, error) {
	row, err := s.db.Q.GetSelection(ctx, dbsqlc.GetSelectionParams{SelectionID: id, Now: now})
	if errors.Is(err, pgx.ErrNoRows) {
		return row, failure.NotFound("SELECTION_NOT_FOUND", "there is no selection %q, or it has expired", id).
			WithField("selection_id", "unknown or expired")
	}
	return row, pgtx.Wrap(err, "read selection")
}

// walks are the machines of a rollout: those of its selection, or what its filter matches.
func (s *Store) walks(ctx context.Context, r RolloutRequest, now time.Time) ([]machinestore.MachineFilter, error) {
	if r.Spec.GetSelectionId() == "" {
		return r.Machines, nil
	}
	row, err := s.selection(ctx, r.Spec.GetSelectionId(), now)
	if err != nil {
		return nil, err
	}
	var out []machinestore.MachineFilter
	for part := range slices.Chunk(row.MachineIds, selectedAtOnce) {
		out = append(out, machinestore.MachineFilter{MachineIDs: part})
	}
	return out, nil
}

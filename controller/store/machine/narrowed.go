package machine

import (
	"context"
	"fmt"
	"strconv"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	machinerules "github.com/ingot-metal/ingot/controller/domain/machine"
	"github.com/ingot-metal/ingot/controller/domain/machinefilter"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Narrowed reads the changes of machines as a caller sees them that is held to selections. A machine that leaves them,
// deleted ones too, is on a page once more as a tombstone: its id and when it left, and nothing else. Cursors are good
// for the same selections alone.
type Narrowed struct {
	db   *pgtx.DB
	feed *Feed
	in   machinefilter.Selections
}

// Narrowed returns the changes within selections, which are narrow.
func (f *Feed) Narrowed(in machinefilter.Selections) *Narrowed {
	return &Narrowed{db: f.db, feed: f, in: in}
}

// changedWithin is a place in the order of changes: a machine that is inside and has changed, or one that has left.
type changedWithin = dbsqlc.ChangesWithinRow

// Reconcile returns the changes within the selections after a cursor, or since a time when the cursor is empty. It
// never misses a change or a departure, and may repeat one.
func (n *Narrowed) Reconcile(ctx context.Context, from string, since time.Time, limit int32) (*Changes, error) {
	out, found, _, err := n.page(ctx, from, since, limit)
	if err != nil {
		return nil, err
	}
	out.Machines, err = n.present(ctx, found)
	return out, err
}

// Follow is Reconcile after a cursor with a cursor for each machine.
func (n *Narrowed) Follow(
	ctx context.Context, from string, limit int32,
) (all []Change, next string, more bool, err error) {
	page, found, at, err := n.page(ctx, from, time.Time{}, limit)
	if err != nil {
		return nil, "", false, err
	}
	machines, err := n.present(ctx, found)
	if err != nil {
		return nil, "", false, err
	}
	places := make(map[string]uint64, len(found))
	for _, f := range found {
		places[f.MachineID] = f.ChangeXid
	}
	for _, m := range machines {
		at.Machine = m.GetMachineId()
		at.Xid = strconv.FormatUint(places[at.Machine], 10)
		all = append(all, Change{Machine: m, Cursor: at.String(), Xid: places[at.Machine]})
	}
	return all, page.Next, page.More, nil
}

// HeadCursor is Feed.HeadCursor for the selections.
func (n *Narrowed) HeadCursor(ctx context.Context) (next string, safeSince time.Time, err error) {
	here, bounds, err := n.here(ctx)
	if err != nil {
		return "", time.Time{}, err
	}
	here.Xid = bounds.Xmin
	return here.String(), bounds.SafeTime, nil
}

// CheckCursor refuses a cursor from which Reconcile would not go on.
func (n *Narrowed) CheckCursor(ctx context.Context, text string) error {
	at, err := machinerules.ParseCursor(text)
	if err != nil {
		return err
	}
	here, _, err := n.here(ctx)
	if err != nil {
		return err
	}
	if err := at.ContinuesAt(here); err != nil {
		return err
	}
	return n.kept(ctx, at, time.Time{})
}

// here is Feed.here for the selections. The safe time is bounded by departures, too. They are read last: one that
// commits later was open when the bounds were read.
func (n *Narrowed) here(ctx context.Context) (cursor, dbsqlc.ReconcileBoundsRow, error) {
	here, bounds, err := n.feed.here(ctx)
	if err != nil {
		return here, bounds, err
	}
	late, err := n.db.Q.OldestLateDeparture(ctx)
	if err != nil {
		return here, bounds, fmt.Errorf("read late departures: %w", err)
	}
	here.Selections = n.in.Digest()
	if late.Before(bounds.SafeTime) {
		bounds.SafeTime = late
	}
	return here, bounds, nil
}

// page returns the changes of one page. Cursors in it begin as here does.
func (n *Narrowed) page(
	ctx context.Context, from string, since time.Time, limit int32,
) (out *Changes, found []changedWithin, here cursor, err error) {
	here, bounds, err := n.here(ctx)
	if err != nil {
		return nil, nil, here, err
	}
	at := cursor{Xid: "0"}
	if from != "" {
		if at, err = machinerules.ParseCursor(from); err != nil {
			return nil, nil, here, err
		}
		if err := at.ContinuesAt(here); err != nil {
			return nil, nil, here, err
		}
	}
	found, err = n.db.Q.ChangesWithin(ctx, dbsqlc.ChangesWithinParams{AfterXid: at.Xid, AfterID: at.Machine,
		Since: pgtx.TimePtr(since), Selections: n.in.SQL(), PageSize: limit})
	if err != nil {
		return nil, nil, here, fmt.Errorf("read changes within selections: %w", err)
	}
	// After the page was read: what retention has removed before that is missing from it.
	if err := n.kept(ctx, at, since); err != nil {
		return nil, nil, here, err
	}
	found, bound := splitBound(found)
	out = &Changes{SafeSince: bounds.SafeTime, More: len(found) == int(limit)}
	if out.More {
		out.SafeSince = since
	}
	out.Next, err = nextWithin(here, at, found, bound, out.More)
	return out, found, here, err
}

// splitBound takes the last row off a page, which has no machine: the oldest transaction that was open.
func splitBound(rows []changedWithin) (found []changedWithin, bound uint64) {
	last := len(rows) - 1
	return rows[:last], rows[last].ChangeXid
}

// nextWithin is the cursor behind a page. It never names a machine that is not on the page: behind a page that is not
// full it stands at the bound, below which nothing is left.
func nextWithin(here, at cursor, found []changedWithin, bound uint64, more bool) (string, error) {
	next := here
	before, err := strconv.ParseUint(at.Xid, 10, 64)
	if err != nil {
		return "", fmt.Errorf("parse the change id of a cursor: %w", err)
	}
	switch {
	case more:
		last := found[len(found)-1]
		next.Xid, next.Machine = strconv.FormatUint(last.ChangeXid, 10), last.MachineID
	case bound > before:
		next.Xid = strconv.FormatUint(bound, 10)
	default:
		next.Xid, next.Machine = at.Xid, at.Machine
	}
	return next.String(), nil
}

// present returns the machines of a page and the tombstones between them. A machine that has left since the page was
// found is left out: its tombstone comes after the page.
func (n *Narrowed) present(ctx context.Context, found []changedWithin) ([]*baremetalv1.Machine, error) {
	var inside []dbsqlc.ChangedMachinesRow
	for _, f := range found {
		if f.GoneAt == nil {
			inside = append(inside,
				dbsqlc.ChangedMachinesRow{MachineID: f.MachineID, ChangeXid: f.ChangeXid, Place: f.Place})
		}
	}
	machines, err := n.feed.machines.presentFound(ctx, inside, false)
	if err != nil {
		return nil, err
	}
	byID := make(map[string]*baremetalv1.Machine, len(machines))
	for _, m := range machines {
		if n.in.Hold(m) {
			byID[m.GetMachineId()] = m
		}
	}
	out := make([]*baremetalv1.Machine, 0, len(found))
	for _, f := range found {
		if f.GoneAt != nil {
			out = append(out, &baremetalv1.Machine{MachineId: f.MachineID, DeletedAt: convert.TimestampPtr(f.GoneAt)})
		} else if m := byID[f.MachineID]; m != nil {
			out = append(out, m)
		}
	}
	return out, nil
}

// kept refuses to go on from a place behind which departures have been removed.
func (n *Narrowed) kept(ctx context.Context, at cursor, since time.Time) error {
	kept, err := n.db.Q.DeparturesKept(ctx)
	if err != nil {
		return fmt.Errorf("read how long departures are kept: %w", err)
	}
	through, err := strconv.ParseUint(kept.Through, 10, 64)
	if err != nil {
		return fmt.Errorf("parse how long departures are kept: %w", err)
	}
	return at.Kept(machinerules.Departures{Since: kept.DeparturesSince, Through: through}, since)
}

// departuresKept is how long a departure is kept: a cursor within selections that has rested for longer has expired.
const departuresKept = 7 * 24 * time.Hour

// ForgetDepartures removes departures that are older than any cursor may be.
func (f *Feed) ForgetDepartures(ctx context.Context, now time.Time) error {
	return pgtx.Wrap(f.db.Q.ForgetDepartures(ctx, now.Add(-departuresKept)), "remove old departures")
}

// InSelections returns those of the machines that are inside.
func (s *Store) InSelections(
	ctx context.Context, in machinefilter.Selections, ids []string,
) (map[string]bool, error) {
	out := make(map[string]bool, len(ids))
	if !in.Narrow() {
		for _, id := range ids {
			out[id] = true
		}
		return out, nil
	}
	found, err := s.db.Q.MachinesInSelections(ctx,
		dbsqlc.MachinesInSelectionsParams{MachineIds: pgtx.NonNil(ids), Selections: in.SQL()})
	if err != nil {
		return nil, fmt.Errorf("read which machines are in selections: %w", err)
	}
	for _, id := range found {
		out[id] = true
	}
	return out, nil
}

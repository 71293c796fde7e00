package machine

import (
	"context"
	"fmt"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	machinerules "github.com/ingot-metal/ingot/controller/domain/machine"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// cursor is a place in the order of changes.
type cursor = machinerules.Cursor

// Changes is a page of machines that have changed.
type Changes struct {
	Machines []*baremetalv1.Machine
	// Next is where to go on; it is always set.
	Next string
	// SafeSince may be sent as updated_since and misses nothing. While there is more to read it does not move on.
	SafeSince time.Time
	// More is set when there is more to read right now.
	More bool
}

// Feed is the order in which machines change, for clients that follow them by cursor.
type Feed struct {
	db       *pgtx.DB
	machines *Store
}

// NewFeed returns the changes of the machines of a store.
func NewFeed(db *pgtx.DB, machines *Store) *Feed { return &Feed{db: db, machines: machines} }

// Reconcile reads the changes after a cursor, or since a time when the cursor is empty. It never misses a change and
// may repeat one. Changes are ordered by their transactions, and none at or above the oldest open transaction is on a
// page. So later commits sort after the cursor.
func (f *Feed) Reconcile(ctx context.Context, from string, since time.Time, limit int32) (*Changes, error) {
	return f.reconcile(ctx, from, since, limit, false)
}

// ReconcileSealed is Reconcile with machines of which only the id can be read before they have gone over the wire.
func (f *Feed) ReconcileSealed(ctx context.Context, from string, since time.Time, limit int32) (*Changes, error) {
	return f.reconcile(ctx, from, since, limit, true)
}

func (f *Feed) reconcile(
	ctx context.Context, from string, since time.Time, limit int32, sealed bool,
) (*Changes, error) {
	out, found, _, err := f.page(ctx, from, since, limit)
	if err != nil {
		return nil, err
	}
	// A machine that has changed again meanwhile is presented as it is now, and comes once more after this page.
	out.Machines, err = f.machines.presentFound(ctx, found, sealed)
	return out, err
}

// page returns the machines of a page and the cursor behind it. Its cursors begin like here.
func (f *Feed) page(
	ctx context.Context, from string, since time.Time, limit int32,
) (out *Changes, found []dbsqlc.ChangedMachinesRow, here cursor, err error) {
	here, bounds, err := f.here(ctx)
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
	if found, err = f.changes(ctx, at, since, limit); err != nil {
		return nil, nil, here, fmt.Errorf("read changes: %w", err)
	}
	out = &Changes{SafeSince: bounds.SafeTime, More: len(found) == int(limit)}
	if out.More {
		// Those that are left may be older than those of this page.
		out.SafeSince = since
	}
	out.Next = f.nextCursor(here, at, from == "", bounds.Xmin, found)
	return out, found, here, nil
}

// CheckCursor refuses a cursor from which Reconcile would not go on.
func (f *Feed) CheckCursor(ctx context.Context, text string) error {
	at, err := machinerules.ParseCursor(text)
	if err != nil {
		return err
	}
	here, _, err := f.here(ctx)
	if err != nil {
		return err
	}
	return at.ContinuesAt(here)
}

// Change is a machine as it is now, and the cursor behind the change by which it was found.
type Change struct {
	Machine *baremetalv1.Machine
	Cursor  string
	// Xid is the transaction of the change.
	Xid uint64
}

// Follow is Reconcile after a cursor with a cursor for each machine. more reports whether there is more to read right
// now.
func (f *Feed) Follow(
	ctx context.Context,
	from string,
	limit int32,
) (all []Change, next string, more bool, err error) {
	page, found, at, err := f.page(ctx, from, time.Time{}, limit)
	if err != nil {
		return nil, "", false, err
	}
	machines, err := f.machines.presentFound(ctx, found, false)
	if err != nil {
		return nil, "", false, err
	}
	places := make(map[string]uint64, len(found))
	for _, row := range found {
		places[row.MachineID] = row.ChangeXid
	}
	for _, m := range machines {
		at.Machine = m.GetMachineId()
		at.Xid = fmt.Sprint(places[at.Machine])
		all = append(all, Change{Machine: m, Cursor: at.String(), Xid: places[at.Machine]})
	}
	return all, page.Next, page.More, nil
}

// fewChanges is how many changes since a time are found by that time and put in order then. More are read in their
// order until a page is full.
const fewChanges = 5000

// changes finds the machines of a page, and by which transaction each of them was changed.
func (f *Feed) changes(
	ctx context.Context, at cursor, since time.Time, limit int32,
) ([]dbsqlc.ChangedMachinesRow, error) {
	inOrder := dbsqlc.ChangedMachinesParams{AfterXid: at.Xid, AfterID: at.Machine, Since: pgtx.TimePtr(since),
		PageSize: limit}
	if since.IsZero() {
		return f.db.Q.ChangedMachines(ctx, inOrder)
	}
	q := f.db.CustomPlan()
	few, err := q.FewChangedMachines(ctx, dbsqlc.FewChangedMachinesParams{Since: since, MaxRows: fewChanges + 1,
		PageSize: limit})
	if err != nil {
		return nil, err
	}
	if len(few) > 0 && few[0].Counted > fewChanges {
		return q.ChangedMachines(ctx, inOrder)
	}
	out := make([]dbsqlc.ChangedMachinesRow, 0, len(few))
	for _, r := range few {
		out = append(out, dbsqlc.ChangedMachinesRow{MachineID: r.MachineID, ChangeXid: r.ChangeXid, Place: r.Place})
	}
	return out, nil
}

// nextCursor is the place after the last of the page. With none it stays where it was. A first read by time that found
// nothing is just below the oldest transaction that was open before it.
func (f *Feed) nextCursor(here, at cursor, byTime bool, xmin string, found []dbsqlc.ChangedMachinesRow) string {
	next := here
	switch {
	case len(found) > 0:
		last := found[len(found)-1]
		next.Xid, next.Machine = fmt.Sprint(last.ChangeXid), last.MachineID
	case byTime:
		next.Xid = xmin
	default:
		next.Xid, next.Machine = at.Xid, at.Machine
	}
	return next.String()
}

// here names this cluster and reads the bounds of what a reader may rely on. It must run before the page is read.
func (f *Feed) here(ctx context.Context) (cursor, dbsqlc.ReconcileBoundsRow, error) {
	var id dbsqlc.ClusterIdentityRow
	var bounds dbsqlc.ReconcileBoundsRow
	err := f.db.Q.Together(ctx,
		func(q *dbsqlc.Queries) (err error) {
			id, err = q.ClusterIdentity(ctx)
			return pgtx.Wrap(err, "read cluster identity")
		},
		func(q *dbsqlc.Queries) (err error) {
			bounds, err = q.ReconcileBounds(ctx)
			return pgtx.Wrap(err, "read bounds")
		},
	)
	if err != nil {
		return cursor{}, bounds, err
	}
	return cursor{
		Version:     machinerules.CursorVersion,
		System:      id.SystemID,
		Timeline:    id.Timeline,
		Incarnation: id.Incarnation,
	}, bounds, nil
}

// HeadCursor is where a reader stands who begins a full walk now: whatever changes during the walk comes after it.
func (f *Feed) HeadCursor(ctx context.Context) (next string, safeSince time.Time, err error) {
	here, bounds, err := f.here(ctx)
	if err != nil {
		return "", time.Time{}, err
	}
	here.Xid = bounds.Xmin
	return here.String(), bounds.SafeTime, nil
}

// Spot is a place in the order of changes: behind the change of a machine by a transaction, or before all of a
// transaction where it names no machine.
type Spot struct {
	Xid     uint64
	Machine string
}

// SpotOf reads a cursor.
func SpotOf(text string) (Spot, error) {
	c, err := machinerules.ParseCursor(text)
	if err != nil {
		return Spot{}, err
	}
	xid, err := c.Transaction()
	if err != nil {
		return Spot{}, err
	}
	return Spot{Xid: xid, Machine: c.Machine}, nil
}

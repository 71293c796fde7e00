package machine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/controller/api/public/query"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/internal/clock"
)

const (
	// sharedFor is how much older than its question a read may be whose answer is shared.
	sharedFor = 20 * time.Millisecond
	// mostShared bounds the changes that are kept for watches that ask a little later, and with them the memory: some
	// 6 MB.
	mostShared = 2000
	// forgotten is after how long without a question the changes that are kept are too old to go on from.
	forgotten = 5 * time.Second
)

// reader reads the changes behind a cursor, at most limit. next is where to go on, and more reports whether there is
// more to read right now.
type reader func(ctx context.Context, from string, limit int32) (all []machinestore.Change, next string, more bool,
	err error)

// feed reads changes of machines once for all watches of a server that stand near the newest one. Others read by
// themselves, until they do.
type feed struct {
	read  reader
	clock clock.Clock

	mu sync.Mutex
	// changes are all that came behind base, up to the cursor end.
	changes []machinestore.Change
	base    machinestore.Spot
	end     string
	// readAt is when the last read began that has found all that there was; askedAt is when somebody has asked last.
	readAt, askedAt time.Time
	// reading is closed when the read that goes on ends; nil where none does.
	reading chan struct{}
}

// after gives the changes behind a cursor, as Store.Follow does.
func (f *feed) after(ctx context.Context, from string, limit int32) ([]machinestore.Change, string, bool, error) {
	at, err := machinestore.SpotOf(from)
	if err != nil {
		return nil, "", false, err
	}
	asked := f.clock.Now()
	for {
		f.mu.Lock()
		if f.end == "" || asked.Sub(f.askedAt) > forgotten {
			f.changes, f.base, f.end, f.readAt = nil, at, from, time.Time{}
		}
		if asked.After(f.askedAt) {
			f.askedAt = asked
		}
		if before(at, f.base) {
			f.mu.Unlock()
			return f.read(ctx, from, limit)
		}
		if i := f.behind(at); i < len(f.changes) {
			last := min(i+int(limit), len(f.changes))
			// A read that was cut off at its limit has set readAt back: there is more in the database then.
			page, more := slices.Clone(f.changes[i:last]), last < len(f.changes) || f.readAt.IsZero()
			f.mu.Unlock()
			return page, page[len(page)-1].Cursor, more, nil
		}
		if f.readAt.After(asked.Add(-sharedFor)) {
			f.mu.Unlock()
			return nil, from, false, nil
		}
		if other := f.reading; other != nil {
			f.mu.Unlock()
			select {
			case <-other:
				continue
			case <-ctx.Done():
				return nil, "", false, ctx.Err()
			}
		}
		done := make(chan struct{})
		f.reading = done
		end := f.end
		f.mu.Unlock()
		err := f.goOn(ctx, end, limit)
		close(done)
		if err != nil && end != from && ctx.Err() == nil {
			return f.read(ctx, from, limit) // what is wrong may be with the shared cursor alone
		}
		if err != nil {
			return nil, "", false, err
		}
	}
}

// goOn reads what is new.
func (f *feed) goOn(ctx context.Context, end string, limit int32) error {
	began := f.clock.Now()
	page, next, more, err := f.read(ctx, end, limit)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reading = nil
	if err != nil && ctx.Err() == nil {
		f.end = "" // whoever asks next begins anew
	}
	if err != nil {
		return err
	}
	if f.end != end {
		return nil // others have begun anew meanwhile
	}
	f.changes, f.end = append(f.changes, page...), next
	if f.readAt = began; more {
		f.readAt = time.Time{}
	}
	if n := len(f.changes) - mostShared; n > 0 {
		f.base = spotOf(f.changes[n-1])
		f.changes = slices.Clone(f.changes[n:])
	}
	return nil
}

// behind is the index of the first change behind a place. Machines of one transaction are in an order of the
// database's: where the place names one that is not among them, all of them are.
func (f *feed) behind(at machinestore.Spot) int {
	i, _ := slices.BinarySearchFunc(f.changes, at.Xid, func(c machinestore.Change, xid uint64) int {
		if c.Xid < xid {
			return -1
		}
		return 1
	})
	for j := i; j < len(f.changes) && f.changes[j].Xid == at.Xid; j++ {
		if f.changes[j].Machine.GetMachineId() == at.Machine {
			return j + 1
		}
	}
	return i
}

// before reports whether changes between the places may be missing: the first is not surely at or behind the other.
func before(at, base machinestore.Spot) bool {
	return at.Xid < base.Xid || at.Xid == base.Xid && base.Machine != "" && at.Machine != base.Machine
}

func spotOf(c machinestore.Change) machinestore.Spot {
	return machinestore.Spot{Xid: c.Xid, Machine: c.Machine.GetMachineId()}
}

// changeSource is the order of changes as one kind of caller sees it.
type changeSource interface {
	Reconcile(ctx context.Context, from string, since time.Time, limit int32) (*machinestore.Changes, error)
	Follow(ctx context.Context, from string, limit int32) (all []machinestore.Change, next string, more bool, err error)
	HeadCursor(ctx context.Context) (next string, safeSince time.Time, err error)
	CheckCursor(ctx context.Context, cursor string) error
}

// changes are those that a caller may see.
type changes struct {
	changeSource
	// narrow reports that the caller is held to selections.
	narrow bool
}

// changes returns the changes that the call's caller may see.
func (s *Server) changes(ctx context.Context) (changes, error) {
	within, err := query.Within(ctx)
	if err != nil {
		return changes{}, err
	}
	if within.Narrow() {
		return changes{changeSource: s.stores.MachineFeed.Narrowed(within), narrow: true}, nil
	}
	return changes{changeSource: wholeFleet{s.stores.MachineFeed}}, nil
}

// after returns the reader of a watch. All watches of the whole fleet share one feed.
func (c changes) after(shared *feed) reader {
	if c.narrow {
		return c.Follow
	}
	return shared.after
}

// wholeFleet are the changes of every machine, in messages that are made when they are sent.
type wholeFleet struct{ fleetStore }

// fleetStore is what the store reads of the whole fleet.
type fleetStore interface {
	ReconcileSealed(ctx context.Context, from string, since time.Time, limit int32) (*machinestore.Changes, error)
	Follow(ctx context.Context, from string, limit int32) (all []machinestore.Change, next string, more bool, err error)
	HeadCursor(ctx context.Context) (next string, safeSince time.Time, err error)
	CheckCursor(ctx context.Context, cursor string) error
}

// Reconcile implements changeSource.
func (f wholeFleet) Reconcile(
	ctx context.Context, from string, since time.Time, limit int32,
) (*machinestore.Changes, error) {
	return f.ReconcileSealed(ctx, from, since, limit)
}

package operation

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/store/operationlog"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	"github.com/ingot-metal/ingot/controller/validate"
)

// watchRequest is what the requests for operations and for runs have in common.
type watchRequest interface {
	GetFilter() string
	GetCursor() string
	GetFromBeginning() bool
}

// watcher is one watch.
type watcher struct {
	*service.Base
	service.Pacer

	stores Stores
	filter operationquery.OperationFilter
	// emit sends an event on.
	emit func(ctx context.Context, e operationlog.Event, c cursor) error
	// sent holds the versions of the active operations that the watch began with: events up to them are old news.
	sent map[string]int64
}

// watch serves one watch of operations or runs: message builds what its clients get for an event.
func watch[M any](ctx context.Context, s *Server, r watchRequest, keys validate.Keys, send func(M) error,
	message func(operationlog.Event, string) (M, error),
) error {
	terms, err := validate.Filter(r.GetFilter(), keys)
	if err != nil {
		return err
	}
	filter, err := query.OperationFilter(terms)
	if err != nil {
		return err
	}
	if filter.Selections, err = query.Within(ctx); err != nil {
		return err
	}
	ctx, end := s.Streaming(ctx)
	out := service.NewSender(send, s.Clock, s.Config.SendTimeout)
	w := &watcher{
		Base:   s.Base,
		stores: s.stores,
		Pacer:  service.Pacer{Base: s.Base},
		filter: filter,
		sent:   map[string]int64{},
	}
	w.emit = func(ctx context.Context, e operationlog.Event, c cursor) error {
		m, err := message(e, c.String())
		if err != nil {
			return err
		}
		return out.Send(ctx, m)
	}
	return end(out.Finish(ctx, w.run(ctx, r)))
}

// run picks the kind of watch. A cursor goes before from_beginning, so that a client may repeat its first request.
func (w *watcher) run(ctx context.Context, r watchRequest) error {
	if w.filter.MachineID != "" {
		if _, err := w.stores.Machines.KnownMachine(ctx, w.filter.MachineID); err != nil {
			return err // rather than waiting for a machine that nobody has
		}
	}
	incarnation, err := w.Config.Incarnation(ctx)
	if err != nil {
		return err
	}
	at := cursor{Kind: cursorFeed, Incarnation: incarnation, Selections: w.filter.Selections.Digest(), Xid: "0"}
	if r.GetCursor() != "" {
		if at, err = parseCursor(r.GetCursor(), at); err != nil {
			return err
		}
	}
	switch {
	case w.filter.OperationID != "":
		return w.standing(ctx, w.one, at)
	case at.Kind == cursorOne:
		return badCursor("of a watch on one operation")
	case r.GetCursor() != "" && at.Kind == cursorFeed || r.GetCursor() == "" && r.GetFromBeginning():
		return w.standing(ctx, w.follow, at)
	}
	return w.activeThenFollow(ctx, at)
}

// standing sends the stream's header, then goes on: a client that has it misses nothing that happens from then on, even
// where nothing happens for long.
func (w *watcher) standing(ctx context.Context, goOn func(context.Context, cursor) error, at cursor) error {
	if err := grpc.SendHeader(ctx, nil); err != nil {
		return fmt.Errorf("send header: %w", err)
	}
	return goOn(ctx, at)
}

// follow sends the feed after a place, for ever.
func (w *watcher) follow(ctx context.Context, at cursor) error {
	for {
		changed := w.Mark()
		page, err := w.stores.Logs.Feed(ctx, at.pos(), w.Config.PageRows)
		if err != nil {
			return err
		}
		inside, err := w.inside(ctx, page)
		if err != nil {
			return err
		}
		for _, e := range page {
			at = at.at(cursorFeed, e.Pos)
			if !inside[e.Snapshot.GetMachineId()] {
				continue
			}
			if err := w.offer(ctx, e, at); err != nil {
				return err
			}
		}
		if err := w.rest(ctx, len(page), changed); err != nil {
			return err
		}
	}
}

// inside returns the machines of events that the caller may see as they are now.
func (w *watcher) inside(ctx context.Context, page []operationlog.Event) (map[string]bool, error) {
	var ids []string
	for _, e := range page {
		ids = append(ids, e.Snapshot.GetMachineId())
	}
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) == 0 {
		return nil, nil
	}
	return w.stores.Machines.InSelections(ctx, w.filter.Selections, ids)
}

// rest waits, unless the page was full.
func (w *watcher) rest(ctx context.Context, got int, changed <-chan struct{}) error {
	if got == int(w.Config.PageRows) {
		return nil
	}
	return w.Wait(ctx, changed)
}

// offer sends an event unless the filter leaves it out or a newer state was sent at the beginning.
func (w *watcher) offer(ctx context.Context, e operationlog.Event, at cursor) error {
	id := e.Snapshot.GetOperationId()
	old := e.Snapshot.GetVersion() <= w.sent[id]
	if finished(e.Snapshot) {
		delete(w.sent, id)
	}
	if old || !query.Matches(w.filter, e.Snapshot) {
		return nil
	}
	return w.emit(ctx, e, at)
}

func finished(op *baremetalv1.Operation) bool {
	switch op.GetPhase() {
	case baremetalv1.Operation_SUCCEEDED, baremetalv1.Operation_FAILED, baremetalv1.Operation_CANCELED:
		return true
	}
	return false
}

// activePhases in the order in which they are listed. An operation that moves on between the two lists is in neither,
// and its move is in the feed.
var activePhases = []string{"RUNNING", "PENDING"}

func activeIndex(phase string) int { return slices.Index(activePhases, phase) }

// activeThenFollow sends the state of every active operation, then the feed from where it stood before.
func (w *watcher) activeThenFollow(ctx context.Context, at cursor) error {
	if at.Kind != cursorActive {
		head, err := w.stores.Logs.FeedHead(ctx)
		if err != nil {
			return err
		}
		at = cursor{Kind: cursorActive, Incarnation: at.Incarnation, Selections: at.Selections, Xid: head.Xid,
			Phase: activePhases[0]}
	}
	return w.standing(ctx, w.activeFrom, at)
}

// activeFrom goes through the phases from where the cursor stands.
func (w *watcher) activeFrom(ctx context.Context, at cursor) error {
	head := operationlog.FeedPos{Xid: at.Xid}
	for _, phase := range activePhases[activeIndex(at.Phase):] {
		if at.Phase != phase {
			at = cursor{Kind: cursorActive, Incarnation: at.Incarnation, Selections: at.Selections, Xid: at.Xid, Phase: phase}
		}
		if err := w.active(ctx, at); err != nil {
			return err
		}
	}
	return w.follow(ctx, at.at(cursorFeed, head))
}

// active sends the operations of one phase, newest first, after the one that the cursor names.
func (w *watcher) active(ctx context.Context, at cursor) error {
	f := w.filter
	if f.Phase != "" && f.Phase != at.Phase {
		return nil
	}
	f.Phase, f.Limit = at.Phase, w.Config.PageRows
	for {
		f.BeforeID, f.BeforeTime = at.Operation, at.Time
		page, err := w.stores.OperationQueries.ListOperations(ctx, f)
		if err != nil {
			return err
		}
		for _, op := range page {
			at.Operation, at.Time = op.GetOperationId(), op.GetCreatedAt().AsTime()
			w.sent[op.GetOperationId()] = op.GetVersion()
			e := operationlog.Event{Snapshot: op, Kind: "current", Step: op.GetCurrentStage(), TS: op.GetUpdatedAt().AsTime()}
			if err := w.emit(ctx, e, at); err != nil {
				return err
			}
		}
		if len(page) < int(w.Config.PageRows) {
			return nil
		}
	}
}

// one replays one operation's events and follows them to its end.
func (w *watcher) one(ctx context.Context, at cursor) error {
	id, after := w.filter.OperationID, int64(0)
	if at.Operation == id && at.Kind != cursorActive {
		after = at.Seq
	}
	for {
		changed := w.Mark()
		// Read first: what is finished now has all its events by the time that they are read.
		op, err := w.stores.OperationQueries.GetOperation(ctx, id)
		if err != nil {
			return err
		}
		page, err := w.stores.Logs.EventsOf(ctx, id, after, w.Config.PageRows)
		if err != nil {
			return err
		}
		ended := finished(op)
		if err := w.StillInside(ctx, op.GetMachineId()); err != nil {
			return err
		}
		for _, e := range page {
			after, ended = e.Seq, ended || finished(e.Snapshot)
			if err := w.offerOne(ctx, e, at); err != nil {
				return err
			}
		}
		if ended && len(page) < int(w.Config.PageRows) {
			return nil
		}
		if err := w.rest(ctx, len(page), changed); err != nil {
			return err
		}
	}
}

// offerOne sends an event that the place where the client stands has not passed.
func (w *watcher) offerOne(ctx context.Context, e operationlog.Event, at cursor) error {
	if at.Kind == cursorFeed && !before(at.pos(), e.Pos) || !query.Matches(w.filter, e.Snapshot) {
		return nil
	}
	return w.emit(ctx, e, at.at(cursorOne, e.Pos))
}

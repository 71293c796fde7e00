package machine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/domain/machinefilter"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
)

const (
	// watchList names the list of machines that a watch begins with.
	watchList = "watch of machines"
	// inList begins a cursor that is a place in that list. All others are cursors of reconciles, which have no dot.
	inList = "list."
)

// WatchMachines implements MachineService: a walk, then the reconcile after it.
func (s *Server) WatchMachines(
	r *baremetalv1.WatchMachinesRequest, stream baremetalv1.MachineService_WatchMachinesServer,
) error {
	terms, err := query.Machines.Parse(r.GetFilter())
	if err != nil {
		return err
	}
	ctx, end := s.Streaming(stream.Context())
	changes, err := s.changes(ctx)
	if err != nil {
		return err
	}
	w := &watcher{
		Base: s.Base, changes: changes, after: changes.after(s.feed), Pacer: service.Pacer{Base: s.Base, Together: true},
		filter: machinefilter.Of(terms),
		out:    service.NewSender(stream.Send, s.Clock, s.Config.SendTimeout), has: map[string]bool{},
		resumed: r.GetCursor() != "", last: s.Clock.Now(),
	}
	list := func(start service.WalkStart) (service.List[*baremetalv1.Machine], error) {
		return s.Walk(ctx, watchList, r.GetFilter(), terms, start, false)
	}
	return end(w.out.Finish(ctx, w.run(ctx, r, list)))
}

// watcher is one watch of machines.
type watcher struct {
	*service.Base
	service.Pacer
	// changes are those that the caller may see, and after reads the next of them.
	changes changes
	after   reader
	filter  machinefilter.Filter
	out     *service.Sender[*baremetalv1.MachineEvent]
	// has records which machines the client has as matching ones. A machine without an entry is unknown to it, unless the
	// watch was resumed: then it may have it.
	has     map[string]bool
	resumed bool
	// last is when something was sent.
	last time.Time
}

// run begins at the cursor.
func (w *watcher) run(ctx context.Context, r *baremetalv1.WatchMachinesRequest,
	list func(service.WalkStart) (service.List[*baremetalv1.Machine], error),
) error {
	token, listing := strings.CutPrefix(r.GetCursor(), inList)
	if r.GetCursor() != "" && !listing {
		if err := w.changes.CheckCursor(ctx, r.GetCursor()); err != nil {
			return err
		}
		return w.standing(ctx, func() error { return w.follow(ctx, r.GetCursor()) })
	}
	at, err := w.listFrom(ctx, token, listing, r.GetFilter())
	if err != nil {
		return err
	}
	all, err := list(service.WalkStart{Cursor: at.Cursor})
	if err != nil {
		return err
	}
	return w.standing(ctx, func() error {
		if err := w.current(ctx, all, at); err != nil {
			return err
		}
		if err := w.send(ctx, baremetalv1.MachineEvent_BOOKMARK, nil, at.Cursor); err != nil {
			return err
		}
		return w.follow(ctx, at.Cursor)
	})
}

// listFrom is the place in the list at which the watch begins. It holds the cursor of before the list's first page.
func (w *watcher) listFrom(
	ctx context.Context,
	token string,
	listing bool,
	filter string,
) (at validate.Page, err error) {
	if !listing {
		at.Cursor, _, err = w.changes.HeadCursor(ctx)
		return at, err
	}
	if at, err = validate.ParsePage(token, watchList, filter); err != nil || at.Cursor == "" {
		return at, failure.Invalid("INVALID_CURSOR", "cursor: not one of a watch with this filter").
			WithField("cursor", "not one of a watch with this filter")
	}
	return at, w.changes.CheckCursor(ctx, at.Cursor)
}

// standing sends the stream's header, then goes on: a client that has it misses nothing that happens from then on.
func (w *watcher) standing(ctx context.Context, goOn func() error) error {
	if err := grpc.SendHeader(ctx, nil); err != nil {
		return fmt.Errorf("send header: %w", err)
	}
	return goOn()
}

// current sends the machines that match, from a place in their list on.
func (w *watcher) current(ctx context.Context, list service.List[*baremetalv1.Machine], at validate.Page) error {
	for {
		page, err := list.Read(ctx, at, w.Config.PageRows)
		if err != nil {
			return err
		}
		for _, m := range page {
			at = list.Place(m)
			w.note(m, true)
			token := inList + at.Token(list.Name, list.Filter)
			if err := w.send(ctx, baremetalv1.MachineEvent_CURRENT, m, token); err != nil {
				return err
			}
		}
		if len(page) < int(w.Config.PageRows) {
			return nil
		}
	}
}

// follow sends the changes after a cursor, for ever.
func (w *watcher) follow(ctx context.Context, at string) error {
	for {
		changed := w.Mark()
		page, next, more, err := w.after(ctx, at, w.Config.PageRows)
		if err != nil {
			return err
		}
		for _, c := range page {
			if kind := w.judge(c.Machine); kind != baremetalv1.MachineEvent_KIND_UNSPECIFIED {
				if err := w.send(ctx, kind, c.Machine, c.Cursor); err != nil {
					return err
				}
			}
		}
		if at = next; more {
			continue
		}
		if w.Clock.Now().Sub(w.last) >= w.Config.BookmarkEvery {
			if err := w.send(ctx, baremetalv1.MachineEvent_BOOKMARK, nil, at); err != nil {
				return err
			}
		}
		if err := w.Wait(ctx, changed); err != nil {
			return err
		}
	}
}

// judge returns the kind of a change for the client; KIND_UNSPECIFIED for none.
func (w *watcher) judge(m *baremetalv1.Machine) baremetalv1.MachineEvent_Kind {
	had, known := w.has[m.GetMachineId()]
	had = had || !known && w.resumed || w.filter.MatchesAll()
	gone := m.GetDeletedAt() != nil
	matches := !gone && w.filter.Matches(m)
	w.note(m, matches)
	switch {
	case matches:
		return baremetalv1.MachineEvent_CHANGED
	case gone && had && w.changes.narrow:
		return baremetalv1.MachineEvent_LEFT // deleted, or in no selection of the caller: it is not said which
	case gone && had:
		return baremetalv1.MachineEvent_DELETED
	case had:
		return baremetalv1.MachineEvent_LEFT
	}
	return baremetalv1.MachineEvent_KIND_UNSPECIFIED
}

// mostKnown bounds the machines that one watch remembers, and with them its memory: some 10 MB.
const mostKnown = 100_000

// note keeps what the client has. Of a filter that nothing leaves nothing need be known. A watch of too many machines
// forgets them all and goes on like one that was resumed: it may tell that machines leave which the client never had.
func (w *watcher) note(m *baremetalv1.Machine, has bool) {
	if len(w.has) >= mostKnown {
		clear(w.has)
		w.resumed = true
	}
	switch {
	case w.filter.MatchesAll():
	case has || w.resumed:
		w.has[m.GetMachineId()] = has
	default:
		delete(w.has, m.GetMachineId())
	}
}

func (w *watcher) send(
	ctx context.Context, kind baremetalv1.MachineEvent_Kind, m *baremetalv1.Machine, cursor string,
) error {
	w.last = w.Clock.Now()
	return w.out.Send(ctx, &baremetalv1.MachineEvent{Kind: kind, Machine: m, Cursor: cursor})
}

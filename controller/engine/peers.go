package engine

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/controller/session"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// What controllers announce to all, before the id of the one that does.
const (
	announceChanged = "changed "
	announceRevoked = "revoked "
	announcePeers   = "peers "
)

const (
	// announceGap is the shortest time between two announcements that something has changed.
	announceGap = 20 * time.Millisecond
	// movedEvery is how often sessions are compared with what newer ones their agents have elsewhere.
	movedEvery = 2 * time.Second
)

// listen hears other controllers until ctx ends. Whatever is missed in between is found by polling, a little later.
func (e *Engine) listen(ctx context.Context) error {
	w := work{what: "listen to other controllers"}
	for ctx.Err() == nil {
		e.attempt(ctx, &w, func(ctx context.Context) error {
			return e.store.DB.Listen(ctx, e.cfg.ControllerID, pgtx.Listener{
				Up: e.caughtUp, Announced: e.announced, HandedOver: func(payload string) { e.inbox.add("", payload) },
			})
		})
		select {
		case <-ctx.Done():
		case <-e.clock.After(listenAgain/2 + rand.N(listenAgain)):
		}
	}
	return nil
}

// listenAgain is about the pause before a broken connection is opened again.
const listenAgain = 500 * time.Millisecond

// caughtUp looks at everything that may have been missed.
func (e *Engine) caughtUp() {
	e.wake()
	e.heardOfRevocation()
	e.signals.unheard.fire()
	e.signals.peers.fire()
}

func (e *Engine) announced(payload string) {
	if strings.HasSuffix(payload, " "+e.cfg.ControllerID) {
		return
	}
	switch {
	case strings.HasPrefix(payload, announceChanged):
		e.wake()
	case strings.HasPrefix(payload, announceRevoked):
		e.heardOfRevocation()
	case strings.HasPrefix(payload, announcePeers):
		e.signals.peers.fire()
	}
}

// takeForwarded works off what was handed over, apart from the connection that hears it.
func (e *Engine) takeForwarded(ctx context.Context) error {
	w := work{what: "take commands over"}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.inbox.waiting:
		}
		for more := true; more; {
			var items []string
			_, items, more = e.inbox.take(handOverPage)
			e.attempt(ctx, &w, func(ctx context.Context) error { return e.forwarded(ctx, strings.Join(items, " ")) })
		}
	}
}

// tellChanges announces changes to other controllers, whose watchers wait for them: at once, and then not before a gap.
func (e *Engine) tellChanges(ctx context.Context) error {
	w := work{what: "announce changes"}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.signals.changed:
		}
		if e.peers.Load() > 0 {
			e.attempt(ctx, &w, func(ctx context.Context) error { return e.announce(ctx, announceChanged) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-e.clock.After(announceGap):
		}
	}
}

func (e *Engine) announce(ctx context.Context, what string) error {
	limited, cancel := context.WithTimeout(ctx, e.cfg.Lease/3)
	defer cancel()
	return e.store.Sessions.Announce(limited, what+e.cfg.ControllerID)
}

// findPeers counts the other controllers, with none of which there is nobody to tell anything, and the fleet.
func (e *Engine) findPeers(ctx context.Context) error {
	p, err := e.store.Sessions.Peers(ctx, e.cfg.ControllerID, e.clock.Now())
	if err != nil {
		return err
	}
	e.peers.Store(int64(p.Others))
	e.slowest.Store(int64(p.Heartbeat))
	return e.scaleHeartbeat(ctx)
}

// closeMovedSessions ends the sessions that are over in the database: of agents that have opened a newer one on another
// controller, and those that were ended while this controller's lease was, or seemed to be, over. On other hardware
// they are asked first: an answer proves a clone.
func (e *Engine) closeMovedSessions(ctx context.Context) error {
	all := e.cfg.Sessions.All()
	if len(all) == 0 {
		return nil
	}
	epochs := make(map[string]int64, len(all))
	for _, s := range all {
		epochs[s.AgentID] = s.Epoch
	}
	moved, err := e.store.Sessions.MovedSessions(ctx, epochs)
	if err != nil {
		return err
	}
	for _, m := range moved {
		if s := e.cfg.Sessions.Get(m.AgentID); m.Ended && s != nil && s.Epoch == m.Epoch {
			// Nothing is decided for an agent that counts as gone: it has to come again.
			s.Close(session.ErrLeaseLost)
			continue
		}
		if old := e.cfg.Sessions.Supersede(m.AgentID, m.Hardware, m.Epoch); old != nil {
			session.Retire(old, e.clock)
		}
	}
	return nil
}

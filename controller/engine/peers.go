package engine

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ingot-metal/ingot/controller/limit/reconnect"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
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

// peers knows the other controllers, announces what concerns them, and hears what they announce.
type peers struct {
	common
	db          *pgtx.DB
	sessions    *sessionstore.Store
	revocations *revocations
	changes     *changes
	signals     signals
	inbox       *outbox
	// others counts the other controllers that are alive; slowest is the longest heartbeat interval in use, in
	// nanoseconds.
	others, slowest atomic.Int64
	// interval is the heartbeat interval that new sessions are told, told the longest one that any was, in nanoseconds.
	interval, told atomic.Int64
}

// listen hears other controllers until ctx ends. Whatever is missed in between is found by polling, a little later.
func (p *peers) listen(ctx context.Context) error {
	w := work{what: "listen to other controllers"}
	for ctx.Err() == nil {
		p.attempt(ctx, &w, func(ctx context.Context) error {
			return p.db.Listen(ctx, p.cfg.ControllerID, pgtx.Listener{
				Up: p.caughtUp, Announced: p.announced, HandedOver: func(payload string) { p.inbox.add("", payload) },
			})
		})
		select {
		case <-ctx.Done():
		case <-p.clock.After(listenAgain/2 + rand.N(listenAgain)):
		}
	}
	return nil
}

// listenAgain is about the pause before a broken connection is opened again.
const listenAgain = 500 * time.Millisecond

// caughtUp looks at everything that may have been missed.
func (p *peers) caughtUp() {
	p.changes.wake()
	p.revocations.heard()
	p.signals.unheard.fire()
	p.signals.peers.fire()
}

func (p *peers) announced(payload string) {
	if strings.HasSuffix(payload, " "+p.cfg.ControllerID) {
		return
	}
	switch {
	case strings.HasPrefix(payload, announceChanged):
		p.changes.wake()
	case strings.HasPrefix(payload, announceRevoked):
		p.revocations.heard()
	case strings.HasPrefix(payload, announcePeers):
		p.signals.peers.fire()
	}
}

// tellChanges announces changes to other controllers, whose watchers wait for them: at once, and then not before a gap.
func (p *peers) tellChanges(ctx context.Context) error {
	w := work{what: "announce changes"}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.signals.changed:
		}
		if p.others.Load() > 0 {
			p.attempt(ctx, &w, func(ctx context.Context) error { return p.announce(ctx, announceChanged) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.clock.After(announceGap):
		}
	}
}

func (p *peers) announce(ctx context.Context, what string) error {
	limited, cancel := context.WithTimeout(ctx, p.cfg.Lease/3)
	defer cancel()
	return p.sessions.Announce(limited, what+p.cfg.ControllerID)
}

// findPeers counts the other controllers, without which nothing is announced, and the fleet.
func (p *peers) findPeers(ctx context.Context) error {
	found, err := p.sessions.Peers(ctx, p.cfg.ControllerID, p.clock.Now())
	if err != nil {
		return err
	}
	p.others.Store(int64(found.Others))
	p.slowest.Store(int64(found.Heartbeat))
	return p.scaleHeartbeat(ctx)
}

// count counts the other controllers that are alive.
func (p *peers) count() int { return int(p.others.Load()) }

// greet learns of the other controllers, and has them learn of this one.
func (p *peers) greet(ctx context.Context) {
	w := work{what: "greet other controllers"}
	p.attempt(ctx, &w, func(ctx context.Context) error {
		return p.sessions.DescribeController(ctx, p.cfg.ControllerID, p.cfg.Hostname)
	})
	p.attempt(ctx, &w, p.findPeers)
	p.attempt(ctx, &w, func(ctx context.Context) error { return p.announce(ctx, announcePeers) })
}

// leave ends the sessions and the lease, so that what this controller held is free at once.
func (p *peers) leave(ctx context.Context) {
	if err := p.sessions.EndSessionsOf(ctx, p.cfg.ControllerID, p.clock.Now()); err != nil {
		p.log.Warn("sessions not ended in the database; their lease will run out", "error", err.Error())
	}
	err := p.sessions.ReleaseLease(ctx, p.cfg.ControllerID, p.clock.Now())
	if err == nil && p.others.Load() > 0 {
		err = p.announce(ctx, announcePeers)
	}
	if err != nil {
		p.log.Warn("lease not released; it will run out", "error", err.Error())
	}
}

// heartbeatInterval is what a new session is told.
func (p *peers) heartbeatInterval() time.Duration {
	return max(p.cfg.Heartbeat, time.Duration(p.interval.Load()))
}

// slowestHeartbeat is the longest interval that any live session may have been told, here or on other controllers.
func (p *peers) slowestHeartbeat() time.Duration {
	return max(p.cfg.Heartbeat, time.Duration(p.told.Load()), time.Duration(p.slowest.Load()))
}

// scaleHeartbeat lets the interval follow the size of the fleet. A longer one is stored before the first session is
// told: who judges silence, on any controller, knows of it by then. It counts for as long as this controller lives,
// since sessions keep what they were told.
func (p *peers) scaleHeartbeat(ctx context.Context) error {
	n, err := p.sessions.CountLiveSessions(ctx)
	if err != nil {
		return err
	}
	want := reconnect.Heartbeat(p.cfg.Heartbeat, int(n), int(p.others.Load())+1)
	if want > p.cfg.Heartbeat && int64(want) > p.told.Load() {
		if err := p.sessions.SetHeartbeat(ctx, p.cfg.ControllerID, want); err != nil {
			return err
		}
		p.told.Store(int64(want))
		p.log.Info("the heartbeat interval grows with the fleet", "sessions", n, "interval", want.String())
	}
	p.interval.Store(int64(want))
	return nil
}

package engine

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/ingot-metal/ingot/controller/session"
)

// sessionScan are what goes through all sessions again and again. What they cost must not grow with what has not
// changed.
type sessionScan struct {
	// beats is when heartbeats were stored last; only their loop uses it.
	beats time.Time
	// listened is since when rounds of heartbeats have followed one another without a gap, and lastListened the last of
	// them. keptSilent is when silent sites were gone through last. Only the loop of heartbeats uses them.
	listened, lastListened, keptSilent time.Time
	// revoked says that a revocation was announced. turn numbers the looks where none was; only their loop uses it.
	revoked atomic.Bool
	turn    uint64
}

// beatsGap is the shortest time between two rounds of heartbeats, however many sessions are opened. It is below their
// period.
const beatsGap = 900 * time.Millisecond

// heartbeats stores when agents were last heard, in one statement, ends sessions that have gone silent, and moves the
// condition Reachable.
func (e *Engine) heartbeats(ctx context.Context) error {
	now := e.clock.Now()
	if since := now.Sub(e.rounds.beats); since >= 0 && since < beatsGap {
		return nil // the next tick comes soon
	}
	e.rounds.beats = now
	silentSince := now.Add(-time.Duration(e.cfg.MissedBeats) * e.slowestHeartbeat())
	at := map[string]time.Time{}
	var heard []*session.Session
	for _, s := range e.cfg.Sessions.All() {
		if beat, ok := s.Unstored(); ok {
			at[s.SessionID] = beat
			heard = append(heard, s)
		}
		if s.LastBeat().Before(silentSince) {
			s.Close(session.ErrSilent)
		}
	}
	if len(at) > 0 {
		if err := e.store.FlushHeartbeats(ctx, at); err != nil {
			return err
		}
		for _, s := range heard {
			s.Stored(at[s.SessionID])
		}
	}
	if err := e.store.UpdateReachable(ctx, silentSince, now); err != nil {
		return err
	}
	return e.sites(ctx, silentSince, now)
}

const (
	// listenGap is between two rounds of heartbeats without an interruption of listening.
	listenGap = 5 * time.Second
	// keepSilentEvery is how often silent sites are gone through for conditions that have lost their witness since.
	keepSilentEvery = 10 * time.Second
)

// sites begins and ends the silence of sites. It counts only while this controller has listened without a gap.
func (e *Engine) sites(ctx context.Context, silentSince, now time.Time) error {
	r := &e.rounds
	if r.listened.IsZero() || now.Sub(r.lastListened) > listenGap {
		r.listened = now
	}
	r.lastListened = now
	if err := e.store.UpdateSites(ctx, silentSince, r.listened, now); err != nil {
		return err
	}
	if now.Sub(r.keptSilent) < keepSilentEvery {
		return nil
	}
	r.keptSilent = now
	return e.store.KeepSilent(ctx, silentSince, now)
}

// heardOfRevocation has all sessions looked at.
func (e *Engine) heardOfRevocation() {
	e.rounds.revoked.Store(true)
	e.signals.revoked.fire()
}

// revocations ends sessions whose certificate another controller has revoked: it looks at all when it was told of one,
// and otherwise at some, in turns.
func (e *Engine) revocations(ctx context.Context) error {
	told := e.rounds.revoked.Swap(false)
	used := e.rounds.certificates(e.cfg.Sessions.All(), told)
	if len(used) == 0 {
		return nil
	}
	gone, err := e.store.RevokedAmong(ctx, used)
	if err != nil {
		if told {
			e.rounds.revoked.Store(true)
		}
		return err
	}
	e.cfg.Sessions.CloseFingerprints(gone, session.ErrRevoked)
	return nil
}

// revocationsAtOnce is about how many sessions are looked at each time where nobody has announced a revocation.
const revocationsAtOnce = 2000

var partSeed = maphash.MakeSeed()

// certificates gives those of all sessions, or of the part of them whose turn it is.
func (r *sessionScan) certificates(all []*session.Session, whole bool) []string {
	parts := uint64(1)
	if !whole {
		parts = uint64(len(all)/revocationsAtOnce + 1)
	}
	r.turn++
	var used []string
	for _, s := range all {
		if maphash.String(partSeed, s.AgentID)%parts == r.turn%parts {
			used = append(used, s.Fingerprint)
		}
	}
	return used
}

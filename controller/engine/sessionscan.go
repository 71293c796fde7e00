package engine

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/ingot-metal/ingot/controller/limit/reconnect"
	"github.com/ingot-metal/ingot/controller/session"
)

// sessionScan is the state of what goes through all sessions again and again. Its cost must not grow with what has not
// changed.
type sessionScan struct {
	// beats is when heartbeats were stored last, by the monotonic clock; only their loop uses it.
	beats time.Time
	// listeningSince is when this controller began to hear its sessions without a pause of its own.
	listeningSince time.Time
	// fleetSince is since when the fleet's controllers have listened, as of the last round.
	fleetSince time.Time
	// keptSilent is when silent sites were gone through last; only the loop of heartbeats uses it.
	keptSilent time.Time
	// revoked says that a revocation was announced. turn numbers the looks where none was; only their loop uses it.
	revoked atomic.Bool
	turn    uint64
}

const (
	// beatsGap is the shortest time between two rounds of heartbeats, however many sessions are opened. It is below
	// their period.
	beatsGap = 900 * time.Millisecond
	// listeningGap is the longest time between two rounds in which the controllers count as listening: three periods.
	listeningGap = 3 * time.Second
)

// heartbeats stores when agents were last heard, in one statement, ends sessions that have gone silent, and moves the
// condition Reachable.
func (e *Engine) heartbeats(ctx context.Context) error {
	tick := e.cfg.Monotonic.Now()
	pause := tick.Sub(e.rounds.beats)
	if pause >= 0 && pause < beatsGap {
		return nil // the next tick comes soon
	}
	now := e.clock.Now()
	if pause > listeningGap {
		e.rounds.listeningSince = now // a process that stood still has heard nothing
	}
	e.rounds.beats = tick
	silentSince := now.Add(-e.silenceLimit())
	at := map[string]time.Time{}
	var heard []*session.Session
	for _, s := range e.cfg.Sessions.All() {
		if beat, ok := s.Unstored(); ok {
			at[s.SessionID] = beat
			heard = append(heard, s)
		}
		if s.LastBeat().Before(silentSince) && e.rounds.listeningSince.Before(silentSince) {
			s.Close(session.ErrSilent)
		}
	}
	if len(at) > 0 {
		if err := e.store.Sessions.FlushHeartbeats(ctx, at); err != nil {
			return err
		}
		for _, s := range heard {
			s.Stored(at[s.SessionID])
		}
	}
	if err := e.extendListening(ctx); err != nil {
		return err
	}
	if err := e.store.NodeStates.UpdateReachable(ctx, silentSince, now); err != nil {
		return err
	}
	return e.sites(ctx, silentSince, now)
}

// keepSilentEvery is how often silent sites are gone through for conditions that have lost their witness since.
const keepSilentEvery = 10 * time.Second

// sites begins and ends the silence of sites.
func (e *Engine) sites(ctx context.Context, silentSince, now time.Time) error {
	r := &e.rounds
	if err := e.store.Sites.UpdateSites(ctx, silentSince, now); err != nil {
		return err
	}
	if now.Sub(r.keptSilent) < keepSilentEvery {
		return nil
	}
	r.keptSilent = now
	return e.store.Sites.KeepSilent(ctx, silentSince, now)
}

// silenceLimit is how long an agent may be silent before it counts as gone.
func (e *Engine) silenceLimit() time.Duration {
	return time.Duration(e.cfg.MissedBeats) * e.slowestHeartbeat()
}

// extendListening records that agents can reach this controller. While they can't, no silence of them counts.
func (e *Engine) extendListening(ctx context.Context) error {
	if !e.lease.Fresh() || !e.cfg.Serving() {
		return nil
	}
	since, err := e.store.Incarnations.ExtendListening(ctx, e.cfg.ControllerID, listeningGap, e.reconnectTime())
	if err != nil || since.Equal(e.rounds.fleetSince) {
		return err
	}
	e.rounds.fleetSince = since
	agents, err := e.store.Sessions.CountSessions(ctx)
	if err != nil {
		return err
	}
	e.agents.Store(agents)
	if since.Unix() > 0 {
		e.log.Info("agents can be heard again; the silence of none counts before they have had the time to come back",
			"since", since.UTC().Format(time.RFC3339), "agents", agents, "time", e.reconnectTime().String())
	}
	_, err = e.store.Incarnations.ExtendListening(ctx, e.cfg.ControllerID, listeningGap, e.reconnectTime())
	return err
}

// reconnectTime is how long all agents may take to come back after their controllers were away.
func (e *Engine) reconnectTime() time.Duration {
	return reconnect.Time(e.cfg.Admission, int(e.agents.Load()), int(e.peers.Load())+1) + e.slowestHeartbeat()
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
	gone, err := e.store.Agents.RevokedAmong(ctx, used)
	if err != nil {
		if told {
			e.rounds.revoked.Store(true)
		}
		return err
	}
	e.cfg.Sessions.CloseFingerprints(gone, session.ErrRevoked)
	return nil
}

// claimContestable is how long a rescue system that nothing but its place on the network proves can be contested. It is
// longer than slow firmware takes from power-on to the network.
const claimContestable = 10 * time.Minute

// endRescues ends the assignments of rescue systems that have done their work.
func (e *Engine) endRescues(ctx context.Context) error {
	now := e.clock.Now()
	gone, err := e.store.Operations.EndRescues(ctx, now.Add(-claimContestable), now)
	if err != nil {
		return err
	}
	e.revoked(ctx, gone)
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

package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ingot-metal/ingot/controller/limit/reconnect"
	"github.com/ingot-metal/ingot/controller/session"
	"github.com/ingot-metal/ingot/controller/store/incarnation"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
)

// sessionScan goes through all sessions of this controller, and judges the silence of agents and sites. Its cost must
// not grow with what has not changed.
type sessionScan struct {
	common
	lease        *lease
	peers        *peers
	sessions     *sessionstore.Store
	nodestates   *nodestate.Store
	sites        *sitestore.Store
	incarnations *incarnation.Store
	// beats is when heartbeats were stored last, by the monotonic clock; only their loop uses it.
	beats time.Time
	// listeningSince is when this controller began to hear its sessions without a pause of its own.
	listeningSince time.Time
	// fleetSince is since when the fleet's controllers have listened, as of the last round.
	fleetSince time.Time
	// keptSilent is when silent sites were gone through last; only the loop of heartbeats uses it.
	keptSilent time.Time
	// known counts the agents that may come back after a time in which no controller listened.
	known atomic.Int64
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
func (sc *sessionScan) heartbeats(ctx context.Context) error {
	tick := sc.cfg.Monotonic.Now()
	pause := tick.Sub(sc.beats)
	if pause >= 0 && pause < beatsGap {
		return nil // the next tick comes soon
	}
	now := sc.clock.Now()
	if pause > listeningGap {
		sc.listeningSince = now // a process that stood still has heard nothing
	}
	sc.beats = tick
	silentSince := now.Add(-sc.silenceLimit())
	at := map[string]time.Time{}
	var heard []*session.Session
	for _, s := range sc.cfg.Sessions.All() {
		if beat, ok := s.Unstored(); ok {
			at[s.SessionID] = beat
			heard = append(heard, s)
		}
		if s.LastBeat().Before(silentSince) && sc.listeningSince.Before(silentSince) {
			s.Close(session.ErrSilent)
		}
	}
	if len(at) > 0 {
		if err := sc.sessions.FlushHeartbeats(ctx, at); err != nil {
			return err
		}
		for _, s := range heard {
			s.Stored(at[s.SessionID])
		}
	}
	if err := sc.extendListening(ctx); err != nil {
		return err
	}
	if err := sc.nodestates.UpdateReachable(ctx, silentSince, now); err != nil {
		return err
	}
	return sc.updateSites(ctx, silentSince, now)
}

// keepSilentEvery is how often silent sites are gone through for conditions that have lost their witness since.
const keepSilentEvery = 10 * time.Second

// updateSites begins and ends the silence of sites.
func (sc *sessionScan) updateSites(ctx context.Context, silentSince, now time.Time) error {
	if err := sc.sites.UpdateSites(ctx, silentSince, now); err != nil {
		return err
	}
	if now.Sub(sc.keptSilent) < keepSilentEvery {
		return nil
	}
	sc.keptSilent = now
	return sc.sites.KeepSilent(ctx, silentSince, now)
}

// silenceLimit is how long an agent may be silent before it counts as gone.
func (sc *sessionScan) silenceLimit() time.Duration {
	return time.Duration(sc.cfg.MissedBeats) * sc.peers.slowestHeartbeat()
}

// extendListening records that agents can reach this controller. While they can't, no silence of them counts.
func (sc *sessionScan) extendListening(ctx context.Context) error {
	if !sc.lease.Fresh() || !sc.cfg.Serving() {
		return nil
	}
	since, err := sc.incarnations.ExtendListening(ctx, sc.cfg.ControllerID, listeningGap, sc.reconnectTime())
	if err != nil || since.Equal(sc.fleetSince) {
		return err
	}
	sc.fleetSince = since
	agents, err := sc.sessions.CountSessions(ctx)
	if err != nil {
		return err
	}
	sc.known.Store(agents)
	if since.Unix() > 0 {
		sc.log.Info("agents can be heard again; the silence of none counts before they have had the time to come back",
			"since", since.UTC().Format(time.RFC3339), "agents", agents, "time", sc.reconnectTime().String())
	}
	_, err = sc.incarnations.ExtendListening(ctx, sc.cfg.ControllerID, listeningGap, sc.reconnectTime())
	return err
}

// reconnectTime is how long all agents may take to come back after their controllers were away.
func (sc *sessionScan) reconnectTime() time.Duration {
	return reconnect.Time(sc.cfg.Admission, int(sc.known.Load()),
		int(sc.peers.others.Load())+1) + sc.peers.slowestHeartbeat()
}

// closeMovedSessions ends the sessions that are over in the database: of agents that have opened a newer one on another
// controller, and those that were ended while this controller's lease was, or seemed to be, over. On other hardware
// they are asked first: an answer proves a clone.
func (sc *sessionScan) closeMovedSessions(ctx context.Context) error {
	all := sc.cfg.Sessions.All()
	if len(all) == 0 {
		return nil
	}
	epochs := make(map[string]int64, len(all))
	for _, s := range all {
		epochs[s.AgentID] = s.Epoch
	}
	moved, err := sc.sessions.MovedSessions(ctx, epochs)
	if err != nil {
		return err
	}
	for _, m := range moved {
		if s := sc.cfg.Sessions.Get(m.AgentID); m.Ended && s != nil && s.Epoch == m.Epoch {
			// Nothing is decided for an agent that counts as gone: it has to come again.
			s.Close(session.ErrLeaseLost)
			continue
		}
		if old := sc.cfg.Sessions.Supersede(m.AgentID, m.Hardware, m.Epoch); old != nil {
			session.Retire(old, sc.clock)
		}
	}
	return nil
}

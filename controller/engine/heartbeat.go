package engine

import (
	"context"
	"time"

	"github.com/ingot-metal/ingot/controller/limit/reconnect"
)

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

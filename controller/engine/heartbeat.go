package engine

import (
	"context"
	"time"

	"github.com/ingot-metal/ingot/controller/limit/reconnect"
)

// HeartbeatInterval is what a new session is told.
func (e *Engine) HeartbeatInterval() time.Duration {
	return max(e.cfg.Heartbeat, time.Duration(e.interval.Load()))
}

// slowestHeartbeat is the longest interval that any live session may have been told, here or on other controllers.
func (e *Engine) slowestHeartbeat() time.Duration {
	return max(e.cfg.Heartbeat, time.Duration(e.told.Load()), time.Duration(e.slowest.Load()))
}

// scaleHeartbeat lets the interval follow the size of the fleet. A longer one is stored before the first session is
// told: who judges silence, on any controller, knows of it by then. It counts for as long as this controller lives,
// since sessions keep what they were told.
func (e *Engine) scaleHeartbeat(ctx context.Context) error {
	n, err := e.store.Sessions.CountLiveSessions(ctx)
	if err != nil {
		return err
	}
	want := reconnect.Heartbeat(e.cfg.Heartbeat, int(n), int(e.peers.Load())+1)
	if want > e.cfg.Heartbeat && int64(want) > e.told.Load() {
		if err := e.store.Sessions.SetHeartbeat(ctx, e.cfg.ControllerID, want); err != nil {
			return err
		}
		e.told.Store(int64(want))
		e.log.Info("the heartbeat interval grows with the fleet", "sessions", n, "interval", want.String())
	}
	e.interval.Store(int64(want))
	return nil
}

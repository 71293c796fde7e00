package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Peers are the controllers whose leases hold.
type Peers struct {
	// Others counts those besides the one that asks.
	Others int
	// Heartbeat is the longest interval that any of them has told its sessions; 0 where it is the configured one.
	Heartbeat time.Duration
}

// Peers reads who is alive besides a controller.
func (s *Store) Peers(ctx context.Context, controllerID string, now time.Time) (Peers, error) {
	rows, err := s.db.Q.ControllersAlive(ctx, now)
	if err != nil {
		return Peers{}, fmt.Errorf("read controllers: %w", err)
	}
	var out Peers
	for _, r := range rows {
		if r.ControllerID != controllerID {
			out.Others++
		}
		out.Heartbeat = max(out.Heartbeat, time.Duration(r.HeartbeatMs)*time.Millisecond)
	}
	return out, nil
}

// SetHeartbeat records the longest interval that a controller has told its sessions. It must be stored before the first
// of them is notified.
func (s *Store) SetHeartbeat(ctx context.Context, controllerID string, every time.Duration) error {
	err := s.db.Q.SetHeartbeat(ctx, dbsqlc.SetHeartbeatParams{ControllerID: controllerID,
		HeartbeatMs: every.Milliseconds()})
	if err != nil {
		return fmt.Errorf("record heartbeat interval: %w", err)
	}
	return nil
}

// Time is what time it is at the database.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	now, err := s.db.Q.DatabaseTime(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("ask the database for the time: %w", err)
	}
	return now, nil
}

// ReleaseLease ends a controller's lease, so that no controller waits for its end.
func (s *Store) ReleaseLease(ctx context.Context, controllerID string, now time.Time) error {
	if err := s.db.Q.ReleaseLease(ctx, dbsqlc.ReleaseLeaseParams{ControllerID: controllerID, Now: now}); err != nil {
		return fmt.Errorf("release lease: %w", err)
	}
	return nil
}

// ForgetControllers deletes the records of controllers whose leases have ended before a time, 1,000 at most, and
// returns their number.
func (s *Store) ForgetControllers(ctx context.Context, before time.Time) (int64, error) {
	n, err := s.db.Q.ForgetControllers(ctx, dbsqlc.ForgetControllersParams{Before: before, MaxRows: 1000})
	if err != nil {
		return 0, fmt.Errorf("forget controllers: %w", err)
	}
	return n, nil
}

// CountLiveSessions counts the sessions of all controllers.
func (s *Store) CountLiveSessions(ctx context.Context) (int64, error) {
	n, err := s.db.Q.CountLiveSessions(ctx)
	if err != nil {
		return 0, fmt.Errorf("count sessions: %w", err)
	}
	return n, nil
}

// CountSessions returns how many agents have ever had a session.
func (s *Store) CountSessions(ctx context.Context) (int64, error) {
	n, err := s.db.Q.CountSessions(ctx)
	if err != nil {
		return 0, fmt.Errorf("count agents that may come back: %w", err)
	}
	return n, nil
}

// HandOver notifies the controllers that hold the agents' sessions, other than the caller's, of items: one message for
// each of them, in a transaction of its own. agentIDs and items go in pairs; items hold no spaces, and all of them
// together fit into one message (8,000 bytes, the limit of NOTIFY).
func (s *Store) HandOver(ctx context.Context, controllerID string, agentIDs, items []string) error {
	err := s.db.Q.HandOver(ctx, dbsqlc.HandOverParams{AgentIds: agentIDs, Items: items, ControllerID: controllerID})
	if err != nil {
		return fmt.Errorf("hand over: %w", err)
	}
	return nil
}

// Announce notifies every listening controller.
func (s *Store) Announce(ctx context.Context, payload string) error {
	if err := s.db.Q.Announce(ctx, dbsqlc.AnnounceParams{Channel: pgtx.Everybody, Payload: payload}); err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	return nil
}

// HeldOut is a command as another controller has handed it over.
type HeldOut struct {
	operationstore.Outgoing
	State operation.CommandState
}

// HeldOut reads commands that were handed over.
func (s *Store) HeldOut(ctx context.Context, commandIDs []string) ([]HeldOut, error) {
	rows, err := s.db.Q.CommandsHeldOut(ctx, commandIDs)
	if err != nil {
		return nil, fmt.Errorf("read commands that were handed over: %w", err)
	}
	out := make([]HeldOut, 0, len(rows))
	for _, r := range rows {
		out = append(out,
			HeldOut{operationstore.Outgoing{CommandID: r.CommandID, ExecutorID: r.ExecutorID, Spec: r.Spec, Digest: r.Digest},
				operation.CommandState(r.State)})
	}
	return out, nil
}

// UnansweredCommand is a command, or the cancel of one, that its executor has not answered.
type UnansweredCommand struct {
	operationstore.Outgoing
	Cancel bool
	Since  time.Time
}

// UnansweredCommand reads what agents with sessions on a controller have not answered since a time.
func (s *Store) UnansweredCommands(
	ctx context.Context, controllerID string, before time.Time,
) ([]UnansweredCommand, error) {
	rows, err := s.db.Q.Unheard(ctx, dbsqlc.UnheardParams{ControllerID: controllerID, Before: &before})
	if err != nil {
		return nil, fmt.Errorf("read unheard commands: %w", err)
	}
	out := make([]UnansweredCommand, 0, len(rows))
	for _, r := range rows {
		out = append(out,
			UnansweredCommand{operationstore.Outgoing{CommandID: r.CommandID, ExecutorID: r.ExecutorID, Spec: r.Spec,
				Digest: r.Digest}, r.Cancel, r.Since})
	}
	return out, nil
}

// Moved is an agent that has opened a newer session on another controller. With Ended there is none newer: another
// controller has ended this one, since the lease that it is under seemed to be over.
type Moved struct {
	AgentID, Hardware string
	Epoch             int64
	Ended             bool
}

// MovedSessions returns those of these sessions that are over: no longer the newest of their agents, or ended by
// others.
func (s *Store) MovedSessions(ctx context.Context, epochs map[string]int64) ([]Moved, error) {
	p := dbsqlc.MovedSessionsParams{}
	for id, epoch := range epochs {
		p.AgentIds = append(p.AgentIds, id)
		p.Epochs = append(p.Epochs, epoch)
	}
	rows, err := s.db.Q.MovedSessions(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("read moved sessions: %w", err)
	}
	out := make([]Moved, 0, len(rows))
	for _, r := range rows {
		out = append(out, Moved{r.AgentID, r.HardwareFingerprint, r.Epoch, r.Ended})
	}
	return out, nil
}

// DescribeController records on which machine a controller runs.
func (s *Store) DescribeController(ctx context.Context, controllerID, hostname string) error {
	if err := s.db.Q.DescribeController(ctx, dbsqlc.DescribeControllerParams{ControllerID: controllerID,
		Hostname: hostname}); err != nil {
		return fmt.Errorf("describe controller: %w", err)
	}
	return nil
}

// DrainController records that a controller sends its agents elsewhere.
func (s *Store) DrainController(ctx context.Context, controllerID string, now time.Time) error {
	if err := s.db.Q.DrainController(ctx, dbsqlc.DrainControllerParams{ControllerID: controllerID,
		Now: &now}); err != nil {
		return fmt.Errorf("record that the controller drains: %w", err)
	}
	return nil
}

// ListControllers reads controllers, the newest first, after the one with an id; those that have ended only with all.
func (s *Store) ListControllers(
	ctx context.Context, all bool, beforeID string, limit int32, now time.Time,
) ([]*baremetalv1.Controller, error) {
	rows, err := s.db.Lists(ctx).ListControllers(ctx,
		dbsqlc.ListControllersParams{GoneToo: all, BeforeID: beforeID, PageSize: limit, Now: now})
	if err != nil {
		return nil, fmt.Errorf("list controllers: %w", err)
	}
	var leader string
	// River's own table: who is elected keeps it for some seconds, by Postgres' clock.
	err = s.db.Pool().QueryRow(ctx, "SELECT leader_id FROM river_leader WHERE expires_at > now() LIMIT 1").Scan(&leader)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("read who leads: %w", err)
	}
	out := make([]*baremetalv1.Controller, 0, len(rows))
	for _, r := range rows {
		k := &baremetalv1.Controller{
			ControllerId: r.ControllerID, Version: r.Version, Hostname: r.Hostname, State: baremetalv1.Controller_SERVING,
			Sessions: r.Sessions,
			Leads:    r.ControllerID == leader, StartedAt: convert.Timestamp(r.StartedAt),
			LeaseUntil: convert.Timestamp(r.LeaseUntil), DrainingSince: convert.TimestampPtr(r.DrainingSince),
			HeartbeatIntervalMs: r.HeartbeatMs,
		}
		switch {
		case !r.LeaseUntil.After(now):
			k.State = baremetalv1.Controller_GONE
		case r.DrainingSince != nil:
			k.State = baremetalv1.Controller_DRAINING
		}
		out = append(out, k)
	}
	return out, nil
}

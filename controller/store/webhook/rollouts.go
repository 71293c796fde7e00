package webhook

import (
	"context"
	"fmt"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	rolloutstore "github.com/ingot-metal/ingot/controller/store/rollout"
	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/ids"
)

// takeRolloutEvents takes the events of rollouts. Their machines are read only where a filter asks for them.
func (s *Store) takeRolloutEvents(
	ctx context.Context, q *dbsqlc.Queries, hooks []dbsqlc.Webhook, limit int32, out *FannedOut,
) ([]happened, error) {
	changes, err := q.TakeRolloutChanges(ctx, limit)
	if err != nil {
		return nil, fmt.Errorf("take changes of rollouts: %w", err)
	}
	if len(changes) == 0 {
		return nil, nil
	}
	out.Events, out.More = out.Events+len(changes), out.More || len(changes) == int(limit)
	rollouts, err := rolloutsOf(ctx, q, changes)
	if err != nil {
		return nil, err
	}
	machines := map[string][]*baremetalv1.Machine{}
	if filtersRollouts(hooks) {
		for id := range rollouts {
			if machines[id], err = s.machinesOfRollout(ctx, q, id); err != nil {
				return nil, err
			}
		}
	}
	events := make([]happened, 0, len(changes))
	for _, c := range changes {
		r := rollouts[c.RolloutID]
		if r == nil {
			continue // rollouts are never deleted; a database that was put together by hand may lack one
		}
		events = append(events, happened{machines: machines[c.RolloutID], Event: webhook.Event{
			ID: ids.New(ids.Event), Type: webhook.TypeOfRollout(c.Kind), Subject: c.RolloutID, Time: c.Ts,
			From: c.FromValue, To: c.ToValue, Data: r,
		}})
	}
	return events, nil
}

func rolloutsOf(
	ctx context.Context, q *dbsqlc.Queries, changes []dbsqlc.WebhookRollout,
) (map[string]*baremetalv1.Rollout, error) {
	idList := make([]string, 0, len(changes))
	for _, c := range changes {
		idList = append(idList, c.RolloutID)
	}
	rows, err := q.RolloutsByIDs(ctx, idList)
	if err != nil {
		return nil, fmt.Errorf("read rollouts: %w", err)
	}
	all, err := rolloutstore.RolloutMessages(ctx, q, rows)
	if err != nil {
		return nil, err
	}
	out := map[string]*baremetalv1.Rollout{}
	for _, r := range all {
		out[r.GetRolloutId()] = r
	}
	return out, nil
}

// filtersRollouts reports whether anybody wants to hear of the rollouts of some machines only.
func filtersRollouts(hooks []dbsqlc.Webhook) bool {
	for _, h := range hooks {
		if h.Filter != "" && webhook.WantsRollouts(h.EventTypes) {
			return true
		}
	}
	return false
}

// machinesOfRollout reads the machines of a rollout as they are now: rollout.MaxMachines at most.
func (s *Store) machinesOfRollout(ctx context.Context, q *dbsqlc.Queries, id string) ([]*baremetalv1.Machine, error) {
	const page = 500
	var out []*baremetalv1.Machine
	for after := int32(0); ; {
		found, err := q.RowsOfRolloutMachines(ctx, dbsqlc.RowsOfRolloutMachinesParams{RolloutID: id, After: after,
			PageSize: page})
		if err != nil {
			return nil, fmt.Errorf("read machines of rollout %s: %w", id, err)
		}
		rows := make([]dbsqlc.Machine, 0, len(found))
		for _, f := range found {
			rows, after = append(rows, f.Machine), f.Position
		}
		all, err := s.machines.MachineMessages(ctx, rows)
		if err != nil {
			return nil, err
		}
		out = append(out, all...)
		if len(found) < page {
			return out, nil
		}
	}
}

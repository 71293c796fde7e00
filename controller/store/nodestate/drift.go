package nodestate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/internal/maasstatus"
)

// driftOf compares the state at a machine's provider with the node's state and with the machine's known system id. An
// accepted state is no drift.
func driftOf(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, o workflow.Observation,
) (text string, major bool, err error) {
	row, err := q.GetProviderObservation(ctx, m.MachineID)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", false, fmt.Errorf("read what the provider says: %w", err)
	}
	o.KnownID = row.KnownSystemID
	if o.Mark() == m.AcceptedDrift {
		return "", false, nil
	}
	text, major = workflow.Drift(fleet.NodeState(m.NodeState), o)
	return text, major, nil
}

// observedOf is what the provider was seen to say.
func observedOf(row dbsqlc.ProviderObservation) workflow.Observation {
	return workflow.Observation{State: maasstatus.State(row.State), SystemID: row.SystemID, HeldBy: row.HeldBy}
}

// AdoptDrift accepts the present state at the provider, and returns it.
func AdoptDrift(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, now time.Time) (string, error) {
	row, err := q.GetProviderObservation(ctx, m.MachineID)
	observed := err == nil
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("read what the provider says: %w", err)
	}
	if err := node.MayAdopt(m.MachineID, observed); err != nil {
		return "", err
	}
	mark := observedOf(row).Mark()
	if err := q.AcceptDrift(ctx, dbsqlc.AcceptDriftParams{MachineID: m.MachineID, AcceptedDrift: mark}); err != nil {
		return "", fmt.Errorf("accept drift: %w", err)
	}
	if err := q.KnowSystemID(ctx, m.MachineID); err != nil {
		return "", fmt.Errorf("accept the system id: %w", err)
	}
	if err := q.SetDrift(ctx, dbsqlc.SetDriftParams{MachineID: m.MachineID, Now: now}); err != nil {
		return "", fmt.Errorf("clear drift: %w", err)
	}
	return mark, showDrift(ctx, q, m.MachineID, maasstatus.State(row.State), "", now)
}

// trustedSkew is how long the clocks of a site's agent and of the controller may make an answer look older than it is.
const trustedSkew = 5 * time.Minute

// fromBefore reports whether a provider was asked before the machine's last work ended.
func fromBefore(row dbsqlc.ProviderObservation, seenAt, now time.Time) bool {
	return row.SetAsideAt != nil && !seenAt.After(*row.SetAsideAt) && now.Sub(*row.SetAsideAt) < trustedSkew
}

// SetAside records that work on the machine has ended: earlier observations of its provider are no longer compared,
// until the provider is asked again.
func SetAside(ctx context.Context, q *dbsqlc.Queries, machineID string, now time.Time) error {
	row, err := q.SetAsideProviderObservation(ctx, dbsqlc.SetAsideProviderObservationParams{MachineID: machineID,
		Now: &now})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("set aside what the provider said: %w", err)
	}
	return showDrift(ctx, q, machineID, maasstatus.State(row.State), "", now)
}

// driftFollows compares what the machine's provider has said with the node's new state.
func driftFollows(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, to node.State, now time.Time) error {
	if m.Provider != workflow.ProviderMAAS {
		return nil
	}
	row, err := q.GetProviderObservation(ctx, m.MachineID)
	if errors.Is(err, pgx.ErrNoRows) || err == nil &&
		(row.State == string(maasstatus.StateUnknown) || row.SetAsideAt != nil) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read what the provider says: %w", err)
	}
	m.NodeState = node.Name(to)
	drift, _, err := driftOf(ctx, q, m, observedOf(row))
	if err != nil || drift == row.Drift {
		return err
	}
	if err := q.SetDrift(ctx, dbsqlc.SetDriftParams{MachineID: m.MachineID, Drift: drift, Now: now}); err != nil {
		return fmt.Errorf("record drift: %w", err)
	}
	return showDrift(ctx, q, m.MachineID, maasstatus.State(row.State), drift, now)
}

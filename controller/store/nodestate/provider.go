package nodestate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/maasstatus"
)

func RecordProvider(
	ctx context.Context, q *dbsqlc.Queries, site string, o *fleetv1.ProviderObservation, now time.Time,
) error {
	m, err := q.LockMachine(ctx, o.GetMachineId())
	if errors.Is(err, pgx.ErrNoRows) || err == nil &&
		(m.Site != site || m.DeletedAt != nil || m.Provider != o.GetProvider()) {
		return nil // gone or moved since it was asked
	}
	if err != nil {
		return fmt.Errorf("lock machine: %w", err)
	}
	before, err := q.GetProviderObservation(ctx, m.MachineID)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("read what the provider said: %w", err)
	}
	state, known := machinestore.StateOfProvider(o)
	// The agent repeats unchanged observations after a while, so that all are judged.
	judged := known && !fromBefore(before, o.GetSeenAt().AsTime(), now)
	drift := ""
	if judged {
		seen := workflow.Observation{State: state, SystemID: o.GetSystemId(), HeldBy: o.GetHeldBy()}
		if m.AcceptedDrift != "" && seen.Mark() != m.AcceptedDrift {
			m.AcceptedDrift = "" // it shows another state by now
			if err := q.AcceptDrift(ctx, dbsqlc.AcceptDriftParams{MachineID: m.MachineID}); err != nil {
				return fmt.Errorf("forget what was accepted: %w", err)
			}
		}
		if drift, _, err = driftOf(ctx, q, m, seen); err != nil {
			return err
		}
	}
	err = q.PutProviderObservation(ctx, dbsqlc.PutProviderObservationParams{
		MachineID: m.MachineID, Provider: o.GetProvider(), State: string(state), Status: o.GetStatusName(),
		SystemID:   o.GetSystemId(),
		PowerState: machinestore.PowerOfProvider(o), Deployed: o.GetDeployed(), Drift: drift, Reason: o.GetReason(),
		Message: pgtx.OrText(o.GetMessage(), o.GetStatusMessage()), HeldBy: o.GetHeldBy(), Judged: judged, Now: now,
	})
	if err != nil {
		return fmt.Errorf("record what the provider says: %w", err)
	}
	if !known {
		return nil // what was known before is no less true for not being confirmed
	}
	if err := providerWell(ctx, q, m.MachineID, state, pgtx.OrText(o.GetStatusMessage(), o.GetStatusName()),
		now); err != nil {
		return err
	}
	if !judged {
		return nil
	}
	return showDrift(ctx, q, m.MachineID, state, drift, now)
}

// providerWell raises an error that a provider reports, and cures it when the provider reports another state.
func providerWell(
	ctx context.Context, q *dbsqlc.Queries, machineID string, state maasstatus.State, message string, now time.Time,
) error {
	if state == maasstatus.StateFailed {
		return machinestore.RaiseCause(ctx, q, machineID, "",
			operation.RaisedCause{Cause: fleet.CauseProvider, Reason: "MAAS_FAILED", Message: message}, now)
	}
	return machinestore.CureCauses(ctx, q, machineID, fleet.Happened{Cures: []fleet.Cure{fleet.CuredByProvider}},
		"ProviderRecovered", now)
}

func showDrift(
	ctx context.Context, q *dbsqlc.Queries, machineID string, state maasstatus.State, drift string, now time.Time,
) error {
	reason := "AsExpected"
	if drift != "" {
		reason = "Unexpected" + string(state)
	}
	return machinestore.SetCondition(ctx, q, machineID, operation.ConditionChange{
		Type: fleet.ProviderDrift, Status: drift != "", Reason: reason, Message: drift,
	}, now)
}

// ObservedProviderState is what a workflow shows of the provider: its state, and of machines with a BMC of ours the
// power.
func ObservedProviderState(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine) (string, error) {
	if m.Provider != workflow.ProviderMAAS {
		return m.PowerState, nil
	}
	o, err := q.GetProviderObservation(ctx, m.MachineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read what the provider says: %w", err)
	}
	return o.State, nil
}

// ProviderFacts reads what a stage may know of the machine's provider.
func ProviderFacts(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, f *workflow.StageFacts) error {
	f.Provider, f.RegionKnown = m.Provider, true
	if m.Provider != workflow.ProviderMAAS {
		return nil
	}
	ref, err := regionRef(m)
	if err != nil {
		return err
	}
	if f.RegionKnown, err = q.MAASRegionKnown(ctx, ref); err != nil {
		return fmt.Errorf("look for the MAAS region: %w", err)
	}
	o, err := q.GetProviderObservation(ctx, m.MachineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read what the provider says: %w", err)
	}
	f.ProviderState, f.ProviderPower, f.ProviderHeldBy = maasstatus.State(o.State), o.PowerState, o.HeldBy
	return nil
}

// DefaultRegion is that of machines which name none.
const DefaultRegion = "default"

func regionRef(m dbsqlc.Machine) (string, error) {
	spec, err := convert.SpecFromJSON(m.Spec)
	return pgtx.OrText(spec.GetProviderRef(), DefaultRegion), err
}

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/workflow"
	"github.com/ingot-metal/ingot/internal/maasstatus"
)

// recordProviders stores what providers say, a machine at a time, and compares it with what the node's state lets expect.
// It opens nothing: drift is a condition, and for people to judge.
func (s *Store) recordProviders(ctx context.Context, r SiteReport, now time.Time) error {
	for _, o := range r.Providers {
		err := s.inTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error { return recordProvider(ctx, q, r.Site, o, now) })
		if err != nil {
			return err
		}
	}
	return nil
}

func recordProvider(ctx context.Context, q *dbsqlc.Queries, site string, o *fleetv1.ProviderObservation, now time.Time) error {
	m, err := q.LockMachine(ctx, o.GetMachineId())
	if errors.Is(err, pgx.ErrNoRows) || err == nil && (m.Site != site || m.DeletedAt != nil || m.Provider != o.GetProvider()) {
		return nil // gone or moved since it was asked
	}
	if err != nil {
		return fmt.Errorf("lock machine: %w", err)
	}
	before, err := q.GetProviderObservation(ctx, m.MachineID)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("read what the provider said: %w", err)
	}
	state, known := stateOfProvider(o)
	// The agent tells what has not changed again after a while, so that nothing stays without judgement.
	judged := known && !fromBefore(before, o.GetSeenAt().AsTime(), now)
	drift := ""
	if judged {
		seen := workflow.Observation{State: state, SystemID: o.GetSystemId(), HeldBy: o.GetHeldBy()}
		if m.AcceptedDrift != "" && seen.Mark() != m.AcceptedDrift {
			m.AcceptedDrift = "" // it says something else by now
			if err := q.AcceptDrift(ctx, dbsqlc.AcceptDriftParams{MachineID: m.MachineID}); err != nil {
				return fmt.Errorf("forget what was accepted: %w", err)
			}
		}
		if drift, _, err = driftOf(ctx, q, m, seen); err != nil {
			return err
		}
	}
	err = q.PutProviderObservation(ctx, dbsqlc.PutProviderObservationParams{
		MachineID: m.MachineID, Provider: o.GetProvider(), State: string(state), Status: o.GetStatusName(), SystemID: o.GetSystemId(),
		PowerState: powerOfProvider(o), Deployed: o.GetDeployed(), Drift: drift, Reason: o.GetReason(),
		Message: orText(o.GetMessage(), o.GetStatusMessage()), HeldBy: o.GetHeldBy(), Judged: judged, Now: now,
	})
	if err != nil {
		return fmt.Errorf("record what the provider says: %w", err)
	}
	if !known {
		return nil // what was known before is no less true for not being confirmed
	}
	if err := providerWell(ctx, q, m.MachineID, state, orText(o.GetStatusMessage(), o.GetStatusName()), now); err != nil {
		return err
	}
	if !judged {
		return nil
	}
	return showDrift(ctx, q, m.MachineID, state, drift, now)
}

// providerWell raises an error that a provider reports, and cures it when the provider reports another state.
func providerWell(ctx context.Context, q *dbsqlc.Queries, machineID string, state maasstatus.State, message string, now time.Time) error {
	if state == maasstatus.StateFailed {
		return raiseCause(ctx, q, machineID, "", operation.RaisedCause{Cause: fleet.CauseProvider, Reason: "MAAS_FAILED", Message: message}, now)
	}
	return cureCauses(ctx, q, machineID, fleet.Happened{Cures: []fleet.Cure{fleet.CuredByProvider}}, "ProviderRecovered", now)
}

func showDrift(ctx context.Context, q *dbsqlc.Queries, machineID string, state maasstatus.State, drift string, now time.Time) error {
	reason := "AsExpected"
	if drift != "" {
		reason = "Unexpected" + string(state)
	}
	return setCondition(ctx, q, machineID, operation.ConditionChange{
		Type: fleet.ProviderDrift, Status: drift != "", Reason: reason, Message: drift,
	}, now)
}

// stateOfProvider is the state that a provider's word means; known is false when it said none.
func stateOfProvider(o *fleetv1.ProviderObservation) (state maasstatus.State, known bool) {
	switch {
	case !o.GetReachable():
		return maasstatus.StateUnknown, false
	case !o.GetPresent():
		return maasstatus.StateAbsent, true
	}
	row, ok := maasstatus.Of(maasstatus.Status(o.GetStatus()))
	return row.State, ok
}

func powerOfProvider(o *fleetv1.ProviderObservation) string {
	if o.GetPresent() && slices.Contains([]string{"on", "off"}, o.GetPowerState()) {
		return o.GetPowerState()
	}
	return "unknown"
}

// observedProviderState is what a workflow shows of the provider: its state, and of machines with a BMC of ours the power.
func observedProviderState(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine) (string, error) {
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

// providerStatuses reads what providers say of machines, by machine.
func providerStatuses(ctx context.Context, q *dbsqlc.Queries, machines []string) (map[string]*baremetalv1.ProviderStatus, error) {
	rows, err := q.ProviderObservationsOf(ctx, machines)
	if err != nil {
		return nil, fmt.Errorf("read what providers say: %w", err)
	}
	out := map[string]*baremetalv1.ProviderStatus{}
	for _, r := range rows {
		out[r.MachineID] = &baremetalv1.ProviderStatus{
			Provider: r.Provider, State: r.State, Status: r.Status, SystemId: r.SystemID, PowerState: r.PowerState, Drift: r.Drift,
			Reason: r.Reason, Message: r.Message, ChangedAt: stamp(r.ChangedAt), Deployed: r.Deployed,
		}
	}
	return out, nil
}

// providerTargets are the machines of a site whose provider its agent looks at.
func providerTargets(ctx context.Context, q *dbsqlc.Queries, site string) ([]*fleetv1.ProviderTarget, error) {
	rows, err := q.MAASMachinesOfSite(ctx, site)
	if err != nil {
		return nil, fmt.Errorf("read machines of providers: %w", err)
	}
	var out []*fleetv1.ProviderTarget
	for _, r := range rows {
		if len(r.Macs) == 0 {
			continue
		}
		out = append(out, &fleetv1.ProviderTarget{
			MachineId: r.MachineID, Provider: workflow.ProviderMAAS, RegionRef: r.RegionRef, RegionVersion: r.RegionVersion, MacAddresses: r.Macs,
		})
	}
	return out, nil
}

// providerFacts reads what a stage may know of the machine's provider.
func providerFacts(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, f *workflow.StageFacts) error {
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

// defaultRegion is that of machines which name none.
const defaultRegion = "default"

func regionRef(m dbsqlc.Machine) (string, error) {
	spec, err := specFromJSON(m.Spec)
	return orText(spec.GetProviderRef(), defaultRegion), err
}

// providerAction is what the site's agent is told to do through the machine's provider.
func (l *loaded) providerAction(a *baremetalv1.ProviderAction) *fleetv1.CommandSpec_ProviderAction {
	return &fleetv1.CommandSpec_ProviderAction{ProviderAction: &fleetv1.ProviderAction{
		Action: a.GetAction(), Params: a.GetParams(), RegionRef: orText(l.spec.GetProviderRef(), defaultRegion), Serial: l.spec.GetSerial(),
	}}
}

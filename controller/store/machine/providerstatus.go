package machine

import (
	"context"
	"fmt"
	"slices"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/internal/maasstatus"
)

// StateOfProvider is the state that a provider's word means; known is false when it said none.
func StateOfProvider(o *fleetv1.ProviderObservation) (state maasstatus.State, known bool) {
	switch {
	case !o.GetReachable():
		return maasstatus.StateUnknown, false
	case !o.GetPresent():
		return maasstatus.StateAbsent, true
	}
	row, ok := maasstatus.Of(maasstatus.Status(o.GetStatus()))
	return row.State, ok
}

func PowerOfProvider(o *fleetv1.ProviderObservation) string {
	if o.GetPresent() && slices.Contains([]string{"on", "off"}, o.GetPowerState()) {
		return o.GetPowerState()
	}
	return "unknown"
}

// ProviderStatuses reads what providers say of machines, by machine.
func ProviderStatuses(
	ctx context.Context, q *dbsqlc.Queries, machines []string,
) (map[string]*baremetalv1.ProviderStatus, error) {
	rows, err := q.ProviderObservationsOf(ctx, machines)
	if err != nil {
		return nil, fmt.Errorf("read what providers say: %w", err)
	}
	out := map[string]*baremetalv1.ProviderStatus{}
	for _, r := range rows {
		out[r.MachineID] = &baremetalv1.ProviderStatus{
			Provider: r.Provider, State: r.State, Status: r.Status, SystemId: r.SystemID, PowerState: r.PowerState,
			Drift:  r.Drift,
			Reason: r.Reason, Message: r.Message, ChangedAt: convert.Timestamp(r.ChangedAt), Deployed: r.Deployed,
		}
	}
	return out, nil
}

// ProviderTargets are the machines of a site whose provider its agent looks at.
func ProviderTargets(ctx context.Context, q *dbsqlc.Queries, site string) ([]*fleetv1.ProviderTarget, error) {
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
			MachineId: r.MachineID, Provider: workflow.ProviderMAAS, RegionRef: r.RegionRef, RegionVersion: r.RegionVersion,
			MacAddresses: r.Macs, Serial: r.Serial,
		})
	}
	return out, nil
}

package machine

import (
	"context"
	"fmt"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// MachineCount is a number of machines that are alike.
type MachineCount struct{ Phase, Effective, NodeState, Region, Site string }

// CountMachines counts machines for the gauges.
func (s *Store) CountMachines(ctx context.Context) (map[MachineCount]int, error) {
	rows, err := s.db.Q.MachineCounts(ctx)
	if err != nil {
		return nil, fmt.Errorf("count machines: %w", err)
	}
	out := map[MachineCount]int{}
	for _, r := range rows {
		out[MachineCount{r.Phase, effectiveOf(r), r.NodeState, r.Region, r.Site}] += int(r.Machines)
	}
	return out, nil
}

// effectiveOf returns the effective state of machines that are alike, as screens print it.
func effectiveOf(r dbsqlc.MachineCountsRow) string {
	f := fleet.Facts{
		Phase: fleet.Phase(r.Phase), NodeState: fleet.NodeState(r.NodeState), ActiveOperation: r.Operating,
		ActiveWorkflow: r.InWorkflow, Conditions: map[fleet.ConditionType]bool{},
	}
	if r.Fenced {
		f.UnresolvedCommand = "unknown"
	}
	for _, c := range r.Conditions {
		f.Conditions[fleet.ConditionType(c)] = true
	}
	if state := fleet.Effective(f); state != fleet.StateMaintenanceIdle {
		return string(state)
	}
	return string(fleet.Maintenance)
}

// AnythingUnknown reports whether a condition of any machine is unknown.
func (s *Store) AnythingUnknown(ctx context.Context) (bool, error) {
	unknown, err := s.db.Q.AnythingUnknown(ctx)
	if err != nil {
		return false, fmt.Errorf("look for unknown conditions: %w", err)
	}
	return unknown, nil
}

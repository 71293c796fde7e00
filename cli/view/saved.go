package view

import (
	"cmp"
	"slices"
	"strings"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/label"
)

// Views are the columns of `ingot view list`.
func (s Style) Views(v *pb.View) (cells, wide []Cell) {
	owner := Clean(v.GetCreatedBy())
	if v.GetOwn() {
		owner = "you"
	}
	return []Cell{
		{"NAME", v.GetName()}, {"TITLE", Clean(v.GetTitle())}, {"OWNER", owner}, {"SHARED", yesNo(v.GetShared())},
		{"FILTER", Clean(v.GetFilter())}, {"ORDER_BY", v.GetOrderBy()},
	}, nil
}

// View is what one saved view is.
func (s Style) View(v *pb.View) string {
	f := &Fields{}
	f.Add("Name", v.GetName())
	f.Add("Title", Clean(v.GetTitle()))
	f.Add("Description", Clean(v.GetDescription()))
	f.Add("Owner", Clean(v.GetCreatedBy()))
	f.Add("Shared", yesNo(v.GetShared()))
	f.Add("Machines", machinesOf(v.GetFilter()))
	f.Add("Order", v.GetOrderBy())
	f.Add("Columns", strings.Join(v.GetColumns(), ", "))
	f.Add("Groups", strings.Join(v.GetGroupBy(), ", "))
	f.Add("Changed", Time(v.GetUpdatedAt()))
	return f.String()
}

// MachineColumnNames are the columns that a table of machines may have, beside labels.KEY.
func MachineColumnNames() []string {
	return []string{
		"machine_id", "effective_state", "phase", "node_state", "attention_reason", "conditions", "active_operation_id",
		"site", "region", "rack", "group", "location", "provider", "cluster", "serial", "mac_addresses", "image",
		"power_state", "last_heartbeat_at", "created_at", "updated_at", "labels",
	}
}

// SortMachines sorts machines by what a column shows of them, in the order of compare; of equal ones by their ids.
func SortMachines(machines []*pb.Machine, column string, descending bool, compare func(a, b string) int) {
	slices.SortStableFunc(machines, func(a, b *pb.Machine) int {
		order := compare(Style{}.cell(a, column), Style{}.cell(b, column))
		if descending {
			order = -order
		}
		return cmp.Or(order, compare(a.GetMachineId(), b.GetMachineId()))
	})
}

// MachineColumns is the table of machines with these columns.
func (s Style) MachineColumns(machines []*pb.Machine, columns []string) *Table {
	t := &Table{}
	for _, c := range columns {
		t.Header = append(t.Header, strings.ToUpper(Clean(c)))
	}
	for _, m := range machines {
		row := make([]string, len(columns))
		for i, c := range columns {
			row[i] = s.cell(m, c)
		}
		t.Add(row...)
	}
	return t
}

// cell is what a column shows of a machine; nothing for a column that this version does not know.
func (s Style) cell(m *pb.Machine, column string) string {
	if key, ok := strings.CutPrefix(column, "labels."); ok {
		return Clean(m.GetLabels()[key])
	}
	switch column {
	case "effective_state":
		return s.Effective(m)
	case "conditions":
		return Conditions(m)
	case "labels":
		return Pairs(m.GetLabels())
	}
	return Clean(plainCell(m, column))
}

// plainCell is the text of a column that has no colour.
func plainCell(m *pb.Machine, column string) string {
	spec, status := m.GetSpec(), m.GetStatus()
	switch column {
	case "machine_id":
		return m.GetMachineId()
	case "phase":
		return Phase(status.GetPhase())
	case "node_state":
		return NodeState(status.GetNodeState())
	case "attention_reason":
		return status.GetAttentionReason()
	case "active_operation_id":
		return status.GetActiveOperationId()
	case "mac_addresses":
		return strings.Join(spec.GetMacAddresses(), " ")
	case "power_state":
		return status.GetPowerState()
	case "image":
		return status.GetOsImageDigest()
	case "last_heartbeat_at":
		return Time(status.GetLastHeartbeatAt())
	case "created_at":
		return Time(m.GetCreatedAt())
	case "updated_at":
		return Time(m.GetUpdatedAt())
	}
	return map[string]string{
		"site": spec.GetSite(), "region": spec.GetRegion(), "group": spec.GetGroup(),
		label.Rack: label.RackOf(spec.GetRack(), m.GetLabels()),
		"location": spec.GetLocation(), "provider": spec.GetProvider(), "cluster": spec.GetTargetClusterRef(),
		"serial": spec.GetSerial(),
	}[column]
}

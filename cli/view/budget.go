package view

import (
	"strconv"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Budgets is the list of budgets.
func (s Style) Budgets(list []*pb.Budget) *Table {
	t := &Table{Header: []string{"NAME", "DOMAIN", "VALUE", "AT_ONCE", "PERCENT", "PER_HOUR", "PER_DAY"}}
	for _, b := range list {
		value := Clean(b.GetValue())
		if value == "" {
			value = "each"
		}
		if b.GetDomain() == "fleet" {
			value = "-"
		}
		t.Add(b.GetName(), Clean(b.GetDomain()), value, limit(b.GetAtOnce()), limit(b.GetPercent()), limit(b.GetPerHour()),
			limit(b.GetPerDay()))
	}
	return t
}

func limit(n int32) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(int(n))
}

// BudgetSlots is the list of held slots. Those that wait for a person are marked.
func (s Style) BudgetSlots(list []*pb.BudgetSlot, now time.Time) *Table {
	t := &Table{Header: []string{"MACHINE_ID", "OPERATION_ID", "OPERATION", "HELD_FOR"}}
	for _, b := range list {
		phase := b.GetOperationPhase()
		if phase == "FAILED" || phase == "CANCELED" {
			phase = s.Warn(phase)
		}
		t.Add(b.GetMachineId(), b.GetOperationId(), phase, Age(b.GetTakenAt(), now))
	}
	return t
}

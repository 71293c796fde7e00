package view

import (
	"fmt"
	"strconv"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Budgets are the columns of budgets.
func (s Style) Budgets(b *pb.Budget) (cells, wide []Cell) {
	value := Clean(b.GetValue())
	if value == "" {
		value = "each"
	}
	if b.GetDomain() == "fleet" {
		value = "-"
	}
	return []Cell{
		{"NAME", b.GetName()}, {"HARM", harmText(b.GetHarm())}, {"DOMAIN", Clean(b.GetDomain())}, {"VALUE", value},
		{"AT_ONCE", limit(b.GetAtOnce())}, {"PERCENT", limit(b.GetPercent())}, {"PER_HOUR", limit(b.GetPerHour())},
		{"PER_DAY", limit(b.GetPerDay())},
	}, nil
}

// harmText returns the harm as flags take it.
func harmText(h pb.Budget_Harm) string {
	if h == pb.Budget_INTERRUPTS {
		return "interrupts"
	}
	return "destroys"
}

func limit(n int32) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(int(n))
}

// BudgetSlots are the columns of held slots. Those that wait for a person are marked.
func (s Style) BudgetSlots(b *pb.BudgetSlot) (cells, wide []Cell) {
	phase := b.GetOperationPhase()
	if phase == "FAILED" || phase == "CANCELED" {
		phase = s.Warn(phase)
	}
	return []Cell{
		{"MACHINE_ID", b.GetMachineId()}, {"OPERATION_ID", b.GetOperationId()}, {"OPERATION", phase},
		{"HARM", harmText(b.GetHarm())}, {"HELD_FOR", Age(b.GetTakenAt(), s.Now)},
	}, nil
}

// ApprovalPolicies are the columns of approval policies.
func (s Style) ApprovalPolicies(p *pb.ApprovalPolicy) (cells, wide []Cell) {
	selection := Clean(p.GetSelection())
	if selection == "" {
		selection = "all"
	}
	return []Cell{
		{"NAME", p.GetName()}, {"HARM", p.GetHarm().String()}, {"MACHINES", strconv.Itoa(int(p.GetMachines()))},
		{"SELECTION", selection}, {"SET_BY", Clean(p.GetSetBy())},
	}, nil
}

// approvals returns the sentence that names the policies which demand approval of a rollout.
func (s Style) approvals(names []string) (out string) {
	for _, name := range names {
		out += s.Warn(fmt.Sprintf("Approval policy %s demands another person's approval: it will wait.", Clean(name))) + "\n"
	}
	return out
}

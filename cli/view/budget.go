package view

import (
	"fmt"
	"strconv"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Budgets is the list of budgets.
func (s Style) Budgets(list []*pb.Budget) *Table {
	t := &Table{Header: []string{"NAME", "HARM", "DOMAIN", "VALUE", "AT_ONCE", "PERCENT", "PER_HOUR", "PER_DAY"}}
	for _, b := range list {
		value := Clean(b.GetValue())
		if value == "" {
			value = "each"
		}
		if b.GetDomain() == "fleet" {
			value = "-"
		}
		t.Add(
			b.GetName(),
			harmText(b.GetHarm()),
			Clean(b.GetDomain()),
			value,
			limit(b.GetAtOnce()),
			limit(b.GetPercent()),
			limit(b.GetPerHour()),
			limit(b.GetPerDay()),
		)
	}
	return t
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

// BudgetSlots is the list of held slots. Those that wait for a person are marked.
func (s Style) BudgetSlots(list []*pb.BudgetSlot, now time.Time) *Table {
	t := &Table{Header: []string{"MACHINE_ID", "OPERATION_ID", "OPERATION", "HARM", "HELD_FOR"}}
	for _, b := range list {
		phase := b.GetOperationPhase()
		if phase == "FAILED" || phase == "CANCELED" {
			phase = s.Warn(phase)
		}
		t.Add(b.GetMachineId(), b.GetOperationId(), phase, harmText(b.GetHarm()), Age(b.GetTakenAt(), now))
	}
	return t
}

// ApprovalPolicies is the list of approval policies.
func (s Style) ApprovalPolicies(list []*pb.ApprovalPolicy) *Table {
	t := &Table{Header: []string{"NAME", "HARM", "MACHINES", "SELECTION", "SET_BY"}}
	for _, p := range list {
		selection := Clean(p.GetSelection())
		if selection == "" {
			selection = "all"
		}
		t.Add(p.GetName(), p.GetHarm().String(), strconv.Itoa(int(p.GetMachines())), selection, Clean(p.GetSetBy()))
	}
	return t
}

// approvals returns the sentence that names the policies which demand approval of a rollout.
func (s Style) approvals(names []string) (out string) {
	for _, name := range names {
		out += s.Warn(fmt.Sprintf("Approval policy %s demands another person's approval: it will wait.", Clean(name))) + "\n"
	}
	return out
}

package budget

import (
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Refuse returns why an operation that cannot wait does not begin; nil where it has a slot.
func (v Verdict) Refuse() error {
	if v.Admitted {
		return nil
	}
	return failure.Precondition("BUDGET_REQUIRED", "budget %s has no room for one more machine: %d of %d",
		v.Rule.Name, v.Used, v.Limit).WithMeta("budget", v.Rule.Name)
}

// MayRelease refuses to release the slot of an operation that has not ended.
func MayRelease(operationID string, phase operation.Phase) error {
	if operation.IsTerminal(phase) {
		return nil
	}
	return failure.Precondition("BUDGET_SLOT_IN_USE",
		"operation %s is %s and holds the slot; wait for its end or cancel it", operationID, phase).
		WithMeta("operation_id", operationID)
}

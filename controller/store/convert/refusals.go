package convert

import (
	"github.com/ingot-metal/ingot/internal/failure"
)

func OperationNotFound(id string) error {
	return failure.NotFound("OPERATION_NOT_FOUND", "there is no operation %q", id).WithField("operation_id", "unknown")
}

func MachineNotFound(id string) error {
	return failure.NotFound("MACHINE_NOT_FOUND", "there is no machine %q", id).WithField("machine_id", "unknown")
}

package rollout

import (
	"strings"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// Provision is the stored type of a rollout that installs machines and puts them in service.
const Provision = "PROVISION"

// ProvisionTested is one that tests the hardware of each before it puts it in service.
const ProvisionTested = "PROVISION_TESTED"

// Param is the parameter of an operation that names the rollout that has made it.
const Param = "rollout_id"

// Stages are the operations that a rollout of a stored type does on each machine, one after the other.
func Stages(kind string) []fleet.OperationType {
	switch kind {
	case Provision:
		return []fleet.OperationType{fleet.EnterMaintenance, fleet.Reimage, fleet.ExitMaintenance}
	case ProvisionTested:
		return []fleet.OperationType{fleet.EnterMaintenance, fleet.Reimage, fleet.TestHardware, fleet.ExitMaintenance}
	}
	return []fleet.OperationType{fleet.OperationType(kind)}
}

// StageAt is the operation that is due while so many are left after it. Request is the request id under which it is
// made, so that it is made once.
func StageAt(kind, rolloutID string, left int) (t fleet.OperationType, request string) {
	all := Stages(kind)
	at := max(0, len(all)-1-left)
	if len(all) == 1 {
		return all[0], rolloutID
	}
	return all[at], rolloutID + "/" + strings.ReplaceAll(strings.ToLower(string(all[at])), "_", "-")
}

// Finishes reports whether a machine with so many stages left goes on though its rollout is paused or stopped: its work
// is done, and the rest does not touch it.
func Finishes(kind string, left int) bool {
	t, _ := StageAt(kind, "", left)
	return len(Stages(kind)) > 1 && left == 0 && fleet.Housekeeping(t)
}

// Package machine decides what any caller may write into the record of a machine, and from which cursor its changes can
// be read on. It is pure: rows in, a refusal out.
package machine

import (
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/internal/failure"
)

// MayUpdate refuses to update a deleted record.
func MayUpdate(machineID string, deleted bool) error {
	if deleted {
		return failure.Precondition("MACHINE_DELETED", "machine %s has been deleted; its identity is not used again",
			machineID)
	}
	return nil
}

// ExternalID returns the external id of an updated machine: one that is set never changes. named reports whether the
// update names the field itself, and not only all of the spec.
func ExternalID(stored, wanted string, named bool) (string, error) {
	switch {
	case stored == "" || wanted == stored:
		return wanted, nil
	case wanted != "" || named:
		return "", failure.Precondition("EXTERNAL_ID_IMMUTABLE", "external_id is %q and cannot change", stored).
			WithField("machine.spec.external_id", "immutable once set")
	}
	return stored, nil
}

// MayLight refuses to order the identify light of a machine that has no BMC here. A provider other than ours keeps the
// BMC itself.
func MayLight(machineID, endpoint, provider string) error {
	if endpoint == "" || provider != "" && provider != fleet.AgentProvider {
		return failure.Precondition("NO_BMC", "no BMC of machine %s is known here that could light it; "+
			"ingot machine update %s --bmc-endpoint ADDRESS --bmc-credentials NAME", machineID, machineID)
	}
	return nil
}

// Package machine decides what any caller may write into the record of a machine, and from which cursor its changes can
// be read on. It is pure: rows in, a refusal out.
package machine

import (
	"github.com/ingot-metal/ingot/controller/domain/access"
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

// MACInUse is the refusal of a MAC address that a machine has already, in a field of the request. Only a caller whose
// rights cover all machines learns which machine that is: any other could ask for the names outside its selection.
func MACInUse(by access.Caller, field, mac, machineID string) *failure.Error {
	if _, restricted := by.Within(); restricted {
		return failure.AlreadyExists("MAC_ADDRESS_IN_USE", "MAC address %s belongs to another machine", mac).
			WithField(field, mac+" is taken by another machine")
	}
	return failure.AlreadyExists("MAC_ADDRESS_IN_USE", "MAC address %s belongs to machine %s", mac, machineID).
		WithField(field, mac+" is taken by machine "+machineID).WithMeta("machine_id", machineID)
}

// BMCInUse is the refusal of a BMC that another machine of the site has. It names that machine as MACInUse does.
func BMCInUse(by access.Caller, bmc, machineID string) *failure.Error {
	const field, way = "machine.spec.bmc_endpoint", "; of a service of several systems, name the path of each"
	if _, restricted := by.Within(); restricted {
		return failure.AlreadyExists("BMC_IN_USE", "BMC %s belongs to another machine of the site%s", bmc, way).
			WithField(field, "taken by another machine")
	}
	return failure.AlreadyExists("BMC_IN_USE", "BMC %s belongs to machine %s%s", bmc, machineID, way).
		WithField(field, "taken by machine "+machineID).WithMeta("machine_id", machineID)
}

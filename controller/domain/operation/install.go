package operation

import (
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
)

// Installs reports whether an operation of the type with steps of these kinds is an installation whose node state
// follows it. The moves of onboardings and decommissions are their workflow's.
func Installs(t fleet.OperationType, kinds ...kind.Kind) bool {
	return t != fleet.Onboard && t != fleet.Decommission &&
		slices.ContainsFunc(kinds, func(k kind.Kind) bool { return WritesSystem(t, k) })
}

// WritesSystem reports whether a step of an operation of the type replaces the machine's system: our own installer
// writes it, or the machine's provider does for a reimage.
func WritesSystem(t fleet.OperationType, k kind.Kind) bool {
	of := kind.Of(k)
	return of.WritesSystem || t == fleet.Reimage && of.Route == kind.ThroughProvider
}

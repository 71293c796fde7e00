package workflow

import (
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// Threshold is the drift from which on work that destroys data is refused on a site's machines.
type Threshold string

// The thresholds.
const (
	// DriftAny refuses it for every state of the provider that does not go with the node's.
	DriftAny Threshold = "any"
	// DriftMajor refuses it where the provider no longer has the machine as ours: released, broken, gone, under another
	// system id, or another client's. It is the default.
	DriftMajor Threshold = "major"
	// DriftNone refuses nothing.
	DriftNone Threshold = "none"
)

// Thresholds lists every threshold.
func Thresholds() []Threshold { return []Threshold{DriftAny, DriftMajor, DriftNone} }

// Observation is what a provider was seen to say of a machine.
type Observation struct {
	State ms.State
	// SystemID is the provider's name of the machine now, KnownID the one that we know it by; empty if there is none.
	SystemID, KnownID string
	// HeldBy is the evidence that the machine there is another client's, or other hardware; empty if it is ours, or free.
	HeldBy string
}

// notOurs is before the evidence that a machine at a provider is not the one that we know.
const notOurs = "the machine at the provider is not ours: "

// Mark identifies the observation, so that one which an operator has accepted is recognized.
func (o Observation) Mark() string {
	mark := string(o.State) + "/" + o.SystemID
	if o.HeldBy != "" {
		mark += "/" + o.HeldBy
	}
	return mark
}

// Drift returns why an observation does not fit a node's state, empty if it fits, and reports whether the drift is
// major.
func Drift(n fleet.NodeState, o Observation) (text string, major bool) {
	inLife := in(
		n,
		fleet.Installed,
		fleet.Active,
		fleet.Offline,
		fleet.Reprovision,
		fleet.Migrating,
		fleet.Deprovisioning,
		fleet.Draining,
		fleet.Removing,
	)
	if o.SystemID != "" && o.KnownID != "" && o.SystemID != o.KnownID && inLife {
		return "the provider has the machine as " + o.SystemID + ", and it was " + o.KnownID, true
	}
	if o.HeldBy != "" && inLife {
		return notOurs + o.HeldBy, true
	}
	lost := []ms.State{ms.StateNew, ms.StateReady, ms.StateReleasing, ms.StateFailed, ms.StateAbsent}
	return ProviderDrift(n, o.State), slices.Contains(lost, o.State)
}

// DriftBlocks reports whether a drift refuses work that destroys data on a site's machines.
func DriftBlocks(t Threshold, text string, major bool) bool {
	return text != "" && (t == DriftAny || t == DriftMajor && major)
}

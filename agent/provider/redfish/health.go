package redfish

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/agent/provider"
)

// status is how a part is (DSP0268, Resource.Status). HealthRollup is the worst of all below it.
type status struct{ Health, HealthRollup, State lenient[string] }

// judgement is what the health of a resource in a state is worth.
type judgement int

const (
	// counts: the resource is in use, and its health is that of the hardware.
	counts judgement = iota
	// absent: there is no hardware that could be well or not.
	absent
	// off: the resource is there and out of use. A reading of it means nothing, and a bad health is no finding.
	off
	// unsettled: the resource is on its way, so that a bad health is no finding yet.
	unsettled
)

// states are all values of State, by what DSP0268 2024.4 (7.4, Resource 1.21, "State") calls them. A blade that is off,
// a bay without a supply and a socket without a processor have a Health too, and firmware fills in Critical.
var states = map[string]judgement{
	"absent":             absent,    // not currently present or detected; a place where a device can be installed
	"deferring":          counts,    // does not process commands but queues them
	"degraded":           counts,    // the function or resource is degraded
	"disabled":           off,       // disabled
	"enabled":            counts,    // enabled
	"intest":             unsettled, // undergoing testing
	"qualified":          counts,    // the quality is within the acceptable range of operation
	"quiesced":           counts,    // processes a restricted set of commands
	"standbyoffline":     unsettled, // enabled but awaits an external action to activate it
	"standbyspare":       counts,    // part of a redundancy set, and awaits a failover
	"starting":           unsettled, // starting
	"unavailableoffline": counts,    // present but cannot be used
	"updating":           unsettled, // updating, and might be unavailable or degraded
}

// judge is what the health of s is worth. A state that the schema has not keeps its health: that of a resource in an
// unknown state is all that is said of it.
func (s status) judge() judgement { return states[strings.ToLower(s.State.V)] }

// said is the health as the service writes it, in lower case; empty where the schema has no such word.
func said(words ...lenient[string]) string {
	for _, w := range words {
		if h := strings.ToLower(strings.TrimSpace(w.V)); slices.Contains([]string{"ok", "warning", "critical"}, h) {
			return h
		}
	}
	return ""
}

// health of the part, or of the parts below it.
func (s status) health() string { return s.settle(said(s.Health, s.HealthRollup)) }

// worst is the rollup where that is unhealthy, else the part's own health.
func (s status) worst() string {
	if rollup := said(s.HealthRollup); unhealthy(rollup) {
		return s.settle(rollup)
	}
	return s.health()
}

func (s status) settle(health string) string {
	switch {
	case s.judge() == absent:
		return ""
	case s.judge() != counts && unhealthy(health):
		return provider.HealthUnknown
	case health == "" && strings.EqualFold(s.State.V, "Degraded"):
		return "warning"
	}
	return health
}

// discounted reports whether a bad health was not taken for a fault. A rollup above it may say no more than that.
func (s status) discounted() bool {
	return unhealthy(said(s.Health, s.HealthRollup)) && !unhealthy(s.health())
}

func unhealthy(health string) bool { return health == "warning" || health == "critical" }

// unwellSum reports whether a whole is not known to be well.
func unwellSum(s status) bool { return unhealthy(s.worst()) || s.worst() == provider.HealthUnknown }

// sum returns the health that a whole reports of itself, where none of its parts that were read is unhealthy. It is
// unknown where a part that is absent or not settled has a bad health, which the whole may only repeat.
func sum(name, kind string, s status, explained bool) (provider.Sensor, bool) {
	if !unwellSum(s) {
		return provider.Sensor{}, false
	}
	worst := s.worst()
	if explained {
		worst = provider.HealthUnknown
	}
	return provider.Sensor{Name: name, Kind: kind, Stateful: true, State: cmp.Or(s.State.V, s.HealthRollup.V, s.Health.V),
		Health: worst}, true
}

package webhook

import (
	"fmt"
	"slices"
	"strings"
)

// The types of events.
const (
	MachineRegistered       = "machine.registered"
	MachineUpdated          = "machine.updated"
	MachinePhaseChanged     = "machine.phase_changed"
	MachineNodeStateChanged = "machine.node_state_changed"
	MachineDeleted          = "machine.deleted"
	OperationCreated        = "operation.created"
	OperationStarted        = "operation.started"
	OperationSucceeded      = "operation.succeeded"
	OperationFailed         = "operation.failed"
	OperationCanceled       = "operation.canceled"
	RolloutCreated          = "rollout.created"
	RolloutStarted          = "rollout.started"
	RolloutWaveEnded        = "rollout.wave_ended"
	RolloutGateClosed       = "rollout.gate_closed"
	RolloutPaused           = "rollout.paused"
	RolloutResumed          = "rollout.resumed"
	RolloutSucceeded        = "rollout.succeeded"
	RolloutWithFailures     = "rollout.completed_with_failures"
	RolloutFailed           = "rollout.failed"
	RolloutCanceled         = "rollout.canceled"
	SiteSilent              = "site.silent"
	SiteHeard               = "site.heard"
	// Ping is sent on request only, to one webhook, whatever it subscribes to.
	Ping = "ping"
)

const (
	machinePrefix   = "machine."
	operationPrefix = "operation."
	rolloutPrefix   = "rollout."
	sitePrefix      = "site."
)

var types = []string{
	MachineRegistered, MachineUpdated, MachinePhaseChanged, MachineNodeStateChanged, MachineDeleted,
	OperationCreated, OperationStarted, OperationSucceeded, OperationFailed, OperationCanceled,
	RolloutCreated, RolloutStarted, RolloutWaveEnded, RolloutGateClosed, RolloutPaused, RolloutResumed, RolloutSucceeded,
	RolloutWithFailures, RolloutFailed, RolloutCanceled,
	SiteSilent, SiteHeard,
}

// Types are the types that can be subscribed to.
func Types() []string { return slices.Clone(types) }

// OperationKinds are the kinds of an operation's stored events that leave the system; "operation." and the kind is the
// type.
func OperationKinds() []string {
	var out []string
	for _, t := range types {
		if kind, ok := strings.CutPrefix(t, operationPrefix); ok {
			out = append(out, kind)
		}
	}
	return out
}

// TypeOfOperation is the type of an operation's event of a kind.
func TypeOfOperation(kind string) string { return operationPrefix + kind }

// TypeOfMachine is the type of a machine's change of a kind.
func TypeOfMachine(kind string) string { return machinePrefix + kind }

// TypeOfRollout is the type of a rollout's change of a kind.
func TypeOfRollout(kind string) string { return rolloutPrefix + kind }

// TypeOfSite is the type of a site's change of a kind.
func TypeOfSite(kind string) string { return sitePrefix + kind }

// CheckPattern refuses a pattern that could never match: one is a type, or a beginning of types and "*".
func CheckPattern(pattern string) error {
	if slices.ContainsFunc(types, func(t string) bool { return matches(pattern, t) }) {
		return nil
	}
	return fmt.Errorf("%.100q is none of %s, nor a beginning of one with * behind it", pattern, strings.Join(types, ", "))
}

// matches knows one wildcard: a star at the end.
func matches(pattern, eventType string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(eventType, prefix)
	}
	return pattern == eventType
}

// Wants reports whether patterns take a type. None take all.
func Wants(patterns []string, eventType string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return matches(p, eventType) })
}

// WantsRollouts reports whether patterns take any event of rollouts.
func WantsRollouts(patterns []string) bool {
	return slices.ContainsFunc(types, func(t string) bool {
		return strings.HasPrefix(t, rolloutPrefix) &&
			Wants(patterns, t)
	})
}

// WantsSites reports whether patterns take any event of sites.
func WantsSites(patterns []string) bool {
	return slices.ContainsFunc(
		types,
		func(t string) bool { return strings.HasPrefix(t, sitePrefix) && Wants(patterns, t) },
	)
}

// WantsMachines reports whether patterns take any event of machines.
func WantsMachines(patterns []string) bool {
	return slices.ContainsFunc(types, func(t string) bool {
		return strings.HasPrefix(t, machinePrefix) &&
			Wants(patterns, t)
	})
}

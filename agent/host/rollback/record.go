// Package rollback goes back from a change of network, firewall or host name that has not proved itself in time.
//
// /etc/ingot/network/guard.json holds the last change and the way back. Its state goes from pending to committed or
// rolled_back. The agent, systemd's timer, the unit at boot and process 1 share a lock for that. It lies beside the
// files that it is about, so that both are there at boot or neither.
package rollback

import (
	"errors"
	"time"

	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/host/network"
)

// ErrGuardLost: the deadline of a guarded change came before its commit.
var ErrGuardLost = errors.New("the deadline came first")

// ErrGuardAbandoned: an operator on the host has kept a guarded change as it was, so that it is not rolled back.
var ErrGuardAbandoned = errors.New("an operator on the host has kept it as it is (ingot-agent rollback --keep)")

// Guard is a change that has not proved itself, and the way back from it.
type Guard struct {
	CommandID   string     `json:"command_id"`
	OperationID string     `json:"operation_id,omitempty"`
	MachineID   string     `json:"machine_id,omitempty"`
	State       GuardState `json:"state"`
	// BootID and Deadline say when to go back: at that time since boot (CLOCK_BOOTTIME), or on any other boot.
	BootID   string        `json:"boot_id"`
	Deadline time.Duration `json:"deadline_boottime_ns"`
	// Hostname is restored unless empty.
	Hostname string `json:"hostname,omitempty"`
	// SetsFirewall is set when the change touches the firewall; Firewall is the policy before, nil for none.
	SetsFirewall bool             `json:"sets_firewall,omitempty"`
	Firewall     *firewall.Policy `json:"firewall,omitempty"`
	// NextFirewall is what the change sets. A boot loads it once the change is committed, and not before.
	NextFirewall *firewall.Policy `json:"next_firewall,omitempty"`
	// Network is restored unless nil.
	Network *network.SavedNetwork `json:"network,omitempty"`
	// Error is why the last try to go back has failed.
	Error string `json:"error,omitempty"`
}

// GuardState is the state of a guarded change.
type GuardState string

// The states of a guard. Pending leads to one of the others, which are final.
const (
	GuardPending    GuardState = "pending"
	GuardCommitted  GuardState = "committed"
	GuardRolledBack GuardState = "rolled_back"
	// GuardAbandoned: an operator on the host has kept it as it was then, neither proven nor rolled back.
	GuardAbandoned GuardState = "abandoned"
)

// Due reports whether a pending change has had its time.
func (g Guard) Due(bootID string, sinceBoot time.Duration) bool {
	return g.State == GuardPending && (g.BootID != bootID || sinceBoot >= g.Deadline)
}

// Parts names what a rollback restores.
func (g Guard) Parts() []string {
	var parts []string
	if g.Network != nil {
		parts = append(parts, "interfaces")
	}
	if g.Hostname != "" {
		parts = append(parts, "host name")
	}
	if g.SetsFirewall {
		parts = append(parts, "firewall")
	}
	return parts
}

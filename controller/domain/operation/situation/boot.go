package situation

import (
	"maps"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/hwid"
	"github.com/ingot-metal/ingot/internal/planted"
)

// A boot counts when the system that was meant to come up reports itself. Another boot id only proves that the boot
// before is over. A system without an agent never opens a session: it is proven by the secret of this installation,
// which cloud-init posts to the site's agent with the installation's own instance id.

// Arrival is a system of the machine that has come up.
type Arrival struct {
	AgentID, BootID string
	// By is how the system was recognized; empty for no arrival.
	By string
	// Remarks are differences between the hardware that the agent reports now and before.
	Remarks string
	// Phoned is the evidence that a system without an agent has posted; nil for others.
	Phoned map[string]string
}

// None reports whether no system has arrived.
func (a Arrival) None() bool { return a.By == "" }

// Proof returns the arrival as evidence of a step, in a map that the caller may change.
func (a Arrival) Proof() map[string]string {
	if a.Phoned != nil {
		proof := maps.Clone(a.Phoned)
		proof[evidence.BootedBy] = a.By
		return proof
	}
	proof := map[string]string{evidence.BootIDAfter: a.BootID, evidence.BootedSystem: a.AgentID, evidence.BootedBy: a.By}
	if a.Remarks != "" {
		proof[evidence.HardwareRemarks] = a.Remarks
	}
	return proof
}

// boots returns the system that the command is meant to bring up.
func (s Situation) boots() operation.System {
	switch {
	case !s.CommandKind.Restarts || s.Step == &noStep:
		return ""
	case s.StepKind.NeedsInstaller && s.TurnedBack:
		return operation.SystemSame
	case s.StepKind.NeedsInstaller:
		return operation.SystemInstaller
	case s.unseen():
		return operation.SystemWritten
	case s.netbooted() && s.Op.Type == fleet.Netboot && s.World.Boot.Segments > 0 && !simulated(s):
		return operation.SystemRescue
	case s.netbooted() && !simulated(s):
		return operation.SystemElsewhere
	}
	return operation.SystemSame
}

// netbooted reports whether the step right before the current one let the machine boot from the network.
func (s Situation) netbooted() bool {
	if s.Op.CurrentStep == 0 {
		return false
	}
	before := &s.Op.Steps[s.Op.CurrentStep-1]
	return kind.Lookup(before.Kind).SetsNextBoot && before.Mode != "DISK"
}

// Simulated reports whether the machine is its agent's simulation, which boots nothing.
func (s Situation) Simulated() bool { return s.Host != nil && s.Host.Simulated }

// simulated reports whether the machine is simulated, or its boots are another provider's.
func simulated(s Situation) bool { return s.Simulated() || s.World.Provider != fleet.AgentProvider }

// unseen reports whether this operation has written a system that has not come up yet.
func (s Situation) unseen() bool {
	if !s.Installed() {
		return false
	}
	steps := s.Op.Steps[:s.Op.CurrentStep]
	written := len(steps) - 1
	for written >= 0 && !kind.Lookup(steps[written].Kind).NeedsInstaller {
		written--
	}
	return !slices.ContainsFunc(steps[written+1:],
		func(s operation.Step) bool { return kind.Lookup(s.Kind).ProvenByBoot })
}

// Installed reports whether this operation has written a system to the machine's disk from an installer.
func (s Situation) Installed() bool {
	return s.Op.Evidence[evidence.Installer] != "" && s.Op.Evidence[evidence.ImageDigest] != ""
}

// InPlace reports whether an agent can do work of the kind without an installer, as those of simulated machines can.
func (s Situation) InPlace(k kind.Kind) bool {
	of := kind.Lookup(k)
	return slices.ContainsFunc(s.World.Candidates, func(c fleet.Candidate) bool {
		switch c.Role {
		case "host":
			return slices.Contains(c.Capabilities, of.Capability)
		case "site":
			return s.World.Provider != workflow.ProviderMAAS && s.World.Provider != fleet.AgentProvider && of.WritesSystem &&
				slices.Contains(c.Capabilities, "provider:"+s.World.Provider)
		}
		return false
	})
}

// Agentless reports whether the system that this operation has written has no agent.
func (s Situation) Agentless() bool {
	for i := s.Op.CurrentStep; i >= 0; i-- {
		if step := &s.Op.Steps[i]; kind.Lookup(step.Kind).WritesSystem {
			return step.Agentless
		}
	}
	return false
}

// AwaitsPhoneHome reports whether the command is meant to bring up a system without an agent.
func (s Situation) AwaitsPhoneHome() bool { return s.Boots == operation.SystemWritten && s.Agentless() }

// phonedHome returns the system without an agent, once it has posted its secret from this operation's installation.
func (s Situation) phonedHome() Arrival {
	posted := s.World.Boot.PhonedHome
	if !s.Installed() || posted[evidence.PhonedHomeAt] == "" ||
		posted[evidence.InstanceID] != evidence.InstanceOf(s.Op.ID) {
		return Arrival{}
	}
	return Arrival{By: operation.ByPhoneHome, Phoned: posted}
}

// Arrived returns the system that the current command was meant to bring up, once there is evidence of it.
func (s Situation) Arrived() Arrival {
	switch s.Boots {
	case operation.SystemInstaller, operation.SystemRescue:
		if s.Installer != nil && s.Installer.BootID != s.Command.BootIDBefore {
			return Arrival{AgentID: s.Installer.AgentID, BootID: s.Installer.BootID, By: operation.ByInstallerSession}
		}
	case operation.SystemWritten:
		return s.NewSystem()
	case operation.SystemSame, operation.SystemElsewhere:
		if s.hostInAnotherBoot() && (s.Boots == operation.SystemElsewhere || s.HostIsBefore()) {
			return s.hostArrived()
		}
	}
	return Arrival{}
}

// Strayed returns the system that has come up instead of the intended one; no arrival while that is not certain.
func (s Situation) Strayed() Arrival {
	switch {
	case s.Host == nil || s.Command == nil || !s.Host.Live || s.Host.LastSeen.Before(s.Command.GrantedAt) ||
		!s.hostInAnotherBoot():
	case s.Boots == operation.SystemInstaller,
		s.Boots == operation.SystemRescue,
		s.Boots == operation.SystemSame && !s.HostIsBefore():
		return s.hostArrived()
	}
	return Arrival{}
}

// RebootSeen reports whether the system that the granted command was meant to bring up has come up.
func (s Situation) RebootSeen() bool {
	return s.Granted && s.CommandKind.ProvenByBoot && !s.Entering && !s.Arrived().None()
}

func (s Situation) hostArrived() Arrival {
	return Arrival{AgentID: s.Host.AgentID, BootID: s.Host.BootID, By: operation.ByAgentIdentity,
		Remarks: hwid.Compare(s.before(evidence.HostHardware), s.Host.Hardware).String()}
}

// hostInAnotherBoot reports whether the machine's own system is known to run another boot than before the command.
// The boot of an agent on other hardware shows nothing about this machine.
func (s Situation) hostInAnotherBoot() bool {
	if s.Host == nil {
		return false
	}
	known := s.before(evidence.HostBootID)
	if s.ByHost || known == "" {
		known = s.Command.BootIDBefore
	}
	return operation.ProvesReboot(known, s.Host.BootID) &&
		(planted.BootHardware || !hwid.Compare(s.before(evidence.HostHardware), s.Host.Hardware).Other())
}

// HostIsBefore reports whether the newest host agent is of the system that ran before the command.
func (s Situation) HostIsBefore() bool {
	agent, image := s.before(evidence.HostAgentID), s.before(evidence.HostImageDigest)
	if agent == "" {
		agent = s.World.TargetAgentID // a command of a version that did not note it
	}
	if s.writtenInPlace() {
		image = s.Op.Evidence[evidence.ImageDigest]
	}
	return s.Host.AgentID == agent && (image == "" || s.Host.ImageDigest == "" || SameDigest(image, s.Host.ImageDigest))
}

// writtenInPlace reports whether this operation has written an image without an installer: the agent stays, and starts
// from that image.
func (s Situation) writtenInPlace() bool {
	return s.Op.Evidence[evidence.ImageDigest] != "" && !s.Installed() && s.InPlace(kind.Repave)
}

// before returns the note about the machine's own system from the grant of the command; on the way back out of the
// installer, from the time at which the machine was sent there.
func (s Situation) before(key string) string {
	if s.TurnedBack {
		return s.Step.Evidence[key]
	}
	return s.Command.Evidence[key]
}

// HostNow returns the evidence of the machine's own system as it is; nil for a machine that never had one.
func (s Situation) HostNow() map[string]string {
	if s.Host == nil {
		return nil
	}
	now := map[string]string{evidence.HostAgentID: s.Host.AgentID, evidence.HostBootID: s.Host.BootID,
		evidence.HostImageDigest: s.Host.ImageDigest}
	if s.Host.Hardware != "" {
		now[evidence.HostHardware] = s.Host.Hardware
	}
	return now
}

// HostKeys are the keys of the evidence of HostNow.
var HostKeys = []string{evidence.HostAgentID, evidence.HostBootID, evidence.HostImageDigest, evidence.HostHardware}

// Target returns the machine's own agent; the zero candidate where it has none.
func (s Situation) Target() fleet.Candidate {
	for _, c := range s.World.Candidates {
		if c.AgentID == s.World.TargetAgentID && c.Role == "host" {
			return c
		}
	}
	return fleet.Candidate{}
}

// NewSystem returns the system that this operation wrote once it has reported, under the identity that was made for it.
func (s Situation) NewSystem() Arrival {
	if s.Agentless() {
		return s.phonedHome()
	}
	if t := s.Target(); t.OperationID == s.Op.ID && t.BootID != "" {
		return Arrival{AgentID: t.AgentID, BootID: t.BootID, By: operation.ByOperationToken}
	}
	return Arrival{}
}

// SameDigest reports whether two digests are equal, with or without the name of their algorithm.
func SameDigest(a, b string) bool {
	return strings.EqualFold(strings.TrimPrefix(a, "sha256:"), strings.TrimPrefix(b, "sha256:"))
}

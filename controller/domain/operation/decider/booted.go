package decider

import (
	"maps"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/hwid"
	"github.com/ingot-metal/ingot/internal/planted"
)

// A boot counts when the system that was to come up says so itself. Another boot id only proves that the boot before is
// over.

// boots returns what the current command is meant to bring up; empty for a command that boots nothing.
func (d *decider) boots() operation.System {
	s := d.step()
	switch {
	case d.cmd == nil || !kind.Of(d.cmd.Kind).Restarts:
		return ""
	case kind.Of(s.Kind).NeedsInstaller && operation.TurnedBack(*s):
		return operation.SystemSame
	case kind.Of(s.Kind).NeedsInstaller:
		return operation.SystemInstaller
	case d.unseen():
		return operation.SystemWritten
	case d.netbooted() && d.op.Type == fleet.Netboot && d.w.Boot.Segments > 0 && !d.simulatedHost():
		return operation.SystemRescue
	case d.netbooted() && !d.simulatedHost():
		return operation.SystemElsewhere
	}
	return operation.SystemSame
}

// netbooted reports whether the step right before the current one let the machine boot from the network.
func (d *decider) netbooted() bool {
	if d.op.CurrentStep == 0 {
		return false
	}
	before := d.op.Steps[d.op.CurrentStep-1]
	return kind.Of(before.Kind).SetsNextBoot && before.Mode != "DISK"
}

// unseen reports whether this operation has written a system that has not come up yet.
func (d *decider) unseen() bool {
	steps := d.op.Steps[:d.op.CurrentStep]
	written := len(steps) - 1
	for written >= 0 && !kind.Of(steps[written].Kind).NeedsInstaller {
		written--
	}
	seen := slices.ContainsFunc(steps[written+1:], func(s operation.Step) bool { return kind.Of(s.Kind).ProvenByBoot })
	return d.installed() && !seen
}

// arrival is a system of the machine that has come up.
type arrival struct {
	agentID, bootID, by, remarks string
	// phoned is what a system without an agent says of itself.
	phoned map[string]string
}

func (a arrival) none() bool { return a.by == "" }

func (a arrival) proof() map[string]string {
	if a.phoned != nil {
		proof := maps.Clone(a.phoned)
		proof[evidence.BootedBy] = a.by
		return proof
	}
	proof := map[string]string{evidence.BootIDAfter: a.bootID, evidence.BootedSystem: a.agentID, evidence.BootedBy: a.by}
	if a.remarks != "" {
		proof[evidence.HardwareRemarks] = a.remarks
	}
	return proof
}

// arrived returns the system that the current command was to bring up, once there is evidence of it.
func (d *decider) arrived() arrival {
	switch d.boots() {
	case operation.SystemInstaller, operation.SystemRescue:
		if inst := d.installer(); inst != nil && inst.BootID != d.cmd.BootIDBefore {
			return arrival{agentID: inst.AgentID, bootID: inst.BootID, by: operation.ByInstallerSession}
		}
	case operation.SystemWritten:
		return d.newSystem()
	case operation.SystemSame, operation.SystemElsewhere:
		if h := d.hostInAnotherBoot(); h != nil && (d.boots() == operation.SystemElsewhere || d.isBefore(h)) {
			return d.hostArrived(h)
		}
	}
	return arrival{}
}

// strayed returns the system that has come up instead of the one that was to; none while that is not certain.
func (d *decider) strayed() arrival {
	h := d.hostInAnotherBoot()
	switch {
	case h == nil || !h.Live || h.LastSeen.Before(d.cmd.GrantedAt):
	case d.boots() == operation.SystemInstaller,
		d.boots() == operation.SystemRescue,
		d.boots() == operation.SystemSame && !d.isBefore(h):
		return d.hostArrived(h)
	}
	return arrival{}
}

func (d *decider) hostArrived(h *fleet.Candidate) arrival {
	return arrival{agentID: h.AgentID, bootID: h.BootID, by: operation.ByAgentIdentity,
		remarks: hwid.Compare(d.before(evidence.HostHardware), h.Hardware).String()}
}

// hostInAnotherBoot is the agent of a system on the machine's disk that runs another boot than before the current
// command; nil where none is known to.
func (d *decider) hostInAnotherBoot() *fleet.Candidate {
	h := fleet.Host(d.w.Candidates)
	if h == nil {
		return nil
	}
	known := d.before(evidence.HostBootID)
	if d.cmd.ExecutorRole == "host" || known == "" {
		known = d.cmd.BootIDBefore
	}
	elsewhere := hwid.Compare(d.before(evidence.HostHardware), h.Hardware).Other() && !planted.BootHardware
	if !operation.ProvesReboot(known, h.BootID) || elsewhere { // another machine's boot tells nothing about this one
		return nil
	}
	return h
}

// isBefore reports whether an agent speaks for the system that ran before the current command.
func (d *decider) isBefore(h *fleet.Candidate) bool {
	agent, image := d.before(evidence.HostAgentID), d.before(evidence.HostImageDigest)
	if agent == "" {
		agent = d.w.TargetAgentID // a command of a version that did not note it
	}
	if d.writtenInPlace() {
		image = d.op.Evidence[evidence.ImageDigest]
	}
	return h.AgentID == agent &&
		(image == "" || h.ImageDigest == "" || strings.EqualFold(bare(image), bare(h.ImageDigest)))
}

// writtenInPlace reports whether this operation has written an image without an installer: the agent stays, and starts
// from that image.
func (d *decider) writtenInPlace() bool {
	return d.op.Evidence[evidence.ImageDigest] != "" && !d.installed() && d.inPlace(kind.Repave)
}

// before is what was noted of the machine's own system when the current command was granted; on the way back out of the
// installer, when the machine was sent there.
func (d *decider) before(key string) string {
	if s := d.step(); operation.TurnedBack(*s) {
		return s.Evidence[key]
	}
	return d.cmd.Evidence[key]
}

// systemKeys are what is noted of the machine's own system before a command.
var systemKeys = []string{evidence.HostAgentID, evidence.HostBootID, evidence.HostImageDigest, evidence.HostHardware}

// systemNow is what there is to note of the machine's own system; nil for a machine that never had one.
func (d *decider) systemNow() map[string]string {
	h := fleet.Host(d.w.Candidates)
	if h == nil {
		return nil
	}
	now := map[string]string{evidence.HostAgentID: h.AgentID, evidence.HostBootID: h.BootID,
		evidence.HostImageDigest: h.ImageDigest}
	if h.Hardware != "" {
		now[evidence.HostHardware] = h.Hardware
	}
	return now
}

// noteSystem keeps with the grant of a command which system the machine had before it.
func (d *decider) noteSystem() {
	now := d.systemNow()
	if now == nil || d.boots() == "" && d.cmd.ExecutorRole != "installer" {
		return
	}
	d.cmd.Evidence = now
	if d.entering() {
		d.setStepEvidence(d.step(), now) // to know it again when the machine is sent back
	}
}

// noteSystemOfStep does the same for a machine that is in the installer already.
func (d *decider) noteSystemOfStep(s *operation.Step) {
	if now := d.systemNow(); now != nil && s.Evidence[evidence.HostAgentID] == "" {
		d.setStepEvidence(s, now)
	}
}

func (d *decider) setStepEvidence(s *operation.Step, more map[string]string) {
	merged := maps.Clone(s.Evidence)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, more)
	s.Evidence, d.opChanged = merged, true
}

// keepSystem carries what was noted of the machine's system over into an executor's evidence, which cannot replace it.
func (d *decider) keepSystem(said map[string]string) map[string]string {
	out := maps.Clone(said)
	for _, key := range systemKeys {
		if v, ok := d.cmd.Evidence[key]; ok {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = v
		}
	}
	return out
}

// heard takes what an agent has just said of itself over what was read of it.
func (d *decider) heard(agentID, bootID string) {
	if d.w.StaleEpoch {
		// another copy of the agent may have opened a session on another machine since, and its hardware be what is known
		return
	}
	d.w.Candidates = slices.Clone(d.w.Candidates)
	for i := range d.w.Candidates {
		if c := &d.w.Candidates[i]; c.AgentID == agentID {
			c.BootID, c.Live, c.LastSeen = bootID, true, d.now
		}
	}
}

// cameBack settles a command that has brought up another system than the one that it was to: it acted, and is over.
func (d *decider) cameBack(a arrival) {
	d.setCommand(operation.Done)
	d.cmd.Outcome, d.cmd.Reason, d.cmd.SettledBy = operation.OutcomeFailed, "WRONG_SYSTEM_BOOTED", "other_system_booted"
	d.cmd.Message = wrongSystem[d.boots()]
	d.cmd.Evidence = d.keepSystem(a.proof())
	again := d.boots() == operation.SystemInstaller
	d.notDone(
		operation.Resulted{Outcome: operation.OutcomeFailed, Reason: d.cmd.Reason, Message: d.cmd.Message, Retryable: again},
	)
}

var wrongSystem = map[operation.System]string{
	operation.SystemInstaller: "the machine was restarted and came back in its own system, not in the installer",
	operation.SystemRescue: "the machine was restarted and came back in its own system, not in the one that it was to " +
		"boot " +
		"from the network",
	operation.SystemSame: "the machine was restarted, and another system than before has come up",
}

// uncorroborated is the evidence of an installer that proved no more than its place on the network, where no BMC has
// seen the machine do what the installer says.
const uncorroborated = "uncorroborated"

// withIdentity adds to a step's evidence how the installer proved which machine it is.
func (d *decider) withIdentity(proof map[string]string) map[string]string {
	b := d.w.Boot
	if b.IdentityLevel == "" {
		return proof
	}
	out := maps.Clone(proof)
	if out == nil {
		out = map[string]string{}
	}
	out[evidence.IdentityLevel] = b.IdentityLevel
	if b.IdentityTrust != "" {
		out[evidence.IdentityTrust] = b.IdentityTrust
	}
	if b.IdentityLevel == "network" {
		out[evidence.Corroboration] = uncorroborated
	}
	return out
}

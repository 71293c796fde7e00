package decider

import (
	"fmt"
	"strconv"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Before an installer is permitted to write, it proves that the write can begin. That command destroys nothing and
// needs no grant. Where the installer refuses, the machine is sent back to the system that it came from, and is what it
// was before.

// PreflightPatience bounds how long a preflight may take.
const PreflightPatience = 5 * time.Minute

// needsPreflight reports whether the installer is to look before it is given the write.
func needsPreflight(s *operation.Step, inst *fleet.Candidate) bool {
	k := kind.Of(s.Kind).Preflight
	return k != "" && inst.CanDo(kind.Of(k).Capability) &&
		s.Evidence[evidence.PreflightDisk] == ""
}

// preflight asks the installer whether it can write.
func (d *decider) preflight(s *operation.Step, inst *fleet.Candidate) {
	d.noteSystemOfStep(s)
	d.makeCommand(s, kind.Of(s.Kind).Preflight, inst)
	d.cmd.Deadline = operation.Earliest(d.cmd.Deadline, d.now.Add(PreflightPatience))
}

// preflightEnded takes the installer's answer.
func (d *decider) preflightEnded(e operation.Resulted) {
	switch e.Outcome {
	case operation.OutcomeSucceeded:
		d.preflightPassed(e.Evidence)
		return
	case operation.OutcomeUnknown:
		e.Retryable = true // nothing was changed, whatever came of it
	}
	d.setCommand(operation.Done)
	d.notDone(e)
}

// preflightExpired ends a preflight that was never answered.
func (d *decider) preflightExpired() {
	d.setCommand(operation.Expired)
	d.turnBack("STEP_TIMEOUT", "the installer has not said in time whether it can write", true)
}

// preflightPassed goes on to the write.
func (d *decider) preflightPassed(seen map[string]string) {
	d.setCommand(operation.Done)
	disk := seen[evidence.PreflightDisk]
	if disk == "" {
		d.turnBack("EVIDENCE_MISSING", "the installer says that it can write, and names no disk", false)
		return
	}
	d.setStepEvidence(d.step(), map[string]string{evidence.PreflightDisk: disk})
	d.advance()
}

// turnBack ends the step before anything was written: the machine boots from its disk again.
func (d *decider) turnBack(code, message string, retryable bool) {
	s := d.step()
	d.setStepEvidence(s, map[string]string{
		evidence.Refused: code, evidence.RefusedWhy: message, evidence.RefusedAgain: strconv.FormatBool(retryable),
	})
	d.note("boot_path", "out of the installer, because it cannot do it: "+message)
	d.advance()
}

// goBack boots the system that the machine came from.
func (d *decider) goBack(s *operation.Step) {
	d.assign(operation.BootDisk, false)
	inst, site := d.installer(), fleet.SiteFor(d.w.Candidates, "power", d.w.Provider)
	leaving := kind.Of(d.cmd.Kind).ProvenByBoot
	until := d.cmd.FinishedAt.Add(patience(s))
	switch {
	case s.Evidence[evidence.HostAgentID] == "":
		d.endTurnedBack("the machine had no system of its own to go back to")
	case d.backAgain(s) != nil:
		d.endTurnedBack(backAgain)
	case d.past(until) || leaving && d.throughBMCPower() &&
		d.cmd.Outcome != operation.OutcomeSucceeded:
		d.endTurnedBack("its own system has not reported since; start it through its BMC or by hand")
	case !d.w.Boot.Served():
		d.wait(operation.WaitSite, operation.Earliest(until, d.now.Add(operation.LookAgain)))
	case !leaving && inst != nil:
		d.makeCommand(s, kind.Reboot, inst)
	case site != nil && !d.throughBMCPower() && (!leaving || d.cmd.Outcome != operation.OutcomeSucceeded):
		d.makeCommand(s, kind.Power, site)
	default:
		d.wait(operation.WaitAgent, operation.Earliest(until, d.now.Add(operation.LookAgain)))
	}
}

// backAgain is what the end of a step says whose machine runs the system again that it came from.
const backAgain = "its own system runs again, as before"

// backAgain returns the agent of the system that the machine came from, if that has come up since.
func (d *decider) backAgain(s *operation.Step) *fleet.Candidate {
	h := fleet.Host(d.w.Candidates)
	if h == nil || !h.Live || h.AgentID != s.Evidence[evidence.HostAgentID] ||
		!operation.ProvesReboot(s.Evidence[evidence.HostBootID], h.BootID) {
		return nil
	}
	return h
}

// endTurnedBack ends the operation with the installer's reason.
func (d *decider) endTurnedBack(where string) {
	s := d.step()
	again := s.Evidence[evidence.RefusedAgain] == "true"
	d.fail(s.Evidence[evidence.Refused], fmt.Sprintf("%s; nothing was written, and %s", s.Evidence[evidence.RefusedWhy],
		where), again)
}

// asRefused gives a failure on the way back the reason for which the machine was sent back.
func (d *decider) asRefused(code, message string, retryable bool) (string, string, bool) {
	s := d.step()
	if !operation.TurnedBack(*s) || code == s.Evidence[evidence.Refused] {
		return code, message, retryable
	}
	return s.Evidence[evidence.Refused], fmt.Sprintf("%s; nothing was written. On the way back: %s",
			s.Evidence[evidence.RefusedWhy], message),
		s.Evidence[evidence.RefusedAgain] == "true"
}

// evaluateLeaving looks at a granted restart out of the installer. It returns true if it has ended the command.
func (d *decider) evaluateLeaving() bool {
	s := d.step()
	if !d.past(d.cmd.GrantedAt.Add(patience(s))) {
		return false
	}
	if d.pathOf(kind.PathBMC) != nil {
		d.supersede("the machine has not left the installer; it is switched off and on through its BMC")
		return true
	}
	d.unknown("OUTCOME_UNKNOWN", "the machine was told to leave the installer, and no system has reported since")
	return true
}

// NoBootPath returns why no way leads a machine into the installer, whoever opens a session; nil where one may.
func NoBootPath(w operation.World, way string) *fleet.Refusal {
	host := fleet.Host(w.Candidates)
	byHost := host != nil && (!host.Live ||
		way != kind.PathBootNext && host.CanDo("kexec") ||
		way != kind.PathKexec && host.CanDo("netboot") && host.CanDo("reboot"))
	byBMC := false
	for _, c := range w.Candidates {
		live := c
		live.Live = true
		byBMC = byBMC || fleet.SiteFor([]fleet.Candidate{live}, "power", w.Provider) != nil
	}
	switch {
	case !w.Boot.InstallerReady:
		return &fleet.Refusal{Reason: "INSTALLER_MISSING", Message: installerMissing}
	case w.Boot.Segments == 0:
		return &fleet.Refusal{Reason: "NO_BOOT_PATH", Message: noSegments}
	case way == pathMedia && !byBMC:
		return &fleet.Refusal{Reason: "NO_BOOT_PATH", Message: "no BMC is known that could attach an image; name one with " +
			"`ingot machine update MACHINE --bmc-endpoint`"}
	case way == kind.PathBMC && !byBMC, (way == kind.PathKexec || way == kind.PathBootNext) && !byHost, !byHost && !byBMC:
		return &fleet.Refusal{Reason: "NO_BOOT_PATH", Message: "no way leads into the installer" + viaPath(way) +
			": the machine's agent cannot restart into it, and no BMC is known; name one with `ingot machine update MACHINE " +
			"--bmc-endpoint`"}
	}
	return nil
}

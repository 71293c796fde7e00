package decider

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/situation"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Steps on metal: a disk is written from an installer that runs in the machine's memory. Bringing the machine there is
// part of the step, by the first of the paths that exist, and each path is a command of its own. Afterwards the machine
// boots from its disk, and counts as done when the system that was written reports under the identity that was made for
// it.

// capAgentless is the capability of installers that write systems without an agent.
const capAgentless = "agentless"

// dispatchThroughInstaller makes the next command of a step that the installer takes part in, or waits.
func dispatchThroughInstaller(s Situation) verdict {
	switch of := s.StepKind; {
	case of.SetsNextBoot:
		return prepareBoot(s)
	case of.ProvenByBoot:
		return bootDisk(s)
	default:
		return fromInstaller(s)
	}
}

// prepareBoot assigns what the machine boots, and sets its next boot where a running system can do that.
func prepareBoot(s Situation) verdict {
	target, mode := s.InstallerStep(s.Op.CurrentStep), operation.BootRescue
	if target != nil {
		mode = operation.BootInstaller
	}
	switch {
	case target != nil && s.Simulated():
		return bootsNoInstaller(target)
	case target != nil && s.World.Unfit != nil:
		return fails(s.World.Unfit.Reason, s.World.Unfit.Message, false)
	}
	return afterAssign(s, mode, false, setNextBoot)
}

// setNextBoot sets the next boot of a machine that was assigned what to boot.
func setNextBoot(s Situation) verdict {
	target, path := s.InstallerStep(s.Op.CurrentStep), kind.PathBootNext
	if target != nil {
		path = situation.PathOfStep(target)
	}
	canSet := s.Host != nil && s.Host.Live && s.Host.CanDo("netboot") &&
		(path == situation.PathAuto || path == kind.PathBootNext)
	switch {
	case canSet:
		return onceServed(s, func() verdict { return makeCommand(s, kind.Netboot, s.Host) })
	case target == nil:
		return netbootByBMC(s)
	case path == kind.PathBootNext:
		return fails("NETBOOT_UNSUPPORTED", "the machine's agent is not there, or cannot set its next boot", false)
	}
	return stepDone(s, map[string]string{"next_boot": "set on the way into the installer"})
}

// netbootByBMC sets the device of the next boot out of band.
func netbootByBMC(s Situation) verdict {
	site := s.Site("netboot")
	switch {
	case site != nil:
		return onceServed(s, func() verdict { return makeCommand(s, kind.Netboot, site) })
	case s.Past(s.Limit()):
		return untaken(s)
	case !s.MayCome("site") && (!s.MayCome("host") || s.Host.Live):
		return fails("NETBOOT_UNSUPPORTED", "the machine's agent cannot set its next boot, and there is no BMC to do it",
			false)
	}
	return does(waits{operation.WaitAgent, s.SoonOr(s.Limit())})
}

// assign returns the move that changes what the machine boots from the network; none where that is assigned already.
// fresh takes a new token in any case.
func assign(s Situation, mode string, fresh bool) []move {
	b := &s.World.Boot
	if b.Mode == mode && b.OperationID == s.Op.ID && !fresh {
		return nil
	}
	return []move{assigns{mode}}
}

// afterAssign asks a question of the situation in which the machine is assigned what to boot.
func afterAssign(s Situation, mode string, fresh bool, then question) verdict {
	if moves := assign(s, mode, fresh); moves != nil {
		return verdict{moves: moves, then: then}
	}
	return then(s)
}

// onceServed continues when the site serves by the assignment; else it waits, or fails when that takes too long.
func onceServed(s Situation, then func() verdict) verdict {
	switch {
	case s.World.Boot.Served():
		return then()
	case s.Past(s.Limit()):
		return fails("SITE_AGENT_SILENT",
			"the site's agent did not take over what the machine is to boot; nothing was started", true)
	}
	return does(waits{operation.WaitSite, s.SoonOr(s.Limit())})
}

// patience returns how long one path into the installer may take.
func patience(s Situation) time.Duration { return min(operation.InstallerPatience, s.Step.Timeout/3) }

// fromInstaller has the installer do the step, and brings the machine there first.
func fromInstaller(s Situation) verdict {
	inst := s.Installer
	switch {
	case s.TurnedBack:
		return afterAssign(s, operation.BootDisk, false, goBack)
	case inst != nil:
		return dispatchToInstaller(s)
	case s.Simulated():
		return bootsNoInstaller(s.Step)
	case s.World.Unfit != nil:
		return fails(s.World.Unfit.Reason, s.World.Unfit.Message, false)
	case !s.World.Boot.InstallerReady:
		return fails("INSTALLER_MISSING", installerMissing, false)
	case s.World.Boot.Segments == 0:
		return fails("NO_BOOT_PATH", noSegments, false)
	case sentIn(s) && s.Strayed().None() && !s.Past(s.Command.FinishedAt.Add(patience(s))):
		return does(waits{operation.WaitInstaller, s.Command.FinishedAt.Add(patience(s))})
	}
	return afterAssign(s, operation.BootInstaller, s.World.Boot.InstallerAgentID != "", enter)
}

// bootsNoInstaller ends a step of a simulated machine, which its agent cannot do in place.
func bootsNoInstaller(step *operation.Step) verdict {
	return fails("CAPABILITY_MISSING", "the machine is simulated: no installer boots on it, and its agent cannot "+
		kind.Of(step.Kind).Capability, false)
}

// dispatchToInstaller makes the command of an installer that is there.
func dispatchToInstaller(s Situation) verdict {
	inst := s.Installer
	switch {
	case !inst.CanDo(s.StepKind.Capability):
		return fails("CAPABILITY_MISSING", "the installer cannot "+s.StepKind.Capability, false)
	case s.Step.Agentless && !inst.CanDo(capAgentless):
		return fails("CAPABILITY_MISSING", "the installer is older than installations without an agent; add a newer one "+
			"with `ingot image add`", false)
	case slices.ContainsFunc(s.Step.Needs, func(c string) bool { return !inst.CanDo(c) }):
		return fails("CAPABILITY_MISSING", "the installer is older than what the machine's spec asks of it ("+
			strings.Join(s.Step.Needs, ", ")+"); add a newer one with `ingot image add`", false)
	case needsPreflight(s):
		return preflight(s)
	}
	return makeCommand(s, s.Step.Kind, inst)
}

const (
	installerMissing = "the image catalogue has no installer; add one with `ingot image add --kind installer-kernel` " +
		"and `--kind installer-initrd`"
	noSegments = "the machine's site serves no provisioning network; see `ingot site set`"
)

// sentIn reports whether the latest command has sent the machine into the installer.
func sentIn(s Situation) bool {
	return s.Entering && s.Command.State == operation.Done && s.Command.Outcome == operation.OutcomeSucceeded
}

// enter sends the machine into the installer by the next path.
func enter(s Situation) verdict {
	next, limit := s.NextPath(), s.Limit()
	switch {
	case next == nil && s.Entering && s.Command.State == operation.Done:
		return noPathLeft(s)
	case next != nil && !s.World.Boot.Served():
		return onceServed(s, nil)
	case s.Past(limit):
		return fails("AGENT_UNAVAILABLE",
			"no agent could bring the machine into the installer before the step's deadline; no disk was written", true)
	case next == nil && !s.MayCome("host") && !s.MayCome("site"):
		return fails("NO_BOOT_PATH", "no agent can bring the machine into the installer"+
			viaPath(situation.PathOfStep(s.Step))+
			": it has no agent with a session and no BMC that the site's agent can use", false)
	case next == nil:
		return does(waits{operation.WaitAgent, s.SoonOr(limit)})
	}
	return makeCommand(s, next.Kind, next.Executor).
		after(noted{"boot_path", "into the installer by " + next.Name + pathReason(s)})
}

func viaPath(path string) string {
	if path == situation.PathAuto || path == "" {
		return ""
	}
	return " by " + path
}

// pathReason returns the sentence about the path that has been tried before.
func pathReason(s Situation) string {
	if !s.Entering || s.Command.State == operation.CommandCanceled {
		return ""
	}
	return ", because " + s.TriedPath() + " did not: " + cmp.Or(s.Command.Message, "the installer has not reported")
}

// noPathLeft ends a try in which every path has been taken.
func noPathLeft(s Situation) verdict {
	code, message := "INSTALLER_SILENT", "the machine was sent into the installer by "+s.TriedPath()+
		", and it has not reported from there"
	entered := s.Command.Outcome == operation.OutcomeSucceeded
	switch {
	case !entered:
		code, message = cmp.Or(s.Command.Reason, "NO_BOOT_PATH"),
			cmp.Or(s.Command.Message, "no way into the installer is left")
	case !s.Strayed().None():
		code, message = "WRONG_SYSTEM_BOOTED", wrongSystem[operation.SystemInstaller]
	}
	if entered && mayTryAgain(s) {
		return tryAgain(s, code, message)
	}
	return fails(code, message, true)
}

// otherExecutor reports whether another executor than the silent one can go on with a step on metal.
func otherExecutor(s Situation) bool {
	switch of := s.StepKind; {
	case of.SetsNextBoot:
		return s.InstallerStep(s.Op.CurrentStep) != nil || s.Site("netboot") != nil
	case of.ProvenByBoot:
		return s.Installer != nil || s.Site("power") != nil
	default:
		return s.Installer != nil || s.NextPath() != nil
	}
}

// nextPath goes on by another path after one has failed, and reports whether there is one.
func nextPath(s Situation) (v verdict, found bool) {
	if s.CommandKind.SetsNextBoot {
		target := s.InstallerStep(s.Op.CurrentStep)
		if target != nil && situation.PathOfStep(target) == situation.PathAuto {
			return stepDone(s, map[string]string{"next_boot": "not set in band: " + s.Command.Message}), true
		}
	}
	if s.Entering && s.NextPath() != nil {
		return advance(s), true
	}
	return verdict{}, false
}

// evaluateGrantedBoot evaluates a granted command on the way into the installer, or of the installer, and reports
// whether that ends the command.
func evaluateGrantedBoot(s Situation) (v verdict, ended bool) {
	if !s.StepKind.NeedsInstaller || s.BySite || s.InPlace(s.Step.Kind) || s.Canceling || s.Blocked {
		return verdict{}, false
	}
	if s.TurnedBack {
		return evaluateLeaving(s)
	}
	switch other := s.Installer; {
	case s.Entering && !s.Strayed().None():
		return cameBack(s, s.Strayed()), true
	case other != nil && other.AgentID != s.Command.ExecutorID && !s.Entering:
		return installerRestarted(), true
	case oldSystemUp(s):
		return installerGone("old_system_booted",
			"the machine was restarted while the installer worked, and its old system has started"), true
	case other != nil && s.Entering:
		return enteredInstaller(), true
	case s.Entering && s.Past(s.Command.GrantedAt.Add(patience(s))) && s.PathNow(kind.PathBMC) != nil &&
		situation.PathOfStep(s.Step) == situation.PathAuto:
		return supersede("no result and no installer; the machine is switched off and on through its BMC"), true
	case !s.Entering && executorLost(s) && s.PathNow(kind.PathBMC) != nil && mayTryAgain(s):
		attempt, why := attemptFailed(s, "INSTALLER_SILENT",
			"the installer is silent; the machine is switched off and on through its BMC")
		return supersede("the installer fell silent after it was granted the command; the machine is switched off through "+
			"its BMC before anything else is tried").after(replies{attemptFailed: attempt}, stepRetries{message: why}), true
	}
	return verdict{}, false
}

// installerOpened takes the session of an installer of this operation, which is not the current command's executor. It
// reports whether the session shows something about the command.
func installerOpened(s Situation) (v verdict, shown bool) {
	switch {
	case s.Op.Phase != operation.Running || s.Settled && !s.ThroughInstaller():
		return verdict{}, false
	case s.Settled:
		return advance(s), true
	case s.Entering && s.Granted && s.ByHost:
		return enteredInstaller(), true
	case s.Entering && !s.Granted:
		return replaceCommand("the machine came into the installer by itself; nothing was started"), true
	case s.Granted && s.CommandKind.NeedsInstaller && s.ByInstaller:
		return installerRestarted(), true
	case !s.Granted && (s.CommandKind.NeedsInstaller || s.CommandKind.Ungranted):
		return replaceCommand("the installer was started again before it was granted the command; nothing was started"), true
	case s.Op.Type == fleet.Netboot && s.RebootSeen():
		return confirmReboot(s, "new_boot"), true
	}
	return verdict{}, false
}

// enteredInstaller takes the installer's session as proof that the machine has left the system that the command ran on.
func enteredInstaller() verdict {
	return verdict{moves: []move{commandEnds{
		state: operation.Done, outcome: operation.OutcomeSucceeded, by: "installer_session",
	}}, then: advance}
}

// leaveInstaller notes who wrote the disks, and lets the machine boot from them, once nothing more is to be written.
func leaveInstaller(s Situation) []move {
	if !s.ByInstaller {
		return nil
	}
	moves := []move{proves{map[string]string{evidence.Installer: s.Command.ExecutorID}}}
	if s.InstallerStep(s.Op.CurrentStep+1) != nil {
		return moves
	}
	writes := s.CommandKind.WritesSystem
	return append(append(moves, assign(s, operation.BootDisk, false)...),
		changesMachine{RevokeHosts: writes, Agentless: writes && s.Agentless()})
}

// bootDisk leaves the installer for the system on the disk: only when the site serves nothing else any more.
func bootDisk(s Situation) verdict {
	if written := s.NewSystem(); !written.None() {
		// It runs already, as when a person has pressed the button.
		if v, differs := newSystemDiffers(s); differs {
			return v
		}
		return stepDone(s, written.Proof())
	}
	return onceServed(s, func() verdict {
		site := s.Site("power")
		switch {
		case s.Installer != nil:
			return makeCommand(s, kind.Reboot, s.Installer)
		case site != nil:
			return makeCommand(s, kind.Power, site).
				after(noted{"boot_path", "through the BMC, because the installer is gone"})
		case s.Past(s.Limit()):
			return fails("AGENT_UNAVAILABLE",
				"the installer is gone and there is no BMC to start the machine with; its disk is written and verified", true)
		}
		return does(waits{operation.WaitAgent, s.SoonOr(s.Limit())})
	})
}

// NoBootPath returns why no path leads a machine into the installer, whichever agent opens a session; nil where one
// may.
func NoBootPath(w operation.World, path string) *fleet.Refusal {
	host := fleet.Host(w.Candidates)
	byHost := host != nil && (!host.Live ||
		path != kind.PathBootNext && host.CanDo("kexec") ||
		path != kind.PathKexec && host.CanDo("netboot") && host.CanDo("reboot"))
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
	case path == operation.PathMedia && !byBMC:
		return &fleet.Refusal{Reason: "NO_BOOT_PATH", Message: "no BMC is known that could attach an image; name one with " +
			"`ingot machine update MACHINE --bmc-endpoint`"}
	case path == kind.PathBMC && !byBMC, (path == kind.PathKexec || path == kind.PathBootNext) && !byHost,
		!byHost && !byBMC:
		return &fleet.Refusal{Reason: "NO_BOOT_PATH", Message: "no way leads into the installer" + viaPath(path) +
			": the machine's agent cannot restart into it, and no BMC is known; name one with `ingot machine update MACHINE " +
			"--bmc-endpoint`"}
	}
	return nil
}

package decider

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Steps on metal: a disk is written from an installer that runs in the machine's memory. Bringing the machine there is
// part of the step, by the first of the ways that exist, and each way is a command of its own. Afterwards the machine
// boots from its disk, and counts as done when the system that was written reports under the identity that was made for
// it.

const (
	pathAuto = "auto"
	// pathMedia is used only by steps that name it: the machine boots from an image that its BMC attaches.
	pathMedia = operation.PathMedia
)

// pathOrder lists the paths into the installer in the order in which they are tried.
var pathOrder = []string{kind.PathBootNext, kind.PathKexec, kind.PathBMC, pathMedia}

// triedPath returns the path into the installer of the current command.
func (d *decider) triedPath() string {
	if d.throughBMCPower() && bootPath(d.step()) == pathMedia {
		return pathMedia
	}
	return kind.Of(d.cmd.Kind).Path
}

// throughBMCPower reports whether the current command switches the machine off and on through its BMC.
func (d *decider) throughBMCPower() bool { return kind.Of(d.cmd.Kind).Path == kind.PathBMC }

// path is one way that can be gone now.
type path struct {
	name     string
	kind     kind.Kind
	executor *fleet.Candidate
}

// inPlace reports whether an agent can do it without an installer, as those of simulated machines can.
func (d *decider) inPlace(k kind.Kind) bool {
	return slices.ContainsFunc(d.w.Candidates, func(c fleet.Candidate) bool {
		switch c.Role {
		case "host":
			return slices.Contains(c.Capabilities, kind.Of(k).Capability)
		case "site":
			return d.w.Provider != workflow.ProviderMAAS && d.w.Provider != fleet.AgentProvider && kind.Of(k).WritesSystem &&
				slices.Contains(c.Capabilities, "provider:"+d.w.Provider)
		}
		return false
	})
}

// installerStep is the first step from i on that needs the installer, nil if there is none.
func (d *decider) installerStep(i int) *operation.Step {
	for ; i < len(d.op.Steps); i++ {
		if s := &d.op.Steps[i]; kind.Of(s.Kind).NeedsInstaller && !d.inPlace(s.Kind) {
			return s
		}
	}
	return nil
}

// installed reports whether this operation has written a system to the machine's disk from an installer.
func (d *decider) installed() bool {
	return d.op.Evidence[evidence.Installer] != "" && d.op.Evidence[evidence.ImageDigest] != ""
}

func (d *decider) installer() *fleet.Candidate { return fleet.Installer(d.w.Candidates, d.op.ID) }

// bootsInstaller reports whether the step is not simply an agent's to take.
func (d *decider) bootsInstaller(s *operation.Step) bool {
	switch of := kind.Of(s.Kind); {
	case of.NeedsInstaller:
		return !d.inPlace(s.Kind)
	case of.PrefersInstaller:
		return d.installer() != nil // which has the machine after an erasure
	case of.SetsNextBoot:
		return d.installerStep(d.op.CurrentStep) != nil || d.netbootsRescue()
	default:
		return of.ProvenByBoot && d.unseen()
	}
}

// netbootsRescue reports whether a network boot on its own has something to boot: the site serves the machine.
func (d *decider) netbootsRescue() bool {
	return d.op.Type == fleet.Netboot && d.w.Boot.Segments > 0 && d.step().Mode != "DISK" && !d.simulatedHost()
}

func (d *decider) simulatedHost() bool {
	h := fleet.Host(d.w.Candidates)
	return h != nil && h.Simulated || d.w.Provider != fleet.AgentProvider
}

// dispatchThroughInstaller makes the next command of such a step, or waits. It returns true if the step has ended.
func (d *decider) dispatchThroughInstaller(s *operation.Step, limit time.Time) bool {
	switch of := kind.Of(s.Kind); {
	case of.SetsNextBoot:
		return d.prepareBoot(s, limit)
	case of.ProvenByBoot:
		d.bootDisk(s, limit)
	default:
		d.fromInstaller(s, limit)
	}
	return false
}

// prepareBoot says what the machine will boot, and sets its next boot where a running system can do that.
func (d *decider) prepareBoot(s *operation.Step, limit time.Time) bool {
	target := d.installerStep(d.op.CurrentStep)
	mode, ways := operation.BootRescue, kind.PathBootNext
	if target != nil {
		mode, ways = operation.BootInstaller, bootPath(target)
	}
	if target != nil && d.w.Unfit != nil {
		d.fail(d.w.Unfit.Reason, d.w.Unfit.Message, false)
		return false
	}
	d.assign(mode, false)
	host := fleet.Host(d.w.Candidates)
	canSet := host != nil && host.Live && host.CanDo("netboot") && (ways == pathAuto || ways == kind.PathBootNext)
	switch {
	case canSet && d.served(s, limit):
		d.makeCommand(s, kind.Netboot, host)
	case canSet:
		// Waits for the site, or has failed.
	case target == nil:
		d.netbootByBMC(s, limit)
	case ways == kind.PathBootNext:
		d.fail("NETBOOT_UNSUPPORTED", "the machine's agent is not there, or cannot set its next boot", false)
	default:
		d.stepDone(map[string]string{"next_boot": "set on the way into the installer"})
		return true
	}
	return false
}

// netbootByBMC sets the device of the next boot out of band.
func (d *decider) netbootByBMC(s *operation.Step, limit time.Time) {
	site := fleet.SiteFor(d.w.Candidates, "netboot", d.w.Provider)
	switch {
	case site != nil && d.served(s, limit):
		d.makeCommand(s, kind.Netboot, site)
	case site != nil:
	case d.past(limit):
		d.fail("AGENT_UNAVAILABLE", untaken(s), true)
	case !d.mayCome("site") && (!d.mayCome("host") || fleet.Host(d.w.Candidates).Live):
		d.fail("NETBOOT_UNSUPPORTED", "the machine's agent cannot set its next boot, and there is no BMC to do it", false)
	default:
		d.wait(operation.WaitAgent, operation.Earliest(limit, d.now.Add(operation.LookAgain)))
	}
}

// assign changes what the machine boots from the network, unless it is so already. fresh takes a new token.
func (d *decider) assign(mode string, fresh bool) {
	b := &d.w.Boot
	if b.Mode == mode && b.OperationID == d.op.ID && !fresh {
		return
	}
	d.out.Machine.Assign = &operation.Assignment{Mode: mode, OperationID: d.op.ID, Token: d.w.NewBootToken}
	// Whatever revision the store gives, the site does not know it yet.
	b.Mode, b.OperationID, b.InstallerAgentID, b.Revision = mode, d.op.ID, "", b.Applied+1
}

// served reports whether the site serves by the assignment; else it waits, or fails when that takes too long.
func (d *decider) served(s *operation.Step, limit time.Time) bool {
	switch {
	case d.w.Boot.Served():
		return true
	case d.past(limit):
		d.fail("SITE_AGENT_SILENT", "the site's agent did not take over what the machine is to boot; nothing was started",
			true)
	default:
		d.wait(operation.WaitSite, operation.Earliest(limit, d.now.Add(operation.LookAgain)))
	}
	return false
}

// bootPath is how the step wants the machine to get into the installer.
func bootPath(s *operation.Step) string {
	if s.Mode == "" {
		return pathAuto
	}
	return s.Mode
}

// patience is how long one way into the installer may take.
func patience(s *operation.Step) time.Duration { return min(operation.InstallerPatience, s.Timeout/3) }

// entering reports whether the current command brings the machine into the installer.
func (d *decider) entering() bool {
	return d.cmd != nil && d.cmd.StepIdx == d.op.CurrentStep && kind.Of(d.step().Kind).NeedsInstaller &&
		kind.Of(d.cmd.Kind).Path != "" &&
		!operation.TurnedBack(*d.step())
}

// fromInstaller gives the step to the installer, and brings the machine there first.
func (d *decider) fromInstaller(s *operation.Step, limit time.Time) {
	inst := d.installer()
	switch {
	case operation.TurnedBack(*s):
		d.goBack(s)
	case inst != nil && !inst.CanDo(kind.Of(s.Kind).Capability):
		d.fail("CAPABILITY_MISSING", "the installer cannot "+kind.Of(s.Kind).Capability, false)
	case inst != nil && s.Agentless && !inst.CanDo(capAgentless):
		d.fail("CAPABILITY_MISSING", "the installer is older than installations without an agent; add a newer one with "+
			"`ingot image add`", false)
	case inst != nil && slices.ContainsFunc(s.Needs, func(c string) bool { return !inst.CanDo(c) }):
		d.fail("CAPABILITY_MISSING", "the installer is older than what the machine's spec asks of it ("+
			strings.Join(s.Needs, ", ")+"); add a newer one with `ingot image add`", false)
	case inst != nil && needsPreflight(s, inst):
		d.preflight(s, inst)
	case inst != nil:
		d.makeCommand(s, s.Kind, inst)
	case d.w.Unfit != nil:
		d.fail(d.w.Unfit.Reason, d.w.Unfit.Message, false)
	case !d.w.Boot.InstallerReady:
		d.fail("INSTALLER_MISSING", installerMissing, false)
	case d.w.Boot.Segments == 0:
		d.fail("NO_BOOT_PATH", noSegments, false)
	case d.sentIn() && d.strayed().none() && !d.past(d.cmd.FinishedAt.Add(patience(s))):
		d.wait(operation.WaitInstaller, d.cmd.FinishedAt.Add(patience(s)))
	default:
		d.enter(s, limit)
	}
}

const (
	installerMissing = "the image catalogue has no installer; add one with `ingot image add --kind installer-kernel` " +
		"and `--kind installer-initrd`"
	noSegments = "the machine's site serves no provisioning network; see `ingot site set`"
)

// sentIn reports whether the latest command has sent the machine into the installer.
func (d *decider) sentIn() bool {
	return d.entering() && d.cmd.State == operation.Done && d.cmd.Outcome == operation.OutcomeSucceeded
}

// enter sends the machine into the installer by the next way.
func (d *decider) enter(s *operation.Step, limit time.Time) {
	d.assign(operation.BootInstaller, d.w.Boot.InstallerAgentID != "")
	next := d.pathFor(s)
	switch {
	case next == nil && d.entering() && d.cmd.State == operation.Done:
		d.noPathLeft(s)
	case next != nil && !d.w.Boot.Served():
		d.served(s, limit)
	case d.past(limit):
		d.fail("AGENT_UNAVAILABLE",
			"nobody could bring the machine into the installer before the step's deadline; no disk was written", true)
	case next == nil && !d.mayCome("host") && !d.mayCome("site"):
		d.fail("NO_BOOT_PATH", "nobody can bring the machine into the installer"+viaPath(bootPath(s))+
			": it has no agent with a session and no BMC that the site's agent can use", false)
	case next == nil:
		d.wait(operation.WaitAgent, operation.Earliest(limit, d.now.Add(operation.LookAgain)))
	default:
		d.note("boot_path", "into the installer by "+next.name+d.pathReason())
		d.makeCommand(s, next.kind, next.executor)
	}
}

func viaPath(way string) string {
	if way == pathAuto || way == "" {
		return ""
	}
	return " by " + way
}

// pathReason tells what has been tried before.
func (d *decider) pathReason() string {
	if !d.entering() || d.cmd.State == operation.CommandCanceled {
		return ""
	}
	return ", because " + d.triedPath() + " did not: " + cmp.Or(d.cmd.Message, "the installer has not reported")
}

// noPathLeft ends a try at which every way has been gone.
func (d *decider) noPathLeft(s *operation.Step) {
	code, message := "INSTALLER_SILENT", "the machine was sent into the installer by "+d.triedPath()+
		", and it has not reported from there"
	switch {
	case d.cmd.Outcome != operation.OutcomeSucceeded:
		code, message = cmp.Or(d.cmd.Reason, "NO_BOOT_PATH"), cmp.Or(d.cmd.Message, "no way into the installer is left")
	case !d.strayed().none():
		code, message = "WRONG_SYSTEM_BOOTED", wrongSystem[operation.SystemInstaller]
	}
	if d.cmd.Outcome == operation.OutcomeSucceeded && d.mayTryAgain(s) {
		d.retry(s, d.attemptFailed(s, code, message))
		return
	}
	d.fail(code, message, true)
}

// mayCome reports whether an agent of the role that is known, and is not there now, might still come. A host agent that
// is there and cannot do it may be another one after a restart.
func (d *decider) mayCome(role string) bool {
	return slices.ContainsFunc(d.w.Candidates, func(c fleet.Candidate) bool {
		return c.Role == role && (role == "host" && !c.LastSeen.IsZero() || !c.Live)
	})
}

// otherExecutor reports whether another executor than the silent one can go on with a step on metal.
func (d *decider) otherExecutor(s *operation.Step) bool {
	switch of := kind.Of(s.Kind); {
	case of.SetsNextBoot:
		return d.installerStep(d.op.CurrentStep) != nil || fleet.SiteFor(d.w.Candidates, "netboot", d.w.Provider) != nil
	case of.ProvenByBoot:
		return d.installer() != nil || fleet.SiteFor(d.w.Candidates, "power", d.w.Provider) != nil
	default:
		return d.installer() != nil || d.pathFor(s) != nil
	}
}

// bootPath is the first way that can be gone and has not been tried in this try of the step.
func (d *decider) pathFor(s *operation.Step) *path {
	tried := -1
	if d.entering() && d.cmd.State == operation.Done && !s.RetryAt.After(d.cmd.FinishedAt) {
		tried = slices.Index(pathOrder, d.triedPath())
	}
	for i, name := range pathOrder {
		if i <= tried || bootPath(s) != name && (bootPath(s) != pathAuto || name == pathMedia) {
			continue
		}
		if p := d.pathOf(name); p != nil {
			return p
		}
	}
	return nil
}

func (d *decider) pathOf(name string) *path {
	host := fleet.Host(d.w.Candidates)
	inBand := host != nil && host.Live
	switch {
	case name == kind.PathBootNext && inBand && d.op.Evidence[evidence.BootNext] != "" && host.CanDo("reboot"):
		return &path{name, kind.Reboot, host}
	case name == kind.PathKexec && inBand && host.CanDo("kexec"):
		return &path{name, kind.Kexec, host}
	case name == kind.PathBMC, name == pathMedia:
		if site := fleet.SiteFor(d.w.Candidates, "power", d.w.Provider); site != nil {
			return &path{name, kind.Power, site}
		}
	}
	return nil
}

// nextPath goes on by another way after one has failed; false if the failure stands.
func (d *decider) nextPath() bool {
	s := d.step()
	switch {
	case kind.Of(d.cmd.Kind).SetsNextBoot && d.installerStep(d.op.CurrentStep) != nil &&
		bootPath(d.installerStep(d.op.CurrentStep)) == pathAuto:
		d.stepDone(map[string]string{"next_boot": "not set in band: " + d.cmd.Message})
	case d.entering() && d.pathFor(s) != nil:
	default:
		return false
	}
	d.advance()
	return true
}

// evaluateGrantedBoot looks at a granted command on the way into the installer, or of the installer. It returns true if
// it has ended the command.
func (d *decider) evaluateGrantedBoot() bool {
	s := d.step()
	if !kind.Of(s.Kind).NeedsInstaller || d.cmd.ExecutorRole == "site" || d.inPlace(s.Kind) ||
		!d.op.CancelRequested.IsZero() ||
		d.blocked() {
		return false
	}
	if operation.TurnedBack(*s) {
		return d.evaluateLeaving()
	}
	other := d.installer()
	switch {
	case d.entering() && !d.strayed().none():
		d.cameBack(d.strayed())
	case other != nil && other.AgentID != d.cmd.ExecutorID && !d.entering():
		d.installerRestarted()
	case d.oldSystemUp():
		d.installerGone("old_system_booted",
			"the machine was restarted while the installer worked, and its old system has started")
	case other != nil && d.entering():
		d.enteredInstaller()
	case d.entering() && d.past(d.cmd.GrantedAt.Add(patience(s))) && d.pathOf(kind.PathBMC) != nil &&
		bootPath(s) == pathAuto:
		d.supersede("no result and no installer; the machine is switched off and on through its BMC")
	case !d.entering() && d.executorLost() && d.pathOf(kind.PathBMC) != nil && d.mayTryAgain(s):
		why := d.attemptFailed(s, "INSTALLER_SILENT",
			"the installer is silent; the machine is switched off and on through its BMC")
		s.RetryCount++
		d.note("step_retrying", why)
		d.supersede("the installer fell silent after it was granted the command; the machine is switched off through its " +
			"BMC before anything else is tried")
	default:
		return false
	}
	return true
}

// nextEvaluation is when a granted command is looked at again: its end, or earlier where silence means something.
func (d *decider) nextEvaluation() time.Time {
	if kind.Of(d.step().Kind).NeedsInstaller && d.cmd.ExecutorRole != "site" {
		return operation.Earliest(d.grantedWake(), d.now.Add(operation.LookAgain))
	}
	return d.grantedWake()
}

// installerOpened takes the session of an installer of this operation, which is not the current command's executor. It
// returns false if that says nothing about the command.
func (d *decider) installerOpened() bool {
	switch {
	case d.op.Phase != operation.Running || d.cmd == nil || d.cmd.Settled() && !d.bootsInstaller(d.step()):
		return false
	case d.cmd.Settled():
		d.advance()
	case d.entering() && d.cmd.State == operation.Granted && d.cmd.ExecutorRole == "host":
		d.enteredInstaller()
	case d.entering() && d.cmd.State != operation.Granted:
		d.replaceCommand("the machine came into the installer by itself; nothing was started")
	case d.cmd.State == operation.Granted && kind.Of(d.cmd.Kind).NeedsInstaller && d.cmd.ExecutorRole == "installer":
		d.installerRestarted()
	case d.cmd.State != operation.Granted && (kind.Of(d.cmd.Kind).NeedsInstaller || kind.Of(d.cmd.Kind).Ungranted):
		d.replaceCommand("the installer was started again before it was granted the command; nothing was started")
	case d.cmd.State == operation.Granted && kind.Of(d.cmd.Kind).ProvenByBoot && d.op.Type == fleet.Netboot &&
		d.rebootSeen():
		d.confirmReboot("new_boot")
	default:
		return false
	}
	return true
}

// enteredInstaller: the installer's session proves that the machine has left the system that the command ran on.
func (d *decider) enteredInstaller() {
	d.setCommand(operation.Done)
	d.cmd.Outcome, d.cmd.SettledBy = operation.OutcomeSucceeded, "installer_session"
	d.advance()
}

// leaveInstaller notes who wrote the disks, and lets the machine boot from them, once nothing more is to be written.
func (d *decider) leaveInstaller() {
	if d.cmd.ExecutorRole != "installer" {
		return
	}
	if d.op.Evidence == nil {
		d.op.Evidence = map[string]string{}
	}
	d.op.Evidence[evidence.Installer] = d.cmd.ExecutorID
	if d.installerStep(d.op.CurrentStep+1) == nil {
		d.assign(operation.BootDisk, false)
		d.out.Machine.RevokeHosts = kind.Of(d.cmd.Kind).WritesSystem
		d.out.Machine.Agentless = d.out.Machine.RevokeHosts && d.agentless()
	}
}

// bootDisk leaves the installer for the system on the disk: only when the site serves nothing else any more.
func (d *decider) bootDisk(s *operation.Step, limit time.Time) {
	inst, site := d.installer(), fleet.SiteFor(d.w.Candidates, "power", d.w.Provider)
	switch {
	case !d.newSystem().none():
		// It is there already, as when somebody has pressed the button.
		if d.newSystemTrue() {
			d.stepDone(d.newSystem().proof())
			d.advance()
		}
	case !d.served(s, limit):
	case inst != nil:
		d.makeCommand(s, kind.Reboot, inst)
	case site != nil:
		d.note("boot_path", "through the BMC, because the installer is gone")
		d.makeCommand(s, kind.Power, site)
	case d.past(limit):
		d.fail("AGENT_UNAVAILABLE",
			"the installer is gone and there is no BMC to start the machine with; its disk is written and verified", true)
	default:
		d.wait(operation.WaitAgent, operation.Earliest(limit, d.now.Add(operation.LookAgain)))
	}
}

// target is the machine's own agent.
func (d *decider) target() fleet.Candidate {
	for _, c := range d.w.Candidates {
		if c.AgentID == d.w.TargetAgentID && c.Role == "host" {
			return c
		}
	}
	return fleet.Candidate{}
}

// newSystem returns the system that this operation wrote once it has reported, under the identity that was made for it.
func (d *decider) newSystem() arrival {
	t := d.target()
	switch {
	case d.agentless():
		return d.phonedHome()
	case t.OperationID == d.op.ID && t.BootID != "":
		return arrival{agentID: t.AgentID, bootID: t.BootID, by: operation.ByOperationToken}
	}
	return arrival{}
}

// newSystemTrue holds what the new system says of its image against what was read back from the disk; a difference ends
// the operation.
func (d *decider) newSystemTrue() bool {
	if d.agentless() {
		return true // it says nothing of its image
	}
	written, said := d.op.Evidence[evidence.ImageDigest], d.target().ImageDigest
	if strings.EqualFold(bare(written), bare(said)) {
		return true
	}
	d.fail("EVIDENCE_MISSING", "the system that came up says that it was made from "+cmp.Or(said, "no known image")+
		", and "+written+" was written", false)
	return false
}

func bare(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

// endBoot takes back what the operation let the machine boot. A network boot that was asked for stays until it happens.
func (d *decider) endBoot(p operation.Phase) {
	b := d.w.Boot
	if b.OperationID != d.op.ID || b.Mode == operation.BootDisk || b.Mode == "" ||
		p == operation.Succeeded && b.Mode == operation.BootRescue {
		return
	}
	d.assign(operation.BootDisk, false)
}

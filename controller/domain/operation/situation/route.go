package situation

import (
	"slices"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// PathAuto is the path of a step into the installer that names none: the first path that exists is taken.
const PathAuto = "auto"

// paths lists the paths into the installer in the order in which they are tried. Virtual media, an image that the BMC
// attaches, are used only by steps that name them.
var paths = []string{kind.PathBootNext, kind.PathKexec, kind.PathBMC, operation.PathMedia}

// Path is a path into the installer that can be taken now: the kind of its command, and who executes that.
type Path struct {
	Name     string
	Kind     kind.Kind
	Executor *fleet.Candidate
}

// PathOfStep returns the path by which a step wants its machine to get into the installer.
func PathOfStep(s *operation.Step) string {
	if s.Mode == "" {
		return PathAuto
	}
	return s.Mode
}

// TriedPath returns the path into the installer of the command.
func (s Situation) TriedPath() string {
	if s.CyclesPower && PathOfStep(s.Step) == operation.PathMedia {
		return operation.PathMedia
	}
	return s.CommandKind.Path
}

// NextPath returns the first path that can be taken and has not been tried in this try of the step; nil where none is
// left.
func (s Situation) NextPath() *Path {
	tried := -1
	if s.Entering && s.Command.State == operation.Done && !s.Step.RetryAt.After(s.Command.FinishedAt) {
		tried = slices.Index(paths, s.TriedPath())
	}
	wanted := PathOfStep(s.Step)
	for i, name := range paths {
		if i <= tried || wanted != name && (wanted != PathAuto || name == operation.PathMedia) {
			continue
		}
		if p := s.PathNow(name); p != nil {
			return p
		}
	}
	return nil
}

// PathNow returns the named path if it can be taken now, else nil.
func (s Situation) PathNow(name string) *Path {
	inBand := s.Host != nil && s.Host.Live
	switch {
	case name == kind.PathBootNext && inBand && s.Op.Evidence[evidence.BootNext] != "" && s.Host.CanDo("reboot"):
		return &Path{name, kind.Reboot, s.Host}
	case name == kind.PathKexec && inBand && s.Host.CanDo("kexec"):
		return &Path{name, kind.Kexec, s.Host}
	case name == kind.PathBMC, name == operation.PathMedia:
		if site := s.Site("power"); site != nil {
			return &Path{name, kind.Power, site}
		}
	}
	return nil
}

// InstallerStep returns the first step from i on that needs the installer; nil if there is none.
func (s Situation) InstallerStep(i int) *operation.Step {
	for ; i < len(s.Op.Steps); i++ {
		if step := &s.Op.Steps[i]; kind.Lookup(step.Kind).NeedsInstaller && !s.InPlace(step.Kind) {
			return step
		}
	}
	return nil
}

// ThroughInstaller reports whether the step is not simply an agent's to take.
func (s Situation) ThroughInstaller() bool {
	switch of := s.StepKind; {
	case of.NeedsInstaller:
		return !s.InPlace(s.Step.Kind)
	case of.PrefersInstaller:
		return s.Installer != nil // which has the machine after an erasure
	case of.SetsNextBoot:
		return s.InstallerStep(s.Op.CurrentStep) != nil || s.netbootsRescue()
	default:
		return of.ProvenByBoot && s.unseen()
	}
}

// netbootsRescue reports whether the site serves the machine a system for a network boot on its own.
func (s Situation) netbootsRescue() bool {
	return s.Op.Type == fleet.Netboot && s.World.Boot.Segments > 0 && s.Step.Mode != "DISK" && !simulated(s)
}

// Site returns the live agent of the machine's site that can do the work; nil if there is none.
func (s Situation) Site(capability string) *fleet.Candidate {
	return fleet.SiteFor(s.World.Candidates, capability, s.World.Provider)
}

// MayCome reports whether an agent of the role that is known, and has no session now, might still come. A host agent
// that has one and cannot do the work may be another one after a restart.
func (s Situation) MayCome(role string) bool {
	return slices.ContainsFunc(s.World.Candidates, func(c fleet.Candidate) bool {
		return c.Role == role && (role == "host" && !c.LastSeen.IsZero() || !c.Live)
	})
}

// Route returns the agent that can take the next command of the step; nil while there is none.
func (s Situation) Route() *fleet.Candidate {
	switch s.StepKind.Route {
	case kind.OverSSH:
		return fleet.SiteForSSH(s.World.Candidates)
	case kind.ThroughProvider:
		return s.Site(string(kind.ProviderAction))
	}
	if s.Step.AsksCluster() {
		return s.RouteInCluster()
	}
	return fleet.Route(s.World.Candidates, s.StepKind.Capability, s.World.Provider, s.Step.Mode == "bmc", s.Now)
}

// RouteInCluster returns the agent that can take the next command of a step in a cluster; while a command is out, the
// one that could take that.
func (s Situation) RouteInCluster() *fleet.Candidate {
	next := s.ClusterKind()
	if !s.Settled {
		next = s.Command.Kind
	}
	if !kind.Lookup(next).AsksHost {
		return fleet.SiteForClusters(s.World.Candidates)
	}
	if s.Host != nil && s.Host.Live {
		return s.Host
	}
	return nil
}

// TokenUse is the age at which the token of a join is made anew instead of used. It is well below the token's life.
const TokenUse = 5 * time.Minute

// ClusterKind returns the kind of the next command of a step in a cluster.
func (s Situation) ClusterKind() kind.Kind {
	switch {
	case s.Step.IsStage():
		return kind.Drain
	case s.StepKind.Token != "" && !s.tokenMade():
		return s.StepKind.Token
	}
	return s.Step.Kind
}

// tokenMade reports whether the latest command has made the token of this join, and there is time to use it.
func (s Situation) tokenMade() bool {
	return s.OfStep && s.Command.Kind == s.StepKind.Token && s.Command.State == operation.Done &&
		s.Command.Outcome == operation.OutcomeSucceeded && s.Now.Before(s.Command.FinishedAt.Add(TokenUse))
}

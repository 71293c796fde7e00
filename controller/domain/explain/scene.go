package explain

import (
	"slices"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
)

// scene is the facts with what follows from them at once.
type scene struct {
	Facts
	spec   *baremetalv1.MachineSpec
	status *baremetalv1.MachineStatus
	active bool
	// step is the operation's current one, cmd its latest attempt, exec that attempt's executor; nil where there is none.
	step *operation.Step
	cmd  *operation.Command
	exec *Agent
	host *Agent
}

func newScene(f Facts) *scene {
	s := &scene{Facts: f, spec: f.Machine.GetSpec(), status: f.Machine.GetStatus(), host: newestHost(f.Agents)}
	if f.Op == nil {
		return s
	}
	s.active = !operation.IsTerminal(f.Op.Phase)
	if f.Op.CurrentStep < len(f.Op.Steps) {
		s.step = &f.Op.Steps[f.Op.CurrentStep]
	}
	for i := range f.Commands {
		if f.Commands[i].StepIdx == f.Op.CurrentStep {
			s.cmd = &f.Commands[i]
		}
	}
	if s.cmd != nil {
		s.exec = s.agent(s.cmd.ExecutorID)
	}
	return s
}

func (s *scene) agent(id string) *Agent {
	for i := range s.Agents {
		if s.Agents[i].AgentID == id {
			return &s.Agents[i]
		}
	}
	return nil
}

func newestHost(all []Agent) *Agent {
	var best *Agent
	for i := range all {
		a := &all[i]
		if a.Role != "host" {
			continue
		}
		if best == nil || a.Live && !best.Live || a.Live == best.Live && a.LastSeen.After(best.LastSeen) {
			best = a
		}
	}
	return best
}

// siteAgents are the agents of the machine's site, live ones first.
func (s *scene) siteAgents() []*Agent {
	var live, gone []*Agent
	for i := range s.Agents {
		switch a := &s.Agents[i]; {
		case a.Role == "site" && a.Live:
			live = append(live, a)
		case a.Role == "site":
			gone = append(gone, a)
		}
	}
	return append(live, gone...)
}

func (s *scene) provider() string {
	if p := s.spec.GetProvider(); p != "" {
		return p
	}
	return fleet.AgentProvider
}

func (s *scene) siteName() string {
	if s.Site != nil {
		return s.Site.Name
	}
	return s.spec.GetSite()
}

// condition gives a condition of the machine, nil if nobody has set it.
func (s *scene) condition(t fleet.ConditionType) *baremetalv1.Condition {
	for _, c := range s.status.GetConditions() {
		if c.GetType() == string(t) {
			return c
		}
	}
	return nil
}

func (s *scene) holds(t fleet.ConditionType) bool { return s.condition(t).GetStatus() }

// open says that the current command is neither settled nor granted.
func (s *scene) open() bool {
	return s.cmd != nil && !s.cmd.Settled() && s.cmd.State != operation.Granted
}

func (s *scene) granted() bool { return s.cmd != nil && s.cmd.State == operation.Granted }

// entering says that the current command brings the machine into the installer.
func (s *scene) entering() bool {
	return s.cmd != nil && s.step != nil && (s.step.Kind == operation.KindRepave || s.step.Kind == operation.KindErase) &&
		s.cmd.Kind != s.step.Kind
}

// throughBMC says that the current command is done through the machine's management controller.
func (s *scene) throughBMC() bool {
	return s.cmd != nil && s.cmd.ExecutorRole == "site" && s.provider() == fleet.AgentProvider && s.cmd.Kind != kindSSH &&
		!s.inCluster()
}

// kindSSH is the kind of a step whose script the site's agent runs on the machine.
const kindSSH operation.Kind = "ssh"

// limit is when the current try of the step has taken too long to find an executor.
func (s *scene) limit() time.Time {
	from := s.step.StartedAt
	if s.step.RetryAt.After(from) {
		from = s.step.RetryAt
	}
	return from.Add(s.step.Timeout)
}

// word finds the newest one of a verb for which fits holds.
func (s *scene) word(verb string, fits func(Override) bool) (Override, bool) {
	i := slices.IndexFunc(s.Words, func(w Override) bool { return w.Verb == verb && (fits == nil || fits(w)) })
	if i < 0 {
		return Override{}, false
	}
	return s.Words[i], true
}

// cancelledBy says who cancelled the operation that is explained.
func (s *scene) cancelledBy() string {
	w, ok := s.word("CANCEL", func(w Override) bool { return w.OperationID == s.Op.ID })
	if !ok {
		return ""
	}
	return w.by()
}

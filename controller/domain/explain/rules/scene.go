package rules

import (
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
)

// scene is the facts with what follows from them at once.
type scene struct {
	explain.Facts
	spec   *baremetalv1.MachineSpec
	status *baremetalv1.MachineStatus
	active bool
	// step is the operation's current one, cmd its latest attempt, exec that attempt's executor; nil where there is none.
	step *operation.Step
	cmd  *operation.Command
	exec *explain.Agent
	host *explain.Agent
}

func newScene(f explain.Facts) *scene {
	s := &scene{Facts: f, spec: f.Machine.GetSpec(), status: f.Machine.GetStatus(), host: f.Host()}
	if s.status.GetAgentless() {
		s.host = nil // the agents that are known are of systems that are gone
	}
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
		s.exec = s.Agent(s.cmd.ExecutorID)
	}
	return s
}

// open reports whether the current command is neither settled nor granted.
func (s *scene) open() bool {
	return s.cmd != nil && !s.cmd.Settled() && s.cmd.State != operation.Granted
}

func (s *scene) granted() bool { return s.cmd != nil && s.cmd.State == operation.Granted }

// entering reports whether the current command brings the machine into the installer.
func (s *scene) entering() bool {
	return s.cmd != nil && s.step != nil && kind.Of(s.step.Kind).NeedsInstaller &&
		s.cmd.Kind != s.step.Kind
}

// throughBMC reports whether the current command is done through the machine's management controller.
func (s *scene) throughBMC() bool {
	return s.cmd != nil && s.cmd.ExecutorRole == "site" && s.Provider() == fleet.AgentProvider && !s.overSSH() &&
		!s.inCluster()
}

// limit is when the current try of the step has taken too long to find an executor.
func (s *scene) limit() time.Time {
	from := s.step.StartedAt
	if s.step.RetryAt.After(from) {
		from = s.step.RetryAt
	}
	return from.Add(s.step.Timeout)
}

// cancelledBy returns who cancelled the explained operation.
func (s *scene) cancelledBy() string {
	w, ok := s.Override("CANCEL", func(w explain.Override) bool { return w.OperationID == s.Op.ID })
	if !ok {
		return ""
	}
	return w.By()
}

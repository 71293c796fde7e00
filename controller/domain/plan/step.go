package plan

import (
	"slices"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
)

// StepOf returns what the specification alone determines of a step: its mode, and what it needs of an installer.
func StepOf(spec *baremetalv1.Step) operation.Step {
	s := operation.Step{Mode: kind.ModeOf(spec), Agentless: spec.GetRepave().GetAgentless(), State: operation.StepWaiting}
	if spec.GetRepave().GetMirror() != "" {
		s.Needs = []string{operation.CapMirror}
	}
	return s
}

// InstallerNeeds returns the capabilities that a repave needs of its installer, by its step and by the machine's spec.
func InstallerNeeds(s operation.Step, spec *baremetalv1.MachineSpec) []string {
	if !kind.Of(s.Kind).WritesSystem {
		return nil
	}
	needs := s.Needs
	if spec.GetInstallMirror() != "" && !slices.Contains(needs, operation.CapMirror) {
		needs = append(needs, operation.CapMirror)
	}
	if len(spec.GetDataDisks()) > 0 {
		needs = append(needs, operation.CapDataDisks)
	}
	return needs
}

// Kinds returns the kinds of steps.
func Kinds(steps []Filled) []kind.Kind {
	out := make([]kind.Kind, 0, len(steps))
	for _, s := range steps {
		out = append(out, s.Kind)
	}
	return out
}

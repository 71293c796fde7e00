package validate

import (
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

// WorkflowMode checks that a workflow of this kind has this mode. path names the mode's field.
func WorkflowMode(path string, k workflow.Kind, m baremetalv1.Workflow_Mode) (workflow.Mode, error) {
	mode := workflow.NoMode
	if m != baremetalv1.Workflow_MODE_UNSPECIFIED {
		mode = workflow.Mode(m.String())
	}
	switch {
	case workflow.Fits(k, mode):
		return mode, nil
	case k == workflow.Onboarding:
		return mode, Fault(path, "an onboarding has none")
	}
	return mode, Fault(path, "SOFT_RESET, REIMAGE, STORAGE_CLEANUP or FULL_DECOMMISSION")
}

// WorkflowParams reads what a workflow's parameters say to its steps; every attempt reads them again. path names the
// field of the parameters.
func WorkflowParams(path string, k workflow.Kind, params map[string]string) (plan.Inputs, error) {
	of := map[string]string{}
	key := func(p string) string { return path + "[" + p + "]" }
	for _, name := range sorted(params) {
		switch {
		case name == ParamImage || name == ParamTimeout:
			of[name] = params[name]
		case name == ParamPath && k == workflow.Onboarding:
			if err := OneOf(key(name), params[name], workflow.PathInstall, workflow.PathAdopt); err != nil {
				return plan.Inputs{}, err
			}
		default:
			return plan.Inputs{}, Fault(path,
				"%.64q is no parameter of it; image_ref, timeout_seconds, and path of an onboarding are", name)
		}
	}
	return Params(fleet.Onboard, of, key)
}

package plan

import (
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/kind"
)

// RepaveMAAS is the plan that a reimage runs on a machine that a MAAS region installs.
const RepaveMAAS = "repave-maas"

// RepaveByMAAS is the built-in plan of that name: MAAS writes the disk, and its agent comes with what was deployed.
func RepaveByMAAS() *baremetalv1.Plan {
	act := func(name, action string) *baremetalv1.Step {
		return &baremetalv1.Step{Name: name,
			Kind: &baremetalv1.Step_ProviderAction{ProviderAction: &baremetalv1.ProviderAction{Action: action}}}
	}
	return &baremetalv1.Plan{PlanId: RepaveMAAS, DisplayName: "Repave, by MAAS", BuiltIn: true, Steps: []*baremetalv1.Step{
		act("release", "release"), act("deploy", "deploy"), act("wait-deployed", "wait_deployed"),
		{Name: "wait-for-agent", Kind: &baremetalv1.Step_WaitForAgent{WaitForAgent: &baremetalv1.WaitForAgent{}}},
	}}
}

// ByInstaller returns the first step that our own installer does, nil if there is none.
func ByInstaller(steps []Filled) *Filled {
	for i := range steps {
		if of := kind.Of(steps[i].Kind); of.NeedsInstaller || of.SetsNextBoot {
			return &steps[i]
		}
	}
	return nil
}

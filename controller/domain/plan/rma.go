package plan

import (
	"fmt"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/kind"
)

// validateRMA keeps a machine from being worked on between its flag and its return.
func validateRMA(p *baremetalv1.Plan) error {
	for i, s := range p.GetSteps() {
		if kind.Of(kind.OfStep(s)).Control != kind.FlagsRMA {
			continue
		}
		field := fmt.Sprintf("plan.steps[%d].rma.action", i)
		switch back := s.GetRma().GetAction() == "return"; {
		case back && i != 0:
			return kind.Invalid("INVALID_FIELD", field,
				"return is the first step of its plan: nothing before it runs on a blocked machine")
		case !back && i != len(p.GetSteps())-1:
			return kind.Invalid("INVALID_FIELD", field,
				"flag is the last step of its plan: nothing after it runs on a blocked machine")
		}
	}
	return nil
}

// ReturnsFromRMA reports whether the plan begins with taking the flag RMA off.
func ReturnsFromRMA(p *baremetalv1.Plan) bool {
	first := p.GetSteps()
	return len(first) > 0 && first[0].GetRma().GetAction() == "return"
}

func rmaStep(action string) *baremetalv1.Step {
	return &baremetalv1.Step{Name: "rma", Kind: &baremetalv1.Step_Rma{Rma: &baremetalv1.RmaAction{Action: action}}}
}

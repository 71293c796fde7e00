package validate

import (
	"fmt"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/plan"
)

// Plan checks a plan that a client wants to store.
func Plan(p *baremetalv1.Plan) error {
	if p == nil {
		return Fault("plan", "required")
	}
	var f faults
	f.add("plan.plan_id", planID(p.GetPlanId()))
	f.add("plan.display_name", text(p.GetDisplayName(), maxText))
	if err := f.err(); err != nil {
		return err
	}
	if err := plan.Validate(p); err != nil {
		return err
	}
	for i, s := range p.GetSteps() {
		if err := stepBody(fmt.Sprintf("plan.steps[%d]", i), s); err != nil {
			return err
		}
	}
	return nil
}

// stepBody checks what a step would send to a machine. A step that leaves its configuration open takes the run's.
func stepBody(path string, s *baremetalv1.Step) error {
	if c := s.GetNet(); c.GetHostname() != "" || c.GetFirewall() != nil || len(c.GetInterfaces()) > 0 {
		return NetReconfig(path+".net", c)
	}
	var f faults
	f.add(path+".repave.disk", diskRule(s.GetRepave().GetDisk()))
	f.add(path+".repave.mirror", diskRule(s.GetRepave().GetMirror()))
	f.add(path+".repave.image", imageRef(s.GetRepave().GetImage()))
	return f.err()
}

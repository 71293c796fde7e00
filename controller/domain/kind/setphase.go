package kind

import (
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// SetPhase changes the machine's phase in the controller's record.
const SetPhase Kind = "set_phase"

var setPhase = Declaration{
	Kind:     SetPhase,
	Step:     true,
	Control:  SetsPhase,
	Reserved: "set_phase belongs to the built-in maintenance plans",
	Mode:     "phase",
	HarmOf: func(s *baremetalv1.Step) Harm {
		if s.GetSetPhase().GetPhase() != string(fleet.Maintenance) {
			return Harmless
		}
		return Interrupts
	},
	Runs:    true,
	Harm:    Interrupts,
	Timeout: 30 * time.Second,
	Started: "Changing phase",
	Done:    "Phase changed",
}

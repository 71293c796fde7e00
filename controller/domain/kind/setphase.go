package kind

import (
	"time"
)

// SetPhase changes the machine's phase in the controller's record.
const SetPhase Kind = "set_phase"

var setPhase = Declaration{
	Kind:    SetPhase,
	Step:    true,
	Runs:    true,
	Harm:    Interrupts,
	Timeout: 30 * time.Second,
	Started: "Changing phase",
	Done:    "Phase changed",
}

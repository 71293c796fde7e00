package kind

import (
	"time"
)

// RMA takes the machine out of service for a return, or back. It changes the controller's record alone.
const RMA Kind = "rma"

var rma = Declaration{
	Kind:    RMA,
	Step:    true,
	Control: FlagsRMA,
	Mode:    "action",
	Modes:   []string{"flag", "return"},
	Runs:    true,
	Harm:    Destroys,
	Timeout: 600 * time.Second,
	Started: "Changing the RMA flag",
	Done:    "RMA flag changed",
}

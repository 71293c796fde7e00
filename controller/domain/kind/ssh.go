package kind

import (
	"time"

	"github.com/ingot-metal/ingot/internal/evidence"
)

// SSH runs a script on the machine from the site agent.
const SSH Kind = "ssh"

var ssh = Declaration{
	Kind:     SSH,
	Step:     true,
	Runs:     true,
	Action:   "script",
	Harm:     Harmless, // as its script is declared
	Timeout:  600 * time.Second,
	Evidence: evidence.ExitCode,
	Started:  "Running script",
	Done:     "Script has ended",
	Doing:    "a script runs on the machine",
}

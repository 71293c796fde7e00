package kind

import (
	"time"
)

// WaitForAgent waits for a session of the machine's own agent.
const WaitForAgent Kind = "wait_for_agent"

var waitForAgent = Declaration{
	Kind:     WaitForAgent,
	Step:     true,
	Control:  AwaitsAgent,
	Runs:     true,
	Harm:     Harmless,
	Timeout:  600 * time.Second,
	AsksHost: true,
	Started:  "Waiting for the machine's agent",
	Done:     "Agent is up",
}

package kind

import (
	"time"

	"github.com/ingot-metal/ingot/internal/evidence"
)

// Drain moves the pods away from the machine's Node.
const Drain Kind = "drain"

var drain = Declaration{
	Kind:        Drain,
	Step:        true,
	Runs:        true,
	Action:      "cluster",
	Harm:        Interrupts,
	Timeout:     1800 * time.Second,
	AsksCluster: true,
	Evidence:    evidence.NodeDrained,
	Started:     "Draining",
	Done:        "Node drained",
	Doing:       "the machine's Node is being drained",
}

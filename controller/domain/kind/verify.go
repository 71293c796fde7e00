package kind

import (
	"time"

	"github.com/ingot-metal/ingot/internal/evidence"
)

// Verify waits until the machine's Node is ready.
const Verify Kind = "verify"

var verify = Declaration{
	Kind:        Verify,
	Step:        true,
	Runs:        true,
	Action:      "cluster",
	Harm:        Harmless,
	Timeout:     300 * time.Second,
	AsksCluster: true,
	Evidence:    evidence.NodeReadyAt,
	Started:     "Verifying in cluster",
	Done:        "Node is ready",
	Doing:       "the cluster is asked for the machine's Node",
}

package kind

import (
	"time"

	"github.com/ingot-metal/ingot/internal/evidence"
)

// Uncordon lets the machine's Node take pods again.
const Uncordon Kind = "uncordon"

var uncordon = Declaration{
	Kind:        Uncordon,
	Step:        true,
	Runs:        true,
	Action:      "cluster",
	Harm:        Harmless,
	Timeout:     60 * time.Second,
	Retries:     2,
	AsksCluster: true,
	Evidence:    evidence.NodeSchedulable,
	Started:     "Uncordoning",
	Done:        "Node takes pods again",
	Doing:       "the machine's Node is being given back to the scheduler",
}

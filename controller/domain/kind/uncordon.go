package kind

import (
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Uncordon lets the machine's Node take pods again.
const Uncordon Kind = "uncordon"

var uncordon = Declaration{
	Kind:        Uncordon,
	Step:        true,
	Runs:        true,
	Action:      "cluster",
	Check:       checkCluster,
	Fill:        func(s *baremetalv1.Step, in Inputs) error { return fillCluster(&s.GetUncordon().ClusterRef, in) },
	Harm:        Harmless,
	Timeout:     60 * time.Second,
	Retries:     2,
	AsksCluster: true,
	ClusterAct:  "uncordon",
	Evidence:    evidence.NodeSchedulable,
	Follows:     []Condition{{Type: fleet.Drained, Reason: "Uncordoned"}},
	Started:     "Uncordoning",
	Done:        "Node takes pods again",
	Doing:       "the machine's Node is being given back to the scheduler",
}

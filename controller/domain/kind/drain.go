package kind

import (
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Drain moves the pods away from the machine's Node.
const Drain Kind = "drain"

var drain = Declaration{
	Kind:   Drain,
	Step:   true,
	Runs:   true,
	Action: "cluster",
	Check:  checkCluster,
	Fill:   func(s *baremetalv1.Step, in Inputs) error { return fillCluster(&s.GetDrain().ClusterRef, in) },
	HarmOf: func(s *baremetalv1.Step) Harm {
		if d := s.GetDrain(); d.GetForce() || d.GetDeleteLocalData() || d.GetRemoveNode() {
			return Destroys
		}
		return Interrupts
	},
	Harm:        Interrupts,
	Timeout:     1800 * time.Second,
	AsksCluster: true,
	ClusterAct:  "drain",
	Evidence:    evidence.NodeDrained,
	Follows: []Condition{
		{Type: fleet.Drained, Status: true, Reason: "DrainFinished", Message: evidence.ClusterName},
		{Type: fleet.InCustomerCluster, Reason: "NodeRemoved", If: evidence.NodeRemoved},
	},
	Started: "Draining",
	Done:    "Node drained",
	Doing:   "the machine's Node is being drained",
}

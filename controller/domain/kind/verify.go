package kind

import (
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Verify waits until the machine's Node is ready.
const Verify Kind = "verify"

var verify = Declaration{
	Kind:   Verify,
	Step:   true,
	Runs:   true,
	Action: "cluster",
	Check: func(s *baremetalv1.Step, path string) error {
		if v := s.GetVerify().GetKubeletVersion(); v != "" && !kubeletVersion.MatchString(v) {
			return Invalid("INVALID_FIELD", path+".kubelet_version", "a version as kubelets report it, such as v1.33.2")
		}
		return checkCluster(s, path)
	},
	Fill:        func(s *baremetalv1.Step, in Inputs) error { return fillCluster(&s.GetVerify().ClusterRef, in) },
	Harm:        Harmless,
	Timeout:     300 * time.Second,
	AsksCluster: true,
	ClusterAct:  "verify",
	Evidence:    evidence.NodeReadyAt,
	Follows: []Condition{
		{Type: fleet.InCustomerCluster, Status: true, Reason: "NodeReady", Message: evidence.ClusterName},
	},
	Started: "Verifying in cluster",
	Done:    "Node is ready",
	Doing:   "the cluster is asked for the machine's Node",
}

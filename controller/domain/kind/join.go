package kind

import (
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Join joins the machine to a cluster: a site agent makes a token by JoinToken, and the machine's own agent uses it.
const Join Kind = "join"

var join = Declaration{
	Kind:        Join,
	Step:        true,
	Runs:        true,
	Action:      "join",
	Check:       checkCluster,
	Fill:        func(s *baremetalv1.Step, in Inputs) error { return fillCluster(&s.GetJoin().ClusterRef, in) },
	Harm:        Harmless,
	Timeout:     600 * time.Second,
	Retries:     1,
	AsksHost:    true,
	AsksCluster: true,
	Token:       JoinToken,
	Evidence:    evidence.JoinedCluster,
	Started:     "Joining cluster",
	Done:        "Cluster joined",
	Doing:       "kubeadm is joining the machine to its cluster",
}

// JoinToken makes the token of one join in the cluster.
const JoinToken Kind = "join_token"

var joinToken = Declaration{
	Kind:        JoinToken,
	Action:      "cluster",
	Harm:        Harmless,
	AsksCluster: true,
	ClusterAct:  "token",
	Prepares:    true,
	Doing:       "a token for the join is being made in the cluster",
}

package plan

import (
	"regexp"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
)

var (
	clusterName    = regexp.MustCompile(`^[a-z0-9._-]{1,63}$`)
	kubeletVersion = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+([+-][0-9A-Za-z.+-]{1,40})?$`)
)

// clusterRef is the field of a step that names its cluster, nil where the step has none.
func clusterRef(s *baremetalv1.Step) *string {
	switch KindOf(s) {
	case "join":
		return &s.GetJoin().ClusterRef
	case "verify":
		return &s.GetVerify().ClusterRef
	case "drain":
		return &s.GetDrain().ClusterRef
	case "uncordon":
		return &s.GetUncordon().ClusterRef
	}
	return nil
}

func validateCluster(s *baremetalv1.Step, field string) error {
	field += "." + KindOf(s)
	if ref := *clusterRef(s); ref != "" && !clusterName.MatchString(ref) {
		return invalid("INVALID_FIELD", field+".cluster_ref", "1 to 63 characters of a-z, 0-9, ., _ and -")
	}
	if v := s.GetVerify().GetKubeletVersion(); v != "" && !kubeletVersion.MatchString(v) {
		return invalid("INVALID_FIELD", field+".kubelet_version", "a version as kubelets report it, such as v1.33.2")
	}
	return nil
}

func fillCluster(s *baremetalv1.Step, ofMachine string) error {
	ref := clusterRef(s)
	*ref = first(*ref, ofMachine)
	if *ref == "" {
		return failure.Precondition("CLUSTER_NOT_CONFIGURED", "neither the plan nor the machine names a cluster").
			WithField("target_cluster_ref", "name a cluster in the plan's step, or set spec.target_cluster_ref of the machine")
	}
	return nil
}

func joinSteps() (join, verify *baremetalv1.Step) {
	join = &baremetalv1.Step{Name: "join-cluster", TimeoutSeconds: 600, MaxRetries: 1,
		Kind: &baremetalv1.Step_Join{Join: &baremetalv1.KubeadmJoin{}}}
	verify = &baremetalv1.Step{Name: "verify", TimeoutSeconds: 300,
		Kind: &baremetalv1.Step_Verify{Verify: &baremetalv1.VerifyInCluster{}}}
	return join, verify
}

func drainStep() *baremetalv1.Step {
	return &baremetalv1.Step{Name: "drain", Kind: &baremetalv1.Step_Drain{Drain: &baremetalv1.Drain{}}}
}

// leaveStep takes the Node away too. Data on the machine's own disk has no future in these plans.
func leaveStep() *baremetalv1.Step {
	return &baremetalv1.Step{Name: "drain",
		Kind: &baremetalv1.Step_Drain{Drain: &baremetalv1.Drain{DeleteLocalData: true, RemoveNode: true}}}
}

func uncordonStep() *baremetalv1.Step {
	return &baremetalv1.Step{Name: "uncordon", Kind: &baremetalv1.Step_Uncordon{Uncordon: &baremetalv1.Uncordon{}}}
}

// losesData says that a drain does more than move work elsewhere.
func losesData(d *baremetalv1.Drain) bool {
	return d.GetForce() || d.GetDeleteLocalData() || d.GetRemoveNode()
}

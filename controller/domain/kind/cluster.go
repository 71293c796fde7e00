package kind

import (
	"cmp"
	"regexp"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
)

var (
	clusterName    = regexp.MustCompile(`^[a-z0-9._-]{1,63}$`)
	kubeletVersion = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+([+-][0-9A-Za-z.+-]{1,40})?$`)
)

// ClusterOf returns the name of a step's cluster; empty where the step has none.
func ClusterOf(s *baremetalv1.Step) string { return Text(s, "cluster_ref") }

func checkCluster(s *baremetalv1.Step, path string) error {
	if ref := ClusterOf(s); ref != "" && !clusterName.MatchString(ref) {
		return Invalid("INVALID_FIELD", path+".cluster_ref", "1 to 63 characters of a-z, 0-9, ., _ and -")
	}
	return nil
}

func fillCluster(ref *string, in Inputs) error {
	*ref = cmp.Or(*ref, in.ClusterRef)
	if *ref == "" {
		return failure.Precondition("CLUSTER_NOT_CONFIGURED", "neither the plan nor the machine names a cluster").
			WithField("target_cluster_ref", "name a cluster in the plan's step, or set spec.target_cluster_ref of the machine")
	}
	return nil
}

package cli

import (
	"strings"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func TestClusterCommands(t *testing.T) {
	golden(t, "cluster", fleet,
		"cluster set prod-1 --kubeconfig testdata/kubeconfig",
		"cluster set prod-1 --kubeconfig testdata/kubeconfig --kube-context by-certificate -o json",
		"cluster set prod-1 --kubeconfig testdata/kubeconfig --kube-context by-program",
		"cluster set prod-1 --kubeconfig testdata/kubeconfig --kube-context open",
		"cluster set prod-1 --kubeconfig testdata/kubeconfig --kube-context nobody",
		"cluster set prod-1 --kubeconfig testdata/kubeconfig --kube-context none",
		"cluster set prod-1 --kubeconfig testdata/key",
		"cluster set prod-1 --kubeconfig testdata/none",
		"cluster set prod-1",
		"cluster list",
		"cluster list -o name",
		"cluster list -o yaml",
		"cluster get prod-1",
		"cluster get prod-1 -o json",
		"cluster get nothing",
		"cluster delete old",
		"cluster delete prod-1",
		"__complete cluster get ''",
	)
	f := fleet()
	for _, context := range []string{"prod", "by-certificate"} {
		got := f.run(t, "cluster", "set", "prod-1", "--kubeconfig", "testdata/kubeconfig", "--kube-context", context)
		if strings.Contains(got.out+got.err, "s3cret") || strings.Contains(got.out+got.err, "a2V5") {
			t.Errorf("credentials are shown: %+v", got)
		}
	}
}

// TestWorkInClusters: each is one run of the plan that it is named after.
func TestWorkInClusters(t *testing.T) {
	golden(t, "cluster-work", func() *fakeServer { return reimaging(pb.Operation_SUCCEEDED, nil) },
		"cluster join machine-1 --request-id r-1 --no-wait",
		"cluster drain machine-1 --request-id r-2 --no-wait -o json",
		"cluster uncordon machine-1 --request-id r-3 --no-wait",
		"cluster leave machine-1 --request-id r-4 --no-wait",
		"cluster drain",
		"__complete cluster join ''",
	)
}

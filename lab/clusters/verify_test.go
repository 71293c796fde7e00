//go:build clusters

package clusters

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/executor/cluster"
	"github.com/ingot-metal/ingot/agent/provider/kube"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/lab/clusters/kubetest"
)

// TestVerify: done is a Node that is this machine, on this boot, ready, and of the version that was asked for.
func TestVerify(t *testing.T) {
	r := newRig(t)
	want := &fleetv1.ClusterAction{Act: "verify", ClusterRef: "prod", NodeName: "m-1", SystemUuid: "4C4C4544-0042",
		BootId: "boot-2"}
	good := kubetest.Node{Name: "m-1", SystemUUID: "4c4c4544-0042", BootID: "boot-2", Version: "v1.33.2", Ready: true}
	with := func(change func(n *kubetest.Node)) kubetest.Node {
		n := good
		change(&n)
		return n
	}
	for name, c := range map[string]struct {
		node         *kubetest.Node
		version      string
		reason, says string
	}{
		"no node": {nil, "", "CLUSTER_NODE_NOT_READY", "has no Node m-1"},
		"not ready": {ptr(with(func(n *kubetest.Node) { n.Ready = false })), "", "CLUSTER_NODE_NOT_READY",
			"not ready: TestKubelet: said by the test"},
		"before reboot": {ptr(with(func(n *kubetest.Node) { n.BootID = "boot-1" })), "", "CLUSTER_NODE_NOT_READY",
			"shows boot boot-1"},
		"old kubelet": {&good, "v1.34.0", "CLUSTER_NODE_NOT_READY", "runs kubelet v1.33.2"},
		"other machine": {ptr(with(func(n *kubetest.Node) { n.SystemUUID, n.BootID = "4C4C4544-0043", "other" })), "",
			"CLUSTER_NODE_MISMATCH", "another machine"},
		"the version":    {&good, "v1.33.2", "", ""},
		"any version":    {&good, "", "", ""},
		"uuid not known": {ptr(with(func(n *kubetest.Node) { n.SystemUUID = "" })), "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r.t = t
			if code, _ := r.Admin.Try(http.MethodDelete, "/api/v1/nodes/m-1", "", nil); code != http.StatusOK &&
				code != http.StatusNotFound {
				t.Fatal(code)
			}
			if c.node != nil {
				r.PutNode(*c.node)
			}
			a := cloned(want)
			a.KubeletVersion = c.version
			if c.reason != "" {
				got := r.must(act{ClusterAction: a, timeout: time.Second}, failed)
				if got.Reason.String() != c.reason || !strings.Contains(got.Message, c.says) {
					t.Errorf("it says %v %q", got.Reason, got.Message)
				}
				return
			}
			got := r.must(act{ClusterAction: a}, succeeded)
			if got.Evidence["node_identity"] != kube.ByBootID || got.Evidence["kubelet_version"] != "v1.33.2" ||
				got.Evidence["node_ready_at"] == "" {
				t.Errorf("the evidence is %v", got.Evidence)
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

func cloned(a *fleetv1.ClusterAction) *fleetv1.ClusterAction {
	return &fleetv1.ClusterAction{Act: a.GetAct(), ClusterRef: a.GetClusterRef(), NodeName: a.GetNodeName(),
		SystemUuid: a.GetSystemUuid(), BootId: a.GetBootId()}
}

// TestVerifyWaits: a Node that comes during the wait is found.
func TestVerifyWaits(t *testing.T) {
	r := newRig(t)
	looked := false
	r.must(act{ClusterAction: &fleetv1.ClusterAction{Act: "verify", ClusterRef: "prod", NodeName: "late"},
		onLog: func(string) {
			if !looked {
				looked = true
				r.PutNode(kubetest.Node{Name: "late", Ready: true})
			}
		}}, succeeded)
	if !looked {
		t.Error("nobody waited")
	}
}

// TestWhoIsSpokenTo: neither a server of another CA nor one that refuses is taken for the cluster.
func TestWhoIsSpokenTo(t *testing.T) {
	r := newRig(t)
	r.node("m-1")
	verify := &fleetv1.ClusterAction{Act: "verify", ClusterRef: "prod", NodeName: "m-1"}
	for name, c := range map[string]struct {
		change func(*cluster.Access)
		reason string
	}{
		"another CA":   {func(a *cluster.Access) { a.CAPEM = kubetest.NewAuthority(t, "other").PEM }, "CLUSTER_UNREACHABLE"},
		"nobody there": {func(a *cluster.Access) { a.Server = "https://127.0.0.1:1" }, "CLUSTER_UNREACHABLE"},
		"wrong token":  {func(a *cluster.Access) { a.Token = "nobody" }, "CLUSTER_ACCESS_DENIED"},
		"too few rules": {func(a *cluster.Access) { a.Token = r.ServiceAccount("poor", account("poor")) },
			"CLUSTER_ACCESS_DENIED"},
	} {
		got := r.must(act{ClusterAction: verify, timeout: time.Second, change: c.change}, failed)
		if got.Reason.String() != c.reason || strings.Contains(got.Message, r.token) {
			t.Errorf("%s: %v %q", name, got.Reason, got.Message)
		}
	}
	cert, key := r.CA.Client(t, "ops", "system:masters")
	r.must(act{ClusterAction: verify, change: func(a *cluster.Access) {
		a.Token, a.CertificatePEM, a.KeyPEM = "", cert,
			key
	}}, succeeded)
}

func account(name string) kubetest.Object {
	return kubetest.Object{"apiVersion": "v1", "kind": "ServiceAccount",
		"metadata": kubetest.Object{"name": name, "namespace": "kube-system"}}
}

// TestJoinToken: the token is one that the API server takes for a machine that wants to join, and making it twice makes
// one.
func TestJoinToken(t *testing.T) {
	r := newRig(t)
	token := &fleetv1.ClusterAction{Act: "token", ClusterRef: "prod", NodeName: "m-1"}
	got := r.must(act{ClusterAction: token}, succeeded)
	r.must(act{ClusterAction: token}, succeeded)
	for k, v := range got.Evidence {
		if strings.Contains(v, "0123456789abcdef") {
			t.Errorf("the secret is in the evidence %s", k)
		}
	}
	review := r.Admin.Create("/apis/authentication.k8s.io/v1/tokenreviews", kubetest.Object{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
		"spec": kubetest.Object{"token": "abc123.0123456789abcdef"},
	})
	if kubetest.In(review, "status", "authenticated") != true ||
		kubetest.Text(review, "status", "user", "username") != "system:bootstrap:abc123" ||
		!strings.Contains(kubetest.Text(review, "status", "user", "groups"),
			"system:bootstrappers:kubeadm:default-node-token") {
		t.Errorf("the API server says %v", review["status"])
	}
	expired := r.must(act{ClusterAction: token, change: func(a *cluster.Access) {
		a.TokenID, a.TokenLife = "old456",
			-time.Minute
	}}, succeeded)
	review = r.Admin.Create("/apis/authentication.k8s.io/v1/tokenreviews", kubetest.Object{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
		"spec": kubetest.Object{"token": "old456.0123456789abcdef"},
	})
	if kubetest.In(review, "status", "authenticated") == true {
		t.Errorf("a token is taken past its time: %v", expired.Evidence)
	}
}

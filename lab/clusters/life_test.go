//go:build clusters

package clusters

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/executor/join"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/sim"
	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/clusters/kubetest"
	"github.com/ingot-metal/ingot/lab/harness"
)

const soon = time.Minute

// fleet is a controller, a site agent and one machine, beside a cluster.
type fleet struct {
	*rig
	c       *harness.Cluster
	site, m *harness.Machine
	// root is where the machine's /etc is.
	root string
}

// joinable is a simulated machine whose kubeadm, and what that leaves, are real.
type joinable struct {
	*sim.Host
	join.Machine
}

func (j joinable) Capabilities() []string { return append(j.Host.Capabilities(), host.CapJoin) }

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{rig: newRig(t), root: t.TempDir()}
	f.allowBootstrap()
	f.c = harness.New(t, harness.Options{})
	clusters := pb.NewClusterServiceClient(f.c.Conn())
	harness.Must(t, clusters.SetCluster, &pb.SetClusterRequest{ClusterRef: "prod", Server: f.URL, CaPem: f.CA.PEM,
		BearerToken: f.token})
	f.m = f.machine(t, "m-1", "prod", f.root)
	world, err := sim.OpenWorld(sim.WorldConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	f.site = f.c.NewSite(t, "default", world, harness.MachineOptions{ID: "site-1", Change: func(cfg *agent.Config) {
		cfg.Site = &agent.SiteConfig{CacheDir: t.TempDir(), CacheBytes: 1 << 30, BMCPoll: time.Minute,
			ClusterPoll: 100 * time.Millisecond}
	}})
	return f
}

// machine connects a machine that names a cluster, and whose /etc is under root.
func (f *fleet) machine(t *testing.T, id, cluster, root string) *harness.Machine {
	t.Helper()
	kubeadm := installDouble(t, root, f.CA.PEM)
	m := f.c.NewMachine(t, harness.MachineOptions{ID: id, Change: func(cfg *agent.Config) {
		simulated := cfg.Host
		cfg.Host = func(ctx context.Context, down func()) (host.Host, func() error, error) {
			h, release, err := simulated(ctx, down)
			if err != nil {
				return nil, nil, err
			}
			return joinable{h.(*sim.Host), host.New(host.Config{Root: root, Kubeadm: kubeadm})}, release, nil
		}
	}})
	m.WaitConnected()
	spec := f.c.Machine(id)
	spec.Spec.TargetClusterRef = cluster
	harness.Must(t, f.c.Machines().UpdateMachine, &pb.UpdateMachineRequest{Machine: spec})
	return m
}

// allowBootstrap sets up the access of joining machines as kubeadm init does.
func (f *fleet) allowBootstrap() {
	f.Admin.Create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", kubetest.Object{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
		"metadata": kubetest.Object{"name": "kubeadm:kubelet-bootstrap"},
		"roleRef": kubetest.Object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
			"name": "system:node-bootstrapper"},
		"subjects": []kubetest.Object{{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io",
			"name": "system:bootstrappers:kubeadm:default-node-token"}},
	})
}

const csrs = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// signOne plays the controller that certifies kubelets: it waits for one request and returns its user.
func (f *fleet) signOne(t *testing.T) string {
	t.Helper()
	var open kubetest.Object
	testkit.Eventually(t, soon, func() bool {
		items, _ := f.Admin.Get(csrs)["items"].([]any)
		for _, i := range items {
			if o := i.(kubetest.Object); kubetest.In(o, "status", "certificate") == nil {
				open = o
				return true
			}
		}
		return false
	}, "no machine asks for a certificate")
	name := kubetest.Text(open, "metadata", "name")
	raw, err := base64.StdEncoding.DecodeString(kubetest.Text(open, "spec", "request"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(raw)
	req, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	f.Admin.Merge(csrs+"/"+name+"/approval", kubetest.Object{"status": kubetest.Object{"conditions": []kubetest.Object{
		{"type": "Approved", "status": "True", "reason": "Test", "message": "by the test"},
	}}})
	cert := f.CA.Sign(t, pkix.Name{CommonName: req.Subject.CommonName, Organization: req.Subject.Organization},
		req.PublicKey, x509.ExtKeyUsageClientAuth)
	f.Admin.Merge(csrs+"/"+name+"/status", kubetest.Object{"status": kubetest.Object{"certificate": cert}})
	return kubetest.Text(open, "spec", "username")
}

func (f *fleet) start(t *testing.T, r *pb.StartRunRequest) string {
	t.Helper()
	r.MachineId = "m-1"
	return harness.Must(t, pb.NewRunServiceClient(f.c.Conn()).StartRun, r).GetRunId()
}

func (f *fleet) maintenance(t *testing.T) {
	t.Helper()
	op := harness.Must(t, f.c.Machines().EnterMaintenance, &pb.EnterMaintenanceRequest{MachineId: "m-1", RequestId: "in"})
	f.c.Wait(op.GetOperationId(), soon)
}

func (f *fleet) ended(t *testing.T, id string, phase pb.Operation_Phase, code string) *pb.Operation {
	t.Helper()
	op := f.c.Wait(id, soon)
	if op.GetPhase() != phase || op.GetError().GetCode() != code {
		t.Fatalf("it ended as %v", op)
	}
	return op
}

func (f *fleet) condition(name string) bool {
	for _, c := range f.c.Machine("m-1").GetStatus().GetConditions() {
		if c.GetType() == name {
			return c.GetStatus()
		}
	}
	return false
}

// kubelet reports as the machine's would.
func (f *fleet) kubelet(ready bool) {
	f.PutNode(kubetest.Node{Name: "m-1", BootID: f.c.Machine("m-1").GetStatus().GetBootId(), Version: "v1.33.0",
		Ready: ready})
}

// TestTheWholeWay: a machine joins with a token of its own, is seen ready, drained, used again, and leaves. Controller,
// site agent, machine's agent and API server take part.
func TestTheWholeWay(t *testing.T) {
	f := newFleet(t)
	f.maintenance(t)
	id := f.start(t, &pb.StartRunRequest{RequestId: "join", Type: "JOIN_CLUSTER"})
	user := f.signOne(t)
	if !strings.HasPrefix(user, "system:bootstrap:") {
		t.Errorf("the machine asked as %s", user)
	}
	f.kubelet(true)
	op := f.ended(t, id, pb.Operation_SUCCEEDED, "")
	for key, want := range map[string]string{"cluster": "prod", "node_identity": "boot_id", "kubelet_version": "v1.33.0",
		"joined_by": "kubeadm"} {
		if op.GetEvidence()[key] != want {
			t.Errorf("evidence %s is %q in %v", key, op.GetEvidence()[key], op.GetEvidence())
		}
	}
	if !f.condition("InCustomerCluster") {
		t.Error("the machine does not count as in the cluster")
	}
	f.secretNowhere(t, id)

	again := f.ended(t, f.start(t, &pb.StartRunRequest{RequestId: "again", Type: "JOIN_CLUSTER"}), pb.Operation_SUCCEEDED,
		"")
	if again.GetEvidence()["joined_by"] != "before" {
		t.Errorf("a second join did %v", again.GetEvidence())
	}
	if calls := f.calls(t); strings.Count(calls, "join --config") != 1 {
		t.Errorf("kubeadm was called so: %s", calls)
	}

	f.PutPod(kubetest.Pod{Name: "web-1", Node: "m-1", Owner: "ReplicaSet"})
	f.ended(t, f.start(t, &pb.StartRunRequest{RequestId: "drain", PlanId: "drain"}), pb.Operation_SUCCEEDED, "")
	if !f.condition("Drained") || f.pod("web-1") || !f.unschedulable("m-1") {
		t.Error("it is not drained")
	}
	f.ended(t, f.start(t, &pb.StartRunRequest{RequestId: "uncordon", PlanId: "uncordon"}), pb.Operation_SUCCEEDED, "")
	if f.condition("Drained") || f.unschedulable("m-1") {
		t.Error("it is drained still")
	}
	f.ended(t, f.start(t, &pb.StartRunRequest{RequestId: "leave", PlanId: "leave"}), pb.Operation_SUCCEEDED, "")
	if f.condition("InCustomerCluster") || f.Admin.Get("/api/v1/nodes/m-1") != nil {
		t.Error("it is in the cluster still")
	}
}

func (f *fleet) calls(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(f.root, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// secretNowhere looks for the join's token where it must not be.
func (f *fleet) secretNowhere(t *testing.T, operation string) {
	t.Helper()
	items, _ := f.Admin.Get("/api/v1/namespaces/kube-system/secrets")["items"].([]any)
	var secret string
	for _, i := range items {
		if o := i.(kubetest.Object); kubetest.Text(o, "type") == "bootstrap.kubernetes.io/token" {
			raw, err := base64.StdEncoding.DecodeString(kubetest.Text(o, "data", "token-secret"))
			if err != nil {
				t.Fatal(err)
			}
			secret = string(raw)
		}
	}
	if len(secret) != 16 {
		t.Fatal("there is no token")
	}
	stream, err := f.c.Operations().StreamOperationLogs(t.Context(),
		&pb.StreamOperationLogsRequest{OperationId: operation})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	for {
		chunk, err := stream.Recv()
		if err != nil {
			break // the operation has ended, and its log with it
		}
		log.Write(chunk.GetData())
	}
	if strings.Contains(log.String(), secret) || !strings.Contains(log.String(), "[token]") {
		t.Errorf("the log shows the token, or not what kubeadm said:\n%s", log.String())
	}
	for _, c := range f.c.Commands("m-1") {
		if strings.Contains(c.String(), secret) {
			t.Errorf("command %s shows the token", c.GetCommandId())
		}
	}
	for _, dir := range []string{f.m.StateDir, f.site.StateDir} {
		_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if raw, err := os.ReadFile(path); err == nil && strings.Contains(string(raw), secret) {
					t.Errorf("%s holds the token", path)
				}
			}
			return nil
		})
	}
}

// TestRefusals: an impossible order is refused at the start, or by the agent that detects it, with its reason.
func TestRefusals(t *testing.T) {
	f := newFleet(t)
	f.maintenance(t)
	runs := pb.NewRunServiceClient(f.c.Conn())
	other := kubetest.NewAuthority(t, "another cluster").PEM
	if err := os.MkdirAll(filepath.Join(f.root, "etc/kubernetes"), 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(f.root, "etc/kubernetes/kubelet.conf"),
		"clusters: [{name: c, cluster: {server: 'https://elsewhere:6443', certificate-authority-data: "+
			base64.StdEncoding.EncodeToString(other)+"}}]", 0o600)
	f.ended(t, f.start(t, &pb.StartRunRequest{RequestId: "member", Type: "JOIN_CLUSTER"}), pb.Operation_FAILED,
		"CLUSTER_OTHER_MEMBER")
	f.c.Register(&pb.Machine{MachineId: "m-2"})
	in := harness.Must(t, f.c.Machines().EnterMaintenance, &pb.EnterMaintenanceRequest{MachineId: "m-2", RequestId: "in"})
	f.c.Wait(in.GetOperationId(), soon)
	_, err := runs.StartRun(t.Context(), &pb.StartRunRequest{MachineId: "m-2", RequestId: "none", PlanId: "drain"})
	wantReason(t, err, "CLUSTER_NOT_CONFIGURED")
	clusters := pb.NewClusterServiceClient(f.c.Conn())
	_, err = clusters.DeleteCluster(t.Context(), &pb.DeleteClusterRequest{ClusterRef: "prod"})
	wantReason(t, err, "CLUSTER_IN_USE")
}

func wantReason(t *testing.T, err error, reason string) {
	t.Helper()
	if !harness.HasReason(err, reason) {
		t.Errorf("%v, want %s", err, reason)
	}
}

// TestADecommissionDrains: a machine in a cluster is drained before anything else is done to it. A pod that its budget
// holds stops the workflow, and an operator's retry goes on.
func TestADecommissionDrains(t *testing.T) {
	f := newFleet(t)
	f.maintenance(t)
	f.kubelet(true)
	verify := harness.Must(t, pb.NewPlanServiceClient(f.c.Conn()).CreatePlan,
		&pb.CreatePlanRequest{Plan: &pb.Plan{PlanId: "verify", Steps: []*pb.Step{
			{Name: "verify", Kind: &pb.Step_Verify{Verify: &pb.VerifyInCluster{}}},
		}}})
	f.ended(t, f.start(t, &pb.StartRunRequest{RequestId: "verify", PlanId: verify.GetPlanId()}), pb.Operation_SUCCEEDED,
		"")
	f.PutPod(kubetest.Pod{Name: "alone", Node: "m-1"})
	harness.Must(t, f.c.Workflows().StartWorkflow, &pb.StartWorkflowRequest{
		MachineId: "m-1", RequestId: "out", Kind: pb.Workflow_DECOMMISSION, Mode: pb.Workflow_SOFT_RESET,
	})
	w := harness.Must(t, f.c.Workflows().ListWorkflows,
		&pb.ListWorkflowsRequest{Filter: "machine_id=m-1"}).GetWorkflows()[0]
	f.workflow(t, w, pb.Workflow_FAILED_MANUAL_INTERVENTION)
	if got := f.get(t, w); got.GetReason() != "DRAIN_BLOCKED" || got.GetCurrentStage() != "drain_node" ||
		!strings.Contains(got.GetMessage(), "default/alone") {
		t.Fatalf("it is %v", got)
	}
	if f.unschedulable("m-1") {
		t.Error("a drain that was refused leaves its cordon")
	}
	f.Admin.Delete(kubetest.PodPath("alone"))
	harness.Must(t, f.c.Workflows().ActOnWorkflow, &pb.ActOnWorkflowRequest{WorkflowId: w.GetWorkflowId(),
		RequestId: "retry", Action: pb.WorkflowAction_WORKFLOW_ACTION_RETRY_STAGE})
	f.workflow(t, w, pb.Workflow_COMPLETED)
	if !f.unschedulable("m-1") || !f.condition("Drained") {
		t.Error("the workflow is done and the Node not drained")
	}
}

func (f *fleet) get(t *testing.T, w *pb.Workflow) *pb.Workflow {
	t.Helper()
	return harness.Must(t, f.c.Workflows().GetWorkflow, &pb.GetWorkflowRequest{WorkflowId: w.GetWorkflowId()})
}

func (f *fleet) workflow(t *testing.T, w *pb.Workflow, want pb.Workflow_State) {
	t.Helper()
	testkit.Eventually(t, 2*soon, func() bool { return f.get(t, w).GetState() == want }, "the workflow is not %v", want)
}

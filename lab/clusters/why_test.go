//go:build clusters

package clusters

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/host/sim"
	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/clusters/kubetest"
	"github.com/ingot-metal/ingot/lab/harness"
)

// whyFault is a fault that is really brought about. inject returns the machine once it is there; expectations are those
// of an operator, who does not know the rules by which causes are found.
type whyFault struct {
	harness.Expected
	inject func(t *testing.T, f *fleet) string
}

// member is a machine in maintenance that names a cluster.
func (f *fleet) member(t *testing.T, id, cluster string) (root string) {
	t.Helper()
	root = t.TempDir()
	f.machine(t, id, cluster, root)
	in := harness.Must(t, f.c.Machines().EnterMaintenance, &pb.EnterMaintenanceRequest{MachineId: id, RequestId: "in"})
	f.c.Wait(in.GetOperationId(), soon)
	return root
}

// report plays a machine's kubelet.
func (f *fleet) report(id string, ready bool) {
	f.PutNode(kubetest.Node{Name: id, BootID: f.c.Machine(id).GetStatus().GetBootId(), Version: "v1.33.0", Ready: ready})
}

// run runs one step, once.
func (f *fleet) run(t *testing.T, id string, seconds int32, step *pb.Step) string {
	t.Helper()
	step.Name, step.TimeoutSeconds, step.MaxRetries = "only", seconds, -1
	harness.Must(t, pb.NewPlanServiceClient(f.c.Conn()).CreatePlan,
		&pb.CreatePlanRequest{Plan: &pb.Plan{PlanId: "once-" + id, Steps: []*pb.Step{step}}})
	return harness.Must(t, pb.NewRunServiceClient(f.c.Conn()).StartRun,
		&pb.StartRunRequest{MachineId: id, RequestId: "r", PlanId: "once-" + id}).GetRunId()
}

// breaks runs one step that fails.
func (f *fleet) breaks(t *testing.T, id string, step *pb.Step) string {
	t.Helper()
	if op := f.c.Wait(f.run(t, id, 8, step), soon); op.GetPhase() != pb.Operation_FAILED {
		t.Fatalf("the fault did no harm: %v", op)
	}
	return id
}

func draining() *pb.Step  { return &pb.Step{Kind: &pb.Step_Drain{Drain: &pb.Drain{}}} }
func verifying() *pb.Step { return &pb.Step{Kind: &pb.Step_Verify{Verify: &pb.VerifyInCluster{}}} }
func joining() *pb.Step   { return &pb.Step{Kind: &pb.Step_Join{Join: &pb.KubeadmJoin{}}} }

// cluster stores another way to a cluster, which is wrong in some way.
func (f *fleet) cluster(t *testing.T, name string, change func(*pb.SetClusterRequest)) {
	t.Helper()
	r := &pb.SetClusterRequest{ClusterRef: name, Server: f.URL, CaPem: f.CA.PEM, BearerToken: f.token}
	change(r)
	harness.Must(t, pb.NewClusterServiceClient(f.c.Conn()).SetCluster, r)
}

func faultsOfAccess() []whyFault {
	through := func(name string, change func(*testing.T, *fleet, *pb.SetClusterRequest)) func(*testing.T, *fleet) string {
		return func(t *testing.T, f *fleet) string {
			f.cluster(t, name, func(r *pb.SetClusterRequest) { change(t, f, r) })
			f.member(t, "m-"+name, name)
			return f.breaks(t, "m-"+name, draining())
		}
	}
	return []whyFault{
		{harness.Expected{Fault: "API server gone", Reasons: []string{"CLUSTER_UNREACHABLE"}, On: "operator",
			Says: []string{"127.0.0.1:1"}, Do: "ingot cluster"},
			through("gone", func(_ *testing.T, _ *fleet, r *pb.SetClusterRequest) { r.Server = "https://127.0.0.1:1" })},
		{harness.Expected{Fault: "API server gone, while it is asked", Reasons: []string{"", "CLUSTER_UNREACHABLE"},
			On:   "provider",
			Says: []string{"127.0.0.1:1", "cluster away"}, Do: "ingot cancel"},
			func(t *testing.T, f *fleet) string {
				f.cluster(t, "away", func(r *pb.SetClusterRequest) { r.Server = "https://127.0.0.1:1" })
				f.member(t, "m-away", "away")
				f.run(t, "m-away", 600, draining())
				return "m-away"
			}},
		{harness.Expected{Fault: "cluster of another CA", Reasons: []string{"CLUSTER_UNREACHABLE"}, On: "operator",
			Says: []string{"certificate"}, Do: "ingot cluster set"},
			through("imposter",
				func(t *testing.T, _ *fleet, r *pb.SetClusterRequest) { r.CaPem = kubetest.NewAuthority(t, "other").PEM })},
		{harness.Expected{Fault: "credentials refused", Reasons: []string{"CLUSTER_ACCESS_DENIED"}, On: "operator",
			Says: []string{"401"}, Do: "ingot cluster set"},
			through("refused", func(_ *testing.T, _ *fleet, r *pb.SetClusterRequest) { r.BearerToken = "nobody" })},
		{harness.Expected{Fault: "credentials without rights", Reasons: []string{"CLUSTER_ACCESS_DENIED"}, On: "operator",
			Says: []string{"403"}, Do: "ingot cluster set"},
			through("poor", func(_ *testing.T, f *fleet, r *pb.SetClusterRequest) {
				r.BearerToken = f.ServiceAccount("poor", account("poor"))
			})},
		{harness.Expected{Fault: "site agent gone", Reasons: []string{"SITE_AGENT_SILENT"}, On: "agent",
			Says: []string{"far-away"}, Do: "ingot agent list"}, siteGone},
	}
}

// siteGone: the only one who speaks to the cluster for the machine is cut off.
func siteGone(t *testing.T, f *fleet) string {
	const site, id = "far-away", "m-far-away"
	world, err := sim.OpenWorld(sim.WorldConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s := f.c.NewSite(t, site, world, harness.MachineOptions{Change: func(cfg *agent.Config) {
		cfg.Site = &agent.SiteConfig{CacheDir: t.TempDir(), CacheBytes: 1 << 20, BMCPoll: time.Minute}
	}})
	s.WaitConnected()
	f.member(t, id, "prod")
	m := f.c.Machine(id)
	m.Spec.Site = site
	harness.Must(t, f.c.Machines().UpdateMachine, &pb.UpdateMachineRequest{Machine: m})
	s.Isolate()
	testkit.Eventually(t, soon, func() bool {
		return !harness.Must(t, f.c.Admin().GetAgent, &pb.GetAgentRequest{AgentId: s.Identity().AgentID}).GetConnected()
	}, "the site's agent is still connected")
	f.run(t, id, 600, draining())
	return id
}

func faultsOfNodes() []whyFault {
	return []whyFault{
		{harness.Expected{Fault: "no Node", Reasons: []string{"CLUSTER_NODE_NOT_READY"}, On: "operator",
			Says: []string{"no Node m-none"}, Do: "kubectl describe node"},
			func(t *testing.T, f *fleet) string {
				f.member(t, "m-none", "prod")
				return f.breaks(t, "m-none", draining())
			}},
		{harness.Expected{Fault: "Node not ready", Reasons: []string{"CLUSTER_NODE_NOT_READY"}, On: "operator",
			Says: []string{"not ready", "said by the test"}, Do: "kubectl describe node"},
			func(t *testing.T, f *fleet) string {
				f.member(t, "m-sick", "prod")
				f.report("m-sick", false)
				return f.breaks(t, "m-sick", verifying())
			}},
		{harness.Expected{Fault: "Node not ready, while it is waited for", Reasons: []string{"", "CLUSTER_NODE_NOT_READY"},
			On:   "provider",
			Says: []string{"not ready", "cluster prod"}, Do: "ingot cancel"},
			func(t *testing.T, f *fleet) string {
				f.member(t, "m-slow", "prod")
				f.report("m-slow", false)
				f.run(t, "m-slow", 600, verifying())
				return "m-slow"
			}},
		{harness.Expected{Fault: "another machine's Node", Reasons: []string{"CLUSTER_NODE_MISMATCH"}, On: "operator",
			Says: []string{"another machine", "m-other"}, Do: "kubectl describe node"},
			func(t *testing.T, f *fleet) string {
				f.member(t, "m-other", "prod")
				f.PutNode(kubetest.Node{Name: "m-other", SystemUUID: "somebody-else", BootID: "another", Version: "v1.33.0",
					Ready: true})
				return f.breaks(t, "m-other", draining())
			}},
		{harness.Expected{Fault: "disruption budget", Reasons: []string{"DRAIN_BLOCKED"}, On: "operator",
			Says: []string{"default/web-1", "web needs 1 healthy"}, Do: "kubectl get pods"},
			func(t *testing.T, f *fleet) string {
				f.member(t, "m-budget", "prod")
				f.report("m-budget", true)
				f.PutBudget("web", "web", 0)
				f.PutPod(kubetest.Pod{Name: "web-1", Node: "m-budget", Owner: "ReplicaSet",
					Labels: map[string]string{"app": "web"}})
				return f.breaks(t, "m-budget", draining())
			}},
		{harness.Expected{Fault: "disruption budget, while it is waited for", Reasons: []string{"", "DRAIN_BLOCKED"},
			On:   "provider",
			Says: []string{"default/db-1", "db needs 1 healthy"}, Do: "ingot cancel"},
			func(t *testing.T, f *fleet) string {
				f.member(t, "m-patient", "prod")
				f.report("m-patient", true)
				f.PutBudget("db", "db", 0)
				f.PutPod(kubetest.Pod{Name: "db-1", Node: "m-patient", Owner: "StatefulSet",
					Labels: map[string]string{"app": "db"}})
				f.run(t, "m-patient", 600, draining())
				return "m-patient"
			}},
		{harness.Expected{Fault: "pod that nobody would start again", Reasons: []string{"DRAIN_BLOCKED"}, On: "operator",
			Says: []string{"default/alone"}, Do: "kubectl get pods"},
			func(t *testing.T, f *fleet) string {
				f.member(t, "m-alone", "prod")
				f.report("m-alone", true)
				f.PutPod(kubetest.Pod{Name: "alone", Node: "m-alone"})
				return f.breaks(t, "m-alone", draining())
			}},
		{harness.Expected{Fault: "decommission that cannot drain", Reasons: []string{"DRAIN_BLOCKED"}, On: "operator",
			Says: []string{"default/lonely", "drain_node"}, Do: "retry-stage"}, decommissioned},
	}
}

// decommissioned is a machine whose decommission stops at the drain.
func decommissioned(t *testing.T, f *fleet) string {
	const id = "m-lonely"
	f.member(t, id, "prod")
	f.report(id, true)
	f.ended(t, f.run(t, id, 60, verifying()), pb.Operation_SUCCEEDED, "")
	f.PutPod(kubetest.Pod{Name: "lonely", Node: id})
	harness.Must(t, f.c.Workflows().StartWorkflow, &pb.StartWorkflowRequest{
		MachineId: id, RequestId: "out", Kind: pb.Workflow_DECOMMISSION, Mode: pb.Workflow_SOFT_RESET,
	})
	w := harness.Must(t, f.c.Workflows().ListWorkflows,
		&pb.ListWorkflowsRequest{Filter: "machine_id=" + id}).GetWorkflows()[0]
	f.workflow(t, w, pb.Workflow_FAILED_MANUAL_INTERVENTION)
	return id
}

func faultsOfJoins() []whyFault {
	return []whyFault{
		{harness.Expected{Fault: "kubeadm not installed", Reasons: []string{"KUBEADM_FAILED"}, On: "operator",
			Says: []string{"kubeadm is not on the machine"}, Do: "ingot"},
			func(t *testing.T, f *fleet) string {
				root := f.member(t, "m-bare", "prod")
				if err := os.Remove(filepath.Join(root, "kubeadm")); err != nil {
					t.Fatal(err)
				}
				return f.breaks(t, "m-bare", joining())
			}},
		{harness.Expected{Fault: "kubeadm fails", Reasons: []string{"KUBEADM_FAILED"}, On: "operator",
			Says: []string{"port 10250 is in use"}, Do: "ingot logs"},
			func(t *testing.T, f *fleet) string {
				root := f.member(t, "m-port", "prod")
				put(t, filepath.Join(root, "kubeadm"),
					"#!/bin/sh\necho 'error execution phase preflight: port 10250 is in use' >&2\nexit 1\n", 0o700)
				return f.breaks(t, "m-port", joining())
			}},
		{harness.Expected{Fault: "token ran out before it was used", Reasons: []string{"KUBEADM_FAILED"}, On: "operator",
			Says: []string{"token"}, Do: "ingot cluster join"}, tokenRunsOut},
		{harness.Expected{Fault: "kubelet of another cluster", Reasons: []string{"CLUSTER_OTHER_MEMBER"}, On: "operator",
			Says: []string{"elsewhere"}, Do: "kubeadm reset"},
			func(t *testing.T, f *fleet) string {
				root := f.member(t, "m-foreign", "prod")
				if err := os.MkdirAll(filepath.Join(root, "etc/kubernetes"), 0o700); err != nil {
					t.Fatal(err)
				}
				ca := base64.StdEncoding.EncodeToString(kubetest.NewAuthority(t, "another cluster").PEM)
				put(t, filepath.Join(root, "etc/kubernetes/kubelet.conf"),
					"clusters: [{name: c, cluster: {server: 'https://elsewhere:6443', certificate-authority-data: "+ca+"}}]", 0o600)
				return f.breaks(t, "m-foreign", joining())
			}},
		{harness.Expected{Fault: "machine cut off before it joined", Reasons: []string{"AGENT_UNAVAILABLE"}, On: "agent",
			Says: []string{"heard last"}, Do: "ingot cancel"},
			func(t *testing.T, f *fleet) string {
				m := f.machine(t, "m-cut", "prod", t.TempDir())
				in := harness.Must(t, f.c.Machines().EnterMaintenance,
					&pb.EnterMaintenanceRequest{MachineId: "m-cut", RequestId: "in"})
				f.c.Wait(in.GetOperationId(), soon)
				m.Isolate()
				testkit.Eventually(t, soon, func() bool {
					return !harness.Must(t, f.c.Admin().GetAgent, &pb.GetAgentRequest{AgentId: m.Identity().AgentID}).GetConnected()
				}, "the machine's agent is still connected")
				f.run(t, "m-cut", 600, joining())
				return "m-cut"
			}},
	}
}

// tokenRunsOut: kubeadm takes so long to begin that the token is gone.
func tokenRunsOut(t *testing.T, f *fleet) string {
	const id, secrets = "m-late", "/api/v1/namespaces/kube-system/secrets"
	root := f.member(t, id, "prod")
	kubeadm := filepath.Join(root, "kubeadm")
	real, err := os.ReadFile(kubeadm)
	if err != nil {
		t.Fatal(err)
	}
	wait := "#!/bin/sh\nif [ \"$1\" = join ]; then while [ ! -e " + root + "/go ]; do sleep 0.1; done; fi\n"
	put(t, kubeadm, wait+strings.TrimPrefix(string(real), "#!/bin/sh\n"), 0o700)
	run := f.run(t, id, 60, joining())
	var token string
	testkit.Eventually(t, soon, func() bool {
		items, _ := f.Admin.Get(secrets)["items"].([]any)
		for _, i := range items {
			o, _ := i.(kubetest.Object)
			why, err := base64.StdEncoding.DecodeString(kubetest.Text(o, "data", "description"))
			if err == nil && strings.Contains(string(why), id) {
				token = kubetest.Text(o, "metadata", "name")
			}
		}
		return token != ""
	}, "no token is made")
	f.Admin.Merge(secrets+"/"+token, kubetest.Object{"data": kubetest.Object{
		"expiration": base64.StdEncoding.EncodeToString([]byte(time.Now().Add(-time.Minute).UTC().Format(time.RFC3339))),
	}})
	put(t, filepath.Join(root, "go"), "", 0o600)
	if op := f.c.Wait(run, 2*soon); op.GetPhase() != pb.Operation_FAILED {
		t.Fatalf("the fault did no harm: %v", op)
	}
	return id
}

// TestWhyNamesFaultsOfClusters breaks something for each line, for real, and asks the controller that runs.
func TestWhyNamesFaultsOfClusters(t *testing.T) {
	f := newFleet(t)
	all := &harness.Answers{}
	for _, list := range [][]whyFault{faultsOfAccess(), faultsOfNodes(), faultsOfJoins()} {
		for _, x := range list {
			t.Run(x.Fault, func(t *testing.T) {
				id := x.inject(t, f)
				all.Ask(t, x.Expected, func() *pb.ExplainMachineResponse {
					return harness.Must(t, f.c.Machines().ExplainMachine, &pb.ExplainMachineRequest{MachineId: id})
				})
			})
		}
	}
	all.Table(t)
}

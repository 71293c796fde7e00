package e2e

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/harness"
)

// maasRig is a controller, a site agent, and a MAAS region.
type maasRig struct {
	t      *testing.T
	c      *harness.Cluster
	region *maastest.Region
	site   *harness.Machine
	flows  baremetalv1.WorkflowServiceClient
}

func newMAASRig(t *testing.T) *maasRig {
	t.Helper()
	r := &maasRig{t: t, region: maastest.New(maastest.Config{Delay: 20 * time.Millisecond}),
		c: harness.New(t, harness.Options{Configure: patient})}
	t.Cleanup(r.region.Close)
	r.flows = baremetalv1.NewWorkflowServiceClient(r.c.Conn())
	harness.Must(t, baremetalv1.NewMAASServiceClient(r.c.Conn()).SetMAASRegion, &baremetalv1.SetMAASRegionRequest{
		RegionRef: "default", Endpoint: r.region.Endpoint(), ApiKey: maastest.APIKey,
	})
	world, err := sim.OpenWorld(sim.WorldConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	r.site = r.c.NewSite(t, "default", world, harness.MachineOptions{ID: "site-maas", Supervised: true,
		Change: func(cfg *agent.Config) {
			cfg.Site = &agent.SiteConfig{CacheDir: t.TempDir(), CacheBytes: 1 << 30, BMCPoll: time.Minute,
				MAASPoll: 20 * time.Millisecond}
		}})
	return r
}

// register makes the record of a machine that MAAS is to drive.
func (r *maasRig) register(n int) (id, mac string) {
	r.t.Helper()
	id, mac = fmt.Sprintf("m-maas-%d", n), fmt.Sprintf("52:54:00:00:01:%02x", n)
	harness.Must(r.t, r.c.Admin().SetBMCCredentials, &baremetalv1.SetBMCCredentialsRequest{CredentialsRef: id,
		Username: "u", Password: "p", AllowedEndpoints: []string{"10.0.0.9"}})
	r.c.Register(&baremetalv1.Machine{MachineId: id, Spec: &baremetalv1.MachineSpec{
		Provider: "maas", MacAddresses: []string{mac}, BmcEndpoint: "ipmi://10.0.0.9", BmcCredentialsRef: id,
	}})
	return id, mac
}

func (r *maasRig) start(
	id, request string, kind baremetalv1.Workflow_Kind, mode baremetalv1.Workflow_Mode,
) *baremetalv1.Operation {
	r.t.Helper()
	return harness.Must(r.t, r.flows.StartWorkflow, &baremetalv1.StartWorkflowRequest{
		MachineId: id, RequestId: request, Kind: kind, Mode: mode, EnterMaintenance: true,
	})
}

// boot starts the agent of the system that MAAS has deployed, with the bundle out of its user data.
func (r *maasRig) boot(id, mac string) *harness.Machine {
	r.t.Helper()
	var bundle string
	testkit.Eventually(r.t, soon, func() bool {
		m, ok := r.region.ByMAC(mac)
		if ok && m.Status == ms.Deployed {
			bundle = bundleOf(r.t, r.region, m.SystemID)
		}
		return bundle != ""
	}, "MAAS does not deploy %s: %v", id, r.flow(id))
	return r.c.NewDeployed(r.t, harness.MachineOptions{ID: id}, bundle)
}

// bundleOf reads the bootstrap bundle as the first boot of the deployed system would.
func bundleOf(t *testing.T, region *maastest.Region, systemID string) string {
	t.Helper()
	for _, q := range slices.Backward(region.Requests("POST deploy")) {
		if q.SystemID != systemID || !q.Acted {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(q.Form.Get("user_data"))
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Files []struct{ Path, Content string } `yaml:"write_files"`
		}
		if err := yaml.Unmarshal(raw, &doc); err != nil || len(doc.Files) != 1 {
			t.Fatalf("user data %q: %v", raw, err)
		}
		return strings.TrimSpace(doc.Files[0].Content)
	}
	return ""
}

// flow is the newest workflow of a machine.
func (r *maasRig) flow(id string) *baremetalv1.Workflow {
	r.t.Helper()
	list := harness.Must(r.t, r.flows.ListWorkflows, &baremetalv1.ListWorkflowsRequest{Filter: "machine_id=" + id,
		PageSize: 1})
	if len(list.GetWorkflows()) == 0 {
		r.t.Fatalf("%s has no workflow", id)
	}
	return list.GetWorkflows()[0]
}

// completes waits until the newest workflow has ended.
func (r *maasRig) completes(id string) {
	r.t.Helper()
	var f *baremetalv1.Workflow
	testkit.Eventually(r.t, soon, func() bool {
		f = r.flow(id)
		return f.GetState() != baremetalv1.Workflow_PENDING && f.GetState() != baremetalv1.Workflow_RUNNING
	}, "the workflow of %s does not end: %v", id, r.flow(id))
	if f.GetState() != baremetalv1.Workflow_COMPLETED {
		r.t.Fatalf("%s at %s: %s %s", f.GetState(), f.GetCurrentStage(), f.GetReason(), f.GetMessage())
	}
}

func (r *maasRig) node(id string) baremetalv1.NodeState {
	return r.c.Machine(id).GetStatus().GetNodeState()
}

// TestMAASLife brings a machine in through MAAS, installs it anew, and takes it out again.
func TestMAASLife(t *testing.T) {
	t.Parallel()
	r := newMAASRig(t)
	id, mac := r.register(1)
	r.start(id, "in", baremetalv1.Workflow_ONBOARDING, 0)
	host := r.boot(id, mac)
	r.completes(id)
	if got := r.node(id); got != baremetalv1.NodeState_NODE_STATE_ACTIVE {
		t.Errorf("the node is %s after its onboarding", got)
	}
	testkit.Eventually(t, soon, func() bool {
		p := r.c.Machine(id).GetStatus().GetProvider()
		return p.GetState() == "Deployed" && p.GetDrift() == "" && p.GetDeployed() == "ubuntu/noble"
	}, "what MAAS says is not shown")
	if c := condition(r.c.Machine(id), "Provisioned"); c == nil || !c.GetStatus() {
		t.Errorf("Provisioned is %v", c)
	}

	r.start(id, "again", baremetalv1.Workflow_DECOMMISSION, baremetalv1.Workflow_STORAGE_CLEANUP)
	testkit.Eventually(t, soon, func() bool { return r.region.Acted("POST deploy") == 2 }, "no second deployment")
	if err := host.Stop(); err != nil {
		t.Fatal(err)
	}
	host = r.boot(id, mac)
	r.completes(id)
	if got := r.node(id); got != baremetalv1.NodeState_NODE_STATE_ACTIVE {
		t.Errorf("the node is %s after the storage cleanup", got)
	}

	r.start(id, "out", baremetalv1.Workflow_DECOMMISSION, baremetalv1.Workflow_FULL_DECOMMISSION)
	r.completes(id)
	if err := host.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, there := r.region.ByMAC(mac); there {
		t.Error("MAAS still has the machine")
	}
	for op, want := range map[string]int{"POST machines": 1, "POST commission": 1, "POST deploy": 2, "POST release": 2,
		"POST power_off": 0, "DELETE machine": 1} {
		if got := r.region.Acted(op); got != want {
			t.Errorf("%s acted %d times, want %d", op, got, want)
		}
	}
}

// TestMAASDrift: what MAAS says and nobody expects is a condition. It starts nothing.
func TestMAASDrift(t *testing.T) {
	t.Parallel()
	r := newMAASRig(t)
	id, mac := r.register(2)
	r.start(id, "in", baremetalv1.Workflow_ONBOARDING, 0)
	r.boot(id, mac)
	r.completes(id)
	m, _ := r.region.ByMAC(mac)
	before := len(r.c.OperationsOf(id))
	drifts := func(state string, want bool) {
		t.Helper()
		testkit.Eventually(t, soon, func() bool {
			got := r.c.Machine(id)
			d := condition(got, "ProviderDrift")
			return got.GetStatus().GetProvider().GetState() == state && d != nil && d.GetStatus() == want
		}, "no drift %v to %s: %v", want, state, r.c.Machine(id).GetStatus())
	}
	r.region.Change(m.SystemID, func(m *maastest.Machine) { m.Status = ms.Broken })
	drifts("Failed", true)
	r.region.Change(m.SystemID, func(m *maastest.Machine) { m.Status = ms.Deployed })
	drifts("Deployed", false)
	r.region.Fail(maastest.Fault{Op: "GET machines", Kind: maastest.Busy, Times: -1})
	testkit.Eventually(t, soon, func() bool {
		p := r.c.Machine(id).GetStatus().GetProvider()
		return p.GetState() == "Unknown" && p.GetReason() == "MAAS_UNREACHABLE"
	}, "a region that does not answer is not shown")
	if d := condition(r.c.Machine(id), "ProviderDrift"); d.GetStatus() {
		t.Error("a region that does not answer counts as drift")
	}
	r.region.Mend()
	r.region.Lose(m.SystemID)
	drifts("Absent", true)
	if after := len(r.c.OperationsOf(id)); after != before {
		t.Errorf("%d operations were opened by what MAAS said", after-before)
	}
}

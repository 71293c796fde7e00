package e2e

import (
	"encoding/base64"
	"fmt"
	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/harness"
	"go.yaml.in/yaml/v3"
	"slices"
	"strings"
	"testing"
	"time"
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

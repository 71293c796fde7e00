package rig

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

// MAAS is a controller, a site agent, and a MAAS region.
type MAAS struct {
	T      *testing.T
	C      *harness.Cluster
	Region *maastest.Region
	Site   *harness.Machine
	Flows  baremetalv1.WorkflowServiceClient
}

func NewMAAS(t *testing.T) *MAAS {
	t.Helper()
	r := &MAAS{T: t, Region: maastest.New(maastest.Config{Delay: 20 * time.Millisecond}),
		C: harness.New(t, harness.Options{})}
	t.Cleanup(r.Region.Close)
	r.Flows = baremetalv1.NewWorkflowServiceClient(r.C.Conn())
	harness.Must(t, baremetalv1.NewMAASServiceClient(r.C.Conn()).SetMAASRegion, &baremetalv1.SetMAASRegionRequest{
		RegionRef: "default", Endpoint: r.Region.Endpoint(), ApiKey: maastest.APIKey,
	})
	world, err := sim.OpenWorld(sim.WorldConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	r.Site = r.C.NewSite(t, "default", world, harness.MachineOptions{ID: "site-maas", Supervised: true,
		Change: func(cfg *agent.Config) {
			cfg.Site = &agent.SiteConfig{CacheDir: t.TempDir(), CacheBytes: 1 << 30, BMCPoll: time.Minute,
				MAASPoll: 20 * time.Millisecond}
		}})
	return r
}

// Register makes the record of a machine that MAAS is to drive.
func (r *MAAS) Register(n int) (id, mac string) {
	r.T.Helper()
	id, mac = fmt.Sprintf("m-maas-%d", n), fmt.Sprintf("52:54:00:00:01:%02x", n)
	harness.Must(r.T, r.C.Admin().SetBMCCredentials, &baremetalv1.SetBMCCredentialsRequest{CredentialsRef: id,
		Username: "u", Password: "p", AllowedEndpoints: []string{"10.0.0.9"}})
	r.C.Register(&baremetalv1.Machine{MachineId: id, Spec: &baremetalv1.MachineSpec{
		Provider: "maas", MacAddresses: []string{mac}, BmcEndpoint: "ipmi://10.0.0.9", BmcCredentialsRef: id,
	}})
	return id, mac
}

func (r *MAAS) Start(
	id, request string, kind baremetalv1.Workflow_Kind, mode baremetalv1.Workflow_Mode,
) *baremetalv1.Operation {
	r.T.Helper()
	return harness.Must(r.T, r.Flows.StartWorkflow, &baremetalv1.StartWorkflowRequest{
		MachineId: id, RequestId: request, Kind: kind, Mode: mode, EnterMaintenance: true,
	})
}

// Boot starts the agent of the system that MAAS has deployed, with the bundle out of its user data.
func (r *MAAS) Boot(id, mac string) *harness.Machine {
	r.T.Helper()
	var bundle string
	testkit.Eventually(r.T, Soon, func() bool {
		m, ok := r.Region.ByMAC(mac)
		if ok && m.Status == ms.Deployed {
			bundle = bundleOf(r.T, r.Region, m.SystemID)
		}
		return bundle != ""
	}, "MAAS does not deploy %s: %v", id, r.Flow(id))
	return r.C.NewDeployed(r.T, harness.MachineOptions{ID: id}, bundle)
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

// Flow is the newest workflow of a machine.
func (r *MAAS) Flow(id string) *baremetalv1.Workflow {
	r.T.Helper()
	list := harness.Must(r.T, r.Flows.ListWorkflows, &baremetalv1.ListWorkflowsRequest{Filter: "machine_id=" + id,
		PageSize: 1})
	if len(list.GetWorkflows()) == 0 {
		r.T.Fatalf("%s has no workflow", id)
	}
	return list.GetWorkflows()[0]
}

// Completes waits until the newest workflow has ended.
func (r *MAAS) Completes(id string) {
	r.T.Helper()
	var f *baremetalv1.Workflow
	testkit.Eventually(r.T, Soon, func() bool {
		f = r.Flow(id)
		return f.GetState() != baremetalv1.Workflow_PENDING && f.GetState() != baremetalv1.Workflow_RUNNING
	}, "the workflow of %s does not end: %v", id, r.Flow(id))
	if f.GetState() != baremetalv1.Workflow_COMPLETED {
		r.T.Fatalf("%s at %s: %s %s", f.GetState(), f.GetCurrentStage(), f.GetReason(), f.GetMessage())
	}
}

func (r *MAAS) Node(id string) baremetalv1.NodeState {
	return r.C.Machine(id).GetStatus().GetNodeState()
}

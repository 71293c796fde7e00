package why

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// inMAAS is one machine in a region of its own.
type inMAAS struct {
	*rig.MAAS
	r            *whyRig
	id, mac, ref string
	systemID     string
}

// maas registers a machine that a region drives. The region has it as m, and not at all where m is nil.
func (r *whyRig) maas(t *testing.T, m *maastest.Machine) *inMAAS {
	t.Helper()
	name := fmt.Sprintf("maas-%x", sha256.Sum256([]byte(t.Name())))[:17] // one for each copy of a situation
	x := &inMAAS{MAAS: &rig.MAAS{T: t, C: r.Cluster, Region: maastest.New(maastest.Config{})}, r: r, id: "m-" + name,
		ref: name}
	x.Flows = r.Workflows()
	x.mac = macOf(name)
	t.Cleanup(func() { x.close() })
	if m != nil {
		m.MACs, m.BootMode = []string{x.mac}, "link_up"
		x.systemID = x.Region.Add(*m)
	}
	x.key(maastest.APIKey)
	r.Register(&baremetalv1.Machine{MachineId: x.id, Spec: &baremetalv1.MachineSpec{
		Provider: "maas", ProviderRef: x.ref, Site: whySite, MacAddresses: []string{x.mac},
	}})
	return x
}

// macOf makes a MAC address out of a name.
func macOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("52:54:%02x:%02x:%02x:%02x", sum[0], sum[1], sum[2], sum[3])
}

// close ends the region, once.
func (x *inMAAS) close() {
	if x.Region != nil {
		x.Region.Close()
		x.Region = nil
	}
}

func (x *inMAAS) key(key string) {
	x.T.Helper()
	harness.Must(x.T, baremetalv1.NewMAASServiceClient(x.r.Conn()).SetMAASRegion, &baremetalv1.SetMAASRegionRequest{
		RegionRef: x.ref, Endpoint: x.Region.Endpoint(), ApiKey: key,
	})
}

// onboard starts to bring it in, with at most so many seconds for a step; 0 means the configured time.
func (x *inMAAS) onboard(seconds string) {
	x.T.Helper()
	x.r.startLife(x.T, x.id, baremetalv1.Workflow_ONBOARDING, 0, timeout(seconds))
}

func timeout(seconds string) map[string]string {
	if seconds == "" {
		return nil
	}
	return map[string]string{"timeout_seconds": seconds}
}

// inService brings it in, to its end.
func (x *inMAAS) inService() {
	x.T.Helper()
	x.onboard("")
	x.Boot(x.id, x.mac)
	x.Completes(x.id)
	testkit.Eventually(x.T, rig.Soon,
		func() bool { return x.r.Machine(x.id).GetStatus().GetProvider().GetState() == "Deployed" }, "MAAS is not heard")
}

// leaves takes it out of service and the inventory, until that fails.
func (x *inMAAS) leaves(seconds string) string {
	x.T.Helper()
	harness.Must(x.T, x.r.Workflows().StartWorkflow, &baremetalv1.StartWorkflowRequest{
		MachineId: x.id, RequestId: "out", Kind: baremetalv1.Workflow_DECOMMISSION,
		Mode:             baremetalv1.Workflow_FULL_DECOMMISSION,
		EnterMaintenance: true, Params: timeout(seconds),
	})
	return x.fails()
}

// fails waits until the newest workflow needs an operator.
func (x *inMAAS) fails() string {
	x.T.Helper()
	testkit.Eventually(x.T, 2*rig.Soon, func() bool { return rig.FailedState(x.Flow(x.id)) },
		"the workflow of %s does not fail", x.id)
	return x.id
}

// comingIn is a fault of a machine on its way in, over which the workflow fails.
func comingIn(m *maastest.Machine, seconds string, faults ...maastest.Fault) func(*testing.T, *whyRig) string {
	return func(t *testing.T, r *whyRig) string {
		var own *maastest.Machine
		if m != nil {
			copied := *m
			own = &copied
		}
		x := r.maas(t, own)
		x.Region.Fail(faults...)
		x.onboard(seconds)
		return x.fails()
	}
}

func always(op string, kind maastest.Kind) maastest.Fault {
	return maastest.Fault{Op: op, Kind: kind, Times: -1}
}

// granted is a limit of a step in seconds, in which its agent is granted the command on whatever machine.
const granted = "20"

// faultsOfRegions: a MAAS region that cannot be asked.
func faultsOfRegions() []injected {
	fresh := &maastest.Machine{Status: ms.New}
	return []injected{
		{"MAAS busy, while it is asked", func(t *testing.T, r *whyRig) string {
			x := r.maas(t, &maastest.Machine{Status: ms.New})
			x.Region.Fail(always("GET machines", maastest.Busy))
			x.onboard("")
			return x.id
		}, []string{"MAAS_UNREACHABLE"}, "provider", []string{"503"}},
		{"MAAS busy for ever", comingIn(fresh, granted, always("GET machines", maastest.Busy)), []string{"MAAS_UNREACHABLE"},
			"operator", []string{"503"}},
		{"MAAS answers with a login page", comingIn(fresh, granted, always("GET machines", maastest.Nonsense)),
			[]string{"MAAS_UNREACHABLE"}, "operator", []string{"makes no sense"}},
		{"MAAS gone", func(t *testing.T, r *whyRig) string {
			x := r.maas(t, &maastest.Machine{Status: ms.New})
			x.close()
			x.onboard(granted)
			return x.fails()
		}, []string{"MAAS_UNREACHABLE"}, "operator", []string{"refused", "load_site_config"}},
		{"MAAS gone, nothing under way", func(t *testing.T, r *whyRig) string {
			x := r.maas(t, &maastest.Machine{Status: ms.New})
			x.inService()
			x.close()
			return x.id
		}, []string{"MAAS_UNREACHABLE"}, "provider", []string{"refused"}},
		{"MAAS key wrong", func(t *testing.T, r *whyRig) string {
			x := r.maas(t, &maastest.Machine{Status: ms.New})
			x.key("a:b:c")
			x.onboard("")
			return x.fails()
		}, []string{"MAAS_AUTH_FAILED"}, "operator", []string{"key"}},
		{"MAAS key revoked, nothing under way", func(t *testing.T, r *whyRig) string {
			x := r.maas(t, &maastest.Machine{Status: ms.New})
			x.inService()
			x.key("a:b:c")
			return x.id
		}, []string{"MAAS_AUTH_FAILED"}, "operator", []string{"key"}},
		{"MAAS does not answer a deployment",
			comingIn(fresh, "30", maastest.Fault{Op: "POST deploy", Kind: maastest.CutBefore}),
			[]string{"OUTCOME_UNKNOWN"}, "operator", []string{"deploy", "cmd-"}},
		{"site agent of a MAAS machine gone", func(t *testing.T, r *whyRig) string {
			const site, id = "why-maas-site", "m-maas-site-gone"
			world, err := sim.OpenWorld(sim.WorldConfig{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			m := r.NewSite(t, site, world, harness.MachineOptions{Change: func(cfg *agent.Config) {
				cfg.Site = &agent.SiteConfig{CacheDir: t.TempDir(), CacheBytes: 1 << 20, BMCPoll: time.Minute}
			}})
			m.WaitConnected()
			m.Isolate()
			harness.Must(t, baremetalv1.NewMAASServiceClient(r.Conn()).SetMAASRegion, &baremetalv1.SetMAASRegionRequest{
				RegionRef: site, Endpoint: "http://127.0.0.1:1/MAAS", ApiKey: maastest.APIKey,
			})
			r.Register(&baremetalv1.Machine{MachineId: id, Spec: &baremetalv1.MachineSpec{
				Provider: "maas", ProviderRef: site, Site: site, MacAddresses: []string{macOf(id)},
			}})
			r.startLife(t, id, baremetalv1.Workflow_ONBOARDING, 0, nil)
			return id
		}, []string{"SITE_AGENT_SILENT"}, "agent", []string{"why-maas-site"}},
	}
}

// faultsInMAAS returns wrong states of the machine in MAAS, and failures of MAAS.
func faultsInMAAS() []injected {
	text := func(n int, s string) []string {
		var out []string
		for range n {
			out = append(out, s)
		}
		return out
	}
	return []injected{
		{"MAAS commissioning failed", comingIn(&maastest.Machine{Status: ms.New, FailCommission: text(9, "no NIC speaks")},
			""),
			[]string{"MAAS_FAILED"}, "operator", []string{"Failed commissioning", "no NIC speaks"}},
		{"MAAS testing failed", comingIn(&maastest.Machine{Status: ms.New, FailTest: text(9, "memtester found errors")}, ""),
			[]string{"MAAS_FAILED"}, "operator", []string{"Failed testing", "memtester"}},
		{"MAAS deployment failed", comingIn(&maastest.Machine{Status: ms.New, FailDeploy: text(9, "curtin: exit status 3")},
			""),
			[]string{"MAAS_FAILED"}, "operator", []string{"Failed deployment", "curtin"}},
		{"MAAS deployment found no disk",
			comingIn(&maastest.Machine{Status: ms.New, FailDeploy: text(9, "boot disk not found")}, ""),
			[]string{"DISK_RULE_NO_UNIQUE_MATCH"}, "operator", []string{"boot disk not found"}},
		{"MAAS deploying for ever", func(t *testing.T, r *whyRig) string {
			x := r.maas(t, &maastest.Machine{Status: ms.New, StuckIn: ms.Deploying})
			x.onboard("")
			testkit.Eventually(t, rig.Soon, func() bool {
				m, _ := x.Region.ByMAC(x.mac)
				return m.Status == ms.Deploying && x.Flow(x.id).GetCurrentStage() == "wait_for_deployed"
			}, "MAAS does not deploy: %v", x.Flow(x.id))
			r.Aged(t, r.Machine(x.id).GetStatus().GetActiveOperationId(), time.Hour)
			return x.id
		}, []string{""}, "provider", []string{"wait_deployed", "MAAS to deploy the machine"}},
		{"MAAS deploying until the time is up", func(t *testing.T, r *whyRig) string {
			x := r.maas(t, &maastest.Machine{Status: ms.New, StuckIn: ms.Deploying})
			x.onboard("45") // the steps before it have the same limit, on whatever machine
			return x.fails()
		}, []string{"MAAS_FAILED"}, "operator", []string{"still waiting", "deploy"}},
		{"MAAS has no disk to boot from", comingIn(&maastest.Machine{Status: ms.New, NoBootDisk: true}, ""),
			[]string{"DISK_RULE_NO_UNIQUE_MATCH"}, "operator", []string{"no disk"}},
		{"MAAS refuses the storage layout", comingIn(&maastest.Machine{Status: ms.Ready, Layout: "lvm"}, "",
			always("POST set_storage_layout", maastest.Refuse)),
			[]string{"MAAS_REFUSED"}, "operator", []string{"It is not to be", "configure_storage"}},
		{"MAAS knows no boot interface", comingIn(&maastest.Machine{Status: ms.New, NoBootNIC: true}, ""),
			[]string{"NO_BOOT_PATH"}, "operator", []string{"interface"}},
		{"MAAS loses the machine on its way in", comingIn(&maastest.Machine{Status: ms.New}, "",
			maastest.Fault{Op: "POST commission", Kind: maastest.Vanish}),
			[]string{"MAAS_MACHINE_GONE"}, "operator", []string{"MAAS"}},
		{"MAAS loses a machine in service", func(t *testing.T, r *whyRig) string {
			x := r.maas(t, &maastest.Machine{Status: ms.New})
			x.inService()
			x.Region.Lose(x.systemID)
			return x.id
		}, []string{"MAAS_MACHINE_GONE"}, "operator", []string{"Absent"}},
		{"MAAS machine released by somebody", func(t *testing.T, r *whyRig) string {
			x := r.maas(t, &maastest.Machine{Status: ms.New})
			x.inService()
			x.Region.Change(x.systemID, func(m *maastest.Machine) { m.Status = ms.Ready })
			return x.id
		}, []string{"MAAS_STATUS_CONFLICT"}, "operator", []string{"Ready", "another party"}},
		{"MAAS machine that is somebody else's", comingIn(&maastest.Machine{Status: ms.Allocated, Owner: "bob"}, ""),
			[]string{"MAAS_STATUS_CONFLICT"}, "operator", []string{"Allocated"}},
		{"two machines in MAAS", func(t *testing.T, r *whyRig) string {
			x := r.maas(t, &maastest.Machine{Status: ms.New})
			x.Region.Add(maastest.Machine{Status: ms.New, MACs: []string{x.mac}})
			x.onboard("")
			return x.fails()
		}, []string{"MAAS_MACHINE_AMBIGUOUS"}, "operator", []string{"sys001", "sys002"}},
		{"machine without a MAC address", func(t *testing.T, r *whyRig) string {
			x := r.maas(t, nil)
			harness.Must(t, r.Machines().UpdateMachine, &baremetalv1.UpdateMachineRequest{Machine: &baremetalv1.Machine{
				MachineId: x.id, Spec: &baremetalv1.MachineSpec{},
			}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"spec.mac_addresses"}}})
			x.onboard("")
			return x.fails()
		}, []string{"INVALID_FIELD"}, "operator", []string{"MAC address"}},
		{"MAAS machine locked there", func(t *testing.T, r *whyRig) string {
			x := r.maas(t, &maastest.Machine{Status: ms.New})
			x.inService()
			x.Region.Change(x.systemID, func(m *maastest.Machine) { m.Locked = true })
			return x.leaves("")
		}, []string{"MAAS_STATUS_CONFLICT"}, "operator", []string{"locked"}},
		{"MAAS erasure failed", func(t *testing.T, r *whyRig) string {
			x := r.maas(t, &maastest.Machine{Status: ms.New, FailErase: text(9, "nvme0n1: I/O error")})
			x.inService()
			return x.leaves("")
		}, []string{"MAAS_FAILED"}, "operator", []string{"Failed disk erasing", "nvme0n1"}},
		{"MAAS switches, and nothing follows", func(t *testing.T, r *whyRig) string {
			x := r.maas(t, &maastest.Machine{Status: ms.New, NoSwitch: true})
			x.inService()
			return x.leaves("15")
		}, []string{"MAAS_FAILED"}, "operator", []string{"Releasing failed", "timed out"}},
	}
}

// besides is what else must be in the answer, by fault.
var besides = map[string]harness.Expected{
	"MAAS deploying for ever":              {Stuck: true, Do: "ingot cancel"},
	"MAAS gone, nothing under way":         {Do: "ingot maas set"},
	"MAAS key wrong":                       {Do: "ingot maas set"},
	"MAAS key revoked, nothing under way":  {Do: "ingot maas set"},
	"MAAS region not stored":               {Do: "ingot maas set nowhere"},
	"MAAS busy for ever":                   {Do: "retry-stage"},
	"MAAS deployment failed":               {Do: "retry-stage"},
	"MAAS does not answer a deployment":    {Do: "ingot settle"},
	"site agent of a MAAS machine gone":    {Do: "ingot agent list"},
	"MAAS machine locked there":            {Do: "in MAAS"},
	"MAAS loses the machine on its way in": {Do: "cancel"},
}

// TestWhyNamesFaultsOfMAAS breaks MAAS regions, and what they do to machines.
func TestWhyNamesFaultsOfMAAS(t *testing.T) {
	t.Parallel()
	r := newWhyRig(t)
	all := &harness.Answers{}
	t.Run("fault", func(t *testing.T) {
		for _, i := range slices.Concat(faultsOfRegions(), faultsInMAAS()) {
			t.Run(i.name, func(t *testing.T) {
				t.Parallel()
				i.ask(t, r, all)
			})
		}
	})
	all.Table(t)
}

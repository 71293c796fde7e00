package why

import (
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// startLife starts a workflow on a machine.
func (r *whyRig) startLife(
	t *testing.T, id string, kind baremetalv1.Workflow_Kind, mode baremetalv1.Workflow_Mode, params map[string]string,
) {
	t.Helper()
	harness.Must(t, r.Workflows().StartWorkflow, &baremetalv1.StartWorkflowRequest{
		MachineId: id, RequestId: "life", Kind: kind, Mode: mode, EnterMaintenance: true, Params: params,
	})
}

// failedLife waits until the machine's workflow needs an operator.
func (r *whyRig) failedLife(t *testing.T, id string) {
	t.Helper()
	testkit.Eventually(t, rig.Soon, func() bool {
		all := harness.Must(t, r.Workflows().ListWorkflows,
			&baremetalv1.ListWorkflowsRequest{Filter: "machine_id=" + id}).GetWorkflows()
		return len(all) == 1 && rig.FailedState(all[0])
	}, "the workflow of %s does not fail", id)
}

// installFails lets an installer report that it starts and fails, three times.
func (r *whyRig) installFails(t *testing.T, id, mac string) {
	t.Helper()
	harness.Must(t, r.Nodes().TransitionNode, &baremetalv1.TransitionNodeRequest{
		NodeId: id, RequestId: "approve", State: baremetalv1.NodeState_NODE_STATE_PENDING,
	})
	for range 3 {
		for _, status := range []string{"started", "failed"} {
			harness.Must(t, r.Nodes().ReportNode, &baremetalv1.ReportNodeRequest{
				MacAddress: mac, InstallationStatus: status,
				InstallationError: map[string]string{"failed": "no space left on /dev/sda"}[status],
			})
		}
	}
}

// faultsOfLife: how machines come in, and leave.
func faultsOfLife() []injected {
	return []injected{
		{"nobody has approved it", func(t *testing.T, r *whyRig) string {
			return r.Register(&baremetalv1.Machine{Spec: &baremetalv1.MachineSpec{
				Site: whySite, MacAddresses: []string{"52:54:00:77:00:01"}, BmcEndpoint: "192.0.2.9",
			}}).GetMachineId()
		}, []string{""}, "operator", []string{"approved"}},
		{"three installations failed", func(t *testing.T, r *whyRig) string {
			const mac = "52:54:00:77:00:02"
			id := r.Register(&baremetalv1.Machine{Spec: &baremetalv1.MachineSpec{MacAddresses: []string{mac}}}).GetMachineId()
			r.installFails(t, id, mac)
			return id
		}, []string{"INSTALL_ATTEMPTS_EXHAUSTED"}, "operator", []string{"no space left on /dev/sda"}},
		{"disks that cannot be erased", func(t *testing.T, r *whyRig) string {
			m := r.NewMachine(t, harness.MachineOptions{Script: "erase:fail-before"})
			m.WaitConnected()
			r.startLife(t, m.ID, baremetalv1.Workflow_DECOMMISSION, baremetalv1.Workflow_FULL_DECOMMISSION, nil)
			r.failedLife(t, m.ID)
			return m.ID
		}, []string{"DISK_WRITE_ERROR", "EXECUTION_FAILED"}, "operator", []string{"cleanup_storage"}},
		{"disks that may not be erased", func(t *testing.T, r *whyRig) string {
			m := r.NewMachine(t, harness.MachineOptions{})
			m.WaitConnected()
			harness.Must(t, r.Machines().UpdateMachine, &baremetalv1.UpdateMachineRequest{Machine: &baremetalv1.Machine{
				MachineId: m.ID, Spec: &baremetalv1.MachineSpec{ProtectedDisks: []string{"size>=1GiB"}},
			}})
			r.startLife(t, m.ID, baremetalv1.Workflow_DECOMMISSION, baremetalv1.Workflow_FULL_DECOMMISSION, nil)
			r.failedLife(t, m.ID)
			return m.ID
		}, []string{"DISK_RULE_NO_UNIQUE_MATCH"}, "operator", []string{"protected"}},
		{"onboarding of a machine whose agent never comes", func(t *testing.T, r *whyRig) string {
			id := r.Register(&baremetalv1.Machine{}).GetMachineId()
			r.IssueToken(&baremetalv1.IssueBootstrapTokenRequest{MachineId: id})
			r.startLife(t, id, baremetalv1.Workflow_ONBOARDING, 0, map[string]string{"path": "adopt"})
			r.failedLife(t, id)
			return id
		}, []string{"AGENT_UNAVAILABLE"}, "operator", []string{"wait_for_agent_enrollment"}},
		{"machine that was deleted", func(t *testing.T, r *whyRig) string {
			id := r.Register(&baremetalv1.Machine{}).GetMachineId()
			harness.Must(t, r.Machines().DeleteMachine, &baremetalv1.DeleteMachineRequest{MachineId: id})
			return id
		}, []string{"MACHINE_DELETED"}, "nobody", []string{"deleted"}},
	}
}

// TestWhyOfAFrozenFleet: the database was restored from a backup, and nothing is started until an operator thaws it.
func TestWhyOfAFrozenFleet(t *testing.T) {
	t.Parallel()
	r := &whyRig{Cluster: harness.New(t, harness.Options{})}
	frozen := injected{"fleet frozen after a restore", func(t *testing.T, r *whyRig) string {
		m := r.at(t, harness.MachineOptions{})
		r.Restored(t)
		return m.ID
	}, []string{"FLEET_FROZEN"}, "operator", []string{"restored"}}
	all := &harness.Answers{}
	frozen.ask(t, r, all)
	all.Table(t)
}

// TestWhyOfControllersThatDoNoWork: one that answers calls, and whose workers fail; and none at all.
func TestWhyOfControllersThatDoNoWork(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	c.Process.Terminate()
	c.Start("engine.in-job=error")
	m.WaitConnected()
	// Not a reboot, say: that begins in the call that asks for it.
	harness.Must(t, c.Machines().ReimageMachine, &baremetalv1.ReimageMachineRequest{MachineId: m.ID, RequestId: "r",
		ImageRef: "any"})
	var e *baremetalv1.ExplainMachineResponse
	testkit.Eventually(t, rig.Soon, func() bool {
		e = harness.Must(t, c.Machines().ExplainMachine, &baremetalv1.ExplainMachineRequest{MachineId: m.ID})
		return e.GetWaitsOn() == "limit" && strings.Contains(e.GetCause(), "controller")
	}, "why does not name the controllers: %v", rig.Stringer(func() string { return e.String() }))
	t.Log(e.GetSummary())
	c.Process.Kill()
	code, out := c.Ingot("why", m.ID)
	if code != 8 || !strings.Contains(out, "that the controller runs") {
		t.Errorf("without a controller: exit code %d\n%s", code, out)
	}
	t.Log(out)
}

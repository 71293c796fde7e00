package why

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// faultsOfMachines: what was ordered, and what the machine made of it.
func faultsOfMachines() []injected {
	reimage := func(t *testing.T, r *whyRig, id string, seconds int32) *baremetalv1.Operation {
		t.Helper()
		return harness.Must(t, r.Machines().ReimageMachine, &baremetalv1.ReimageMachineRequest{
			MachineId: id, RequestId: "r", ImageRef: "debian-12", TimeoutSeconds: seconds,
		})
	}
	return []injected{
		{"reboot that never happens", func(t *testing.T, r *whyRig) string {
			m := r.at(t, harness.MachineOptions{Script: "reboot:never"})
			r.failedOperation(t, rig.Reboot(t, r.Client, m.ID, "r", 2))
			return m.ID
		}, []string{"EVIDENCE_MISSING", "OUTCOME_UNKNOWN"}, "operator", []string{"boot"}},
		{"reboot that is only claimed", func(t *testing.T, r *whyRig) string {
			m := r.at(t, harness.MachineOptions{Script: "reboot:lie"})
			r.failedOperation(t, rig.Reboot(t, r.Client, m.ID, "r", 2))
			return m.ID
		}, []string{"EVIDENCE_MISSING", "OUTCOME_UNKNOWN"}, "operator", []string{"boot"}},
		{"reboot that takes long", func(t *testing.T, r *whyRig) string {
			m := r.at(t, harness.MachineOptions{Script: "reboot:late=40s"})
			rig.Reboot(t, r.Client, m.ID, "r", rig.PatientTime)
			testkit.Eventually(t, rig.Soon, func() bool { return len(m.Journal()) > 0 }, "the reboot is not asked for")
			return m.ID
		}, []string{"", "EVIDENCE_MISSING"}, "agent", []string{"reboot"}},
		{"write that fails", func(t *testing.T, r *whyRig) string {
			m := r.at(t, harness.MachineOptions{Script: "repave:fail-before"})
			r.failedOperation(t, reimage(t, r, m.ID, rig.PatientTime))
			return m.ID
		}, []string{"EXECUTION_FAILED", "INSTALL_ATTEMPTS_EXHAUSTED"}, "operator", []string{"scripted failure"}},
		{"write that hangs", func(t *testing.T, r *whyRig) string {
			m := r.at(t, harness.MachineOptions{Script: "repave:never"})
			r.failedOperation(t, reimage(t, r, m.ID, 3))
			return m.ID
		}, []string{"STEP_TIMEOUT", "INSTALL_ATTEMPTS_EXHAUSTED"}, "operator", []string{"the time was up"}},
		{"write that goes on", func(t *testing.T, r *whyRig) string {
			m := r.at(t, harness.MachineOptions{RepaveTime: 40 * time.Second})
			reimage(t, r, m.ID, rig.PatientTime)
			r.WaitCommand(m.ID, "a granted write", func(c *baremetalv1.Command) bool {
				return c.GetKind() == "repave" &&
					c.GetState() == "GRANTED"
			})
			return m.ID
		}, []string{""}, "agent", []string{"image is being written"}},
		{"network change that cuts the machine off", func(t *testing.T, r *whyRig) string {
			m := r.at(t, harness.MachineOptions{})
			rig.IsolateAt(m, "agent.after-effect")
			op := r.runOnce(t, m.ID, &baremetalv1.Step{Kind: &baremetalv1.Step_Net{Net: &baremetalv1.NetReconfig{
				ConfirmTimeoutSeconds: 2,
				Interfaces:            []*baremetalv1.NetworkInterface{{Name: "eth0", Addresses: []string{"192.0.2.7/24"}}},
			}}})
			testkit.Eventually(t, rig.Soon, func() bool {
				return slices.ContainsFunc(m.Journal(),
					func(e sim.EffectRecord) bool { return strings.HasSuffix(e.CommandID, "-rollback") })
			}, "no change and no way back: %v", rig.Stringer(func() string { return m.History().String() }))
			m.Rejoin()
			r.failedOperation(t, op)
			return m.ID
		}, []string{"CONFIG_ROLLED_BACK"}, "operator", []string{"old one"}},
		{"machine flagged for return", func(t *testing.T, r *whyRig) string {
			m := r.at(t, harness.MachineOptions{})
			harness.Must(t, r.Admin().SetMachineFlag, &baremetalv1.SetMachineFlagRequest{
				MachineId: m.ID, Flag: "RMA", Value: true, Comment: "DIMM 3",
			})
			return m.ID
		}, []string{"MACHINE_BLOCKED"}, "operator", []string{"RMA"}},
		{"cancel that a silent machine has not answered", func(t *testing.T, r *whyRig) string {
			m := r.at(t, harness.MachineOptions{})
			rig.IsolateAt(m, "agent.after-intent")
			op := harness.Must(t, r.Machines().NetbootMachine, &baremetalv1.NetbootMachineRequest{
				MachineId: m.ID, RequestId: "r", TimeoutSeconds: rig.PatientTime,
			})
			r.WaitCommand(m.ID, "granted", harness.InState("GRANTED"))
			harness.Must(t, r.Machines().CancelOperation, &baremetalv1.CancelOperationRequest{OperationId: op.GetOperationId()})
			return m.ID
		}, []string{"CANCELED_BY_REQUEST"}, "agent", []string{"cancel"}},
		{"nothing at all", func(t *testing.T, r *whyRig) string {
			m := r.at(t, harness.MachineOptions{})
			op := harness.Must(t, r.Machines().ExitMaintenance,
				&baremetalv1.ExitMaintenanceRequest{MachineId: m.ID, RequestId: "out"})
			rig.Ended(t, r.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
			return m.ID
		}, []string{""}, "nobody", []string{"in service"}},
		{"a dead receiver of webhooks is no fault of the machine", func(t *testing.T, r *whyRig) string {
			harness.Must(t, r.Admin().CreateWebhook, &baremetalv1.CreateWebhookRequest{Webhook: &baremetalv1.Webhook{
				WebhookId: "dead", Url: "https://192.0.2.1:9/nobody",
			}})
			m := r.at(t, harness.MachineOptions{})
			rig.Ended(t, r.Wait(rig.Reboot(t, r.Client, m.ID, "r", rig.PatientTime).GetOperationId(), rig.Soon), rig.Succeeded,
				"")
			op := harness.Must(t, r.Machines().ExitMaintenance,
				&baremetalv1.ExitMaintenanceRequest{MachineId: m.ID, RequestId: "out"})
			rig.Ended(t, r.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
			return m.ID
		}, []string{""}, "nobody", []string{"in service"}},
	}
}

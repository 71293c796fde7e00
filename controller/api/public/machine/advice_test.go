package machine_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
)

// TestEffectiveStatesSayWhatToDo: each state that a screen shows has its next step among the recommended ones.
func TestEffectiveStatesSayWhatToDo(t *testing.T) {
	r := publictest.NewRig(t)
	r.Register(&pb.Machine{MachineId: "m-1", Spec: &pb.MachineSpec{Provider: "fake"}})
	advises := func(state pb.MachineStatus_EffectiveState, commands ...string) {
		t.Helper()
		m, err := r.Machines.GetMachine(t.Context(), &pb.GetMachineRequest{MachineId: "m-1"})
		if err != nil || m.GetStatus().GetEffectiveState() != state {
			t.Fatalf("the machine is %v, %v; want %s", m.GetStatus(), err, state)
		}
		e := explainMachine(r, &pb.ExplainMachineRequest{MachineId: "m-1"})
		for _, c := range commands {
			if !slices.ContainsFunc(e.GetOperatorActions(), func(a string) bool { return strings.HasPrefix(a, c) }) {
				t.Errorf("%s: %q is not among %q", state, c, e.GetOperatorActions())
			}
		}
	}
	advises(pb.MachineStatus_NEW, "ingot enter-maintenance m-1")
	r.Maintenance("m-1")
	advises(pb.MachineStatus_MAINTENANCE_IDLE, "ingot reimage m-1", "ingot exit-maintenance m-1")
	op, err := r.Machines.RebootMachine(t.Context(), &pb.RebootMachineRequest{MachineId: "m-1", RequestId: "q"})
	if err != nil {
		t.Fatal(err)
	}
	r.Look(op.GetOperationId())
	advises(pb.MachineStatus_BUSY, "ingot cancel "+op.GetOperationId())
	if _, err := r.Machines.CancelOperation(t.Context(),
		&pb.CancelOperationRequest{OperationId: op.GetOperationId()}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Admin.SetMachineFlag(t.Context(), &pb.SetMachineFlagRequest{MachineId: "m-1", Flag: "RMA",
		Value: true}); err != nil {
		t.Fatal(err)
	}
	advises(pb.MachineStatus_BLOCKED, "ingot flag m-1 RMA --off")
}

// TestMailPolicyIsStoredAndAudited: the stored operation holds the policy as it was ordered, allowed or not. The audit
// log names the caller, the request and the operation.
func TestMailPolicyIsStoredAndAudited(t *testing.T) {
	for machine, allowed := range map[string]bool{"m-open": true, "m-shut": false} {
		r := publictest.NewRig(t)
		r.Register(&pb.Machine{MachineId: machine})
		r.Maintenance(machine)
		op, err := r.Machines.ReconfigureMachine(t.Context(), &pb.ReconfigureMachineRequest{
			MachineId: machine, RequestId: "mail",
			Config: &pb.NetReconfig{Hostname: "web-1", Firewall: &pb.FirewallPolicy{SmtpEgressAllowed: allowed}},
		})
		if err != nil {
			t.Fatal(err)
		}
		stored, err := r.Operations.GetOperation(t.Context(), &pb.GetOperationRequest{OperationId: op.GetOperationId()})
		if err != nil {
			t.Fatal(err)
		}
		var config pb.NetReconfig
		if err := protojson.Unmarshal([]byte(stored.GetParams()["config"]), &config); err != nil ||
			config.GetFirewall().GetSmtpEgressAllowed() != allowed || config.GetHostname() != "web-1" {
			t.Errorf("stored %v, %v", stored, err)
		}
		log, err := r.Admin.ListAuditLog(t.Context(), &pb.ListAuditLogRequest{TargetId: machine})
		if err != nil {
			t.Fatal(err)
		}
		var entries []*pb.AuditEntry
		for _, e := range log.GetEntries() {
			if e.GetVerb() == "RECONFIGURE" {
				entries = append(entries, e)
			}
		}
		if len(entries) != 1 || entries[0].GetActor() != "tester" || entries[0].GetRequestId() != "mail" ||
			entries[0].GetOperationId() != op.GetOperationId() {
			t.Errorf("the audit log has %v", log.GetEntries())
		}
	}
}

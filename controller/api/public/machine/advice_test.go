package machine_test

import (
	"slices"
	"strings"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
)

// TestEffectiveStatesSayWhatToDo: each state that a screen shows has its way on among what is recommended.
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

// TestMailPolicyIsStoredAndAudited: it is part of the configuration that an operation keeps, and who asked for it is on
// record.
func TestMailPolicyIsStoredAndAudited(t *testing.T) {
	r := publictest.NewRig(t)
	r.Register(&pb.Machine{MachineId: "m-1"})
	r.Maintenance("m-1")
	op, err := r.Machines.ReconfigureMachine(t.Context(), &pb.ReconfigureMachineRequest{
		MachineId: "m-1", RequestId: "mail", Config: &pb.NetReconfig{Firewall: &pb.FirewallPolicy{SmtpEgressAllowed: true}},
	})
	if err != nil || !strings.Contains(op.GetParams()["config"], `"smtp_egress_allowed":true`) {
		t.Errorf("started %v, %v", op, err)
	}
	log, err := r.Admin.ListAuditLog(t.Context(), &pb.ListAuditLogRequest{TargetId: "m-1"})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(log.GetEntries(), func(e *pb.AuditEntry) bool { return e.GetVerb() == "RECONFIGURE" })
	if i < 0 || log.GetEntries()[i].GetActor() != "tester" || log.GetEntries()[i].GetOperationId() != op.GetOperationId() {
		t.Errorf("the audit log has %v", log.GetEntries())
	}
}

package node_test

import (
	"fmt"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// A reimage that has failed for good needs no gymnastics: the next one is the operator's new plan, with all its
// attempts.
func TestAReimageAfterTheLastAttemptJustWorks(t *testing.T) {
	s := storetest.New(t)
	installer(t, s)
	a := serviced(t, s, "m-1")
	for i := 1; i <= 3; i++ {
		id, c := write(t, s, a, fmt.Sprint("r", i), uint64(i))
		storetest.Decide(t, s, id, notWritten(a, c))
	}
	st := storetest.Machine(t, s, "m-1").GetStatus()
	if storetest.State(t, s, "m-1") != "install_failed" || st.GetEffectiveState() != baremetalv1.MachineStatus_ATTENTION ||
		st.GetAttentionReason() != "INSTALL_ATTEMPTS_EXHAUSTED" || st.GetOsImageDigest() != "" {
		t.Fatalf("%s, %s: %s, image %q", storetest.State(t, s, "m-1"), st.GetEffectiveState(), st.GetAttentionReason(),
			st.GetOsImageDigest())
	}
	id, c := write(t, s, a, "again", 4)
	if st := storetest.Machine(t, s, "m-1").GetStatus(); storetest.State(t, s, "m-1") != "installing" ||
		st.GetInstallAttempts() != 0 {
		t.Errorf("the retry begins %s with %d attempts", storetest.State(t, s, "m-1"), st.GetInstallAttempts())
	}
	storetest.Decide(t, s, id, wrote(a, c))
	storetest.Whole(t, s, "m-1", id, operation.Succeeded)
	st = storetest.Machine(t, s, "m-1").GetStatus()
	if storetest.Condition(storetest.Machine(t, s, "m-1"), fleet.NeedsIntervention) != nil ||
		st.GetEffectiveState() != baremetalv1.MachineStatus_MAINTENANCE_IDLE {
		t.Errorf("the retry has succeeded, and the machine is %s: %s", st.GetEffectiveState(), st.GetAttentionReason())
	}
}

// A write that was cancelled leaves a machine that holds no verified system, whatever is done with it afterwards.
func TestACancelledWriteIsNeverIdle(t *testing.T) {
	s := storetest.New(t)
	installer(t, s)
	a := serviced(t, s, "m-1")
	if storetest.Condition(storetest.Machine(t, s, "m-1"), fleet.Provisioned).GetReason() != "Adopted" {
		t.Fatal("an adopted machine is not provisioned")
	}
	id, c := write(t, s, a, "r", 1)
	storetest.Decide(t, s, id, operation.CancelAsked{Actor: "x"})
	storetest.Decide(t, s, id, operation.Resulted{CommandID: c.ID, AgentID: a.ID, Outcome: operation.OutcomeCanceled})
	storetest.Whole(t, s, "m-1", id, operation.Canceled)
	exit := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "exit",
		Type: fleet.ExitMaintenance})
	storetest.Decide(t, s, exit.GetOperationId(), operation.Evaluate{})
	st := storetest.Machine(t, s, "m-1").GetStatus()
	if st.GetPhase() != baremetalv1.MachineStatus_READY || st.GetSchedulable() ||
		st.GetAttentionReason() != "NOT_PROVISIONED" {
		t.Errorf("phase %s, schedulable %t, attention %q", st.GetPhase(), st.GetSchedulable(), st.GetAttentionReason())
	}
	if st.GetFirstProvisionedAt() == nil {
		t.Error("it is forgotten that the machine had a system once")
	}
}

// A reboot proves nothing about the disk: what a failed write has left stays.
func TestARebootLeavesAFailedWriteVisible(t *testing.T) {
	s := storetest.New(t)
	installer(t, s)
	a := serviced(t, s, "m-1")
	id, c := write(t, s, a, "r", 1)
	storetest.Decide(t, s, id, notWritten(a, c))
	boot := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "b",
		Type: fleet.Reboot}).GetOperationId()
	cmd := storetest.Decide(t, s, boot, operation.Evaluate{}).Command
	storetest.Decide(t, s, boot, storetest.Ask(a, cmd, 2, 1))
	storetest.Decide(t, s, boot, operation.Resulted{
		CommandID: cmd.ID, AgentID: a.ID, Outcome: operation.OutcomeSucceeded, SessionBootID: "boot-9",
		Evidence: map[string]string{"boot_id_before": "boot-1", "boot_id_after": "boot-9"},
	})
	if got := storetest.Condition(storetest.Machine(t, s, "m-1"),
		fleet.NeedsIntervention); got.GetReason() != "DISK_WRITE_ERROR" {
		t.Errorf("after a reboot NeedsIntervention is %v", got)
	}
}

package store_test

import (
	"fmt"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// A reimage that has failed for good needs no gymnastics: the next one is the operator's new plan, with all its attempts.
func TestAReimageAfterTheLastAttemptJustWorks(t *testing.T) {
	s := storetest.New(t)
	installer(t, s)
	a := serviced(t, s, "m-1")
	for i := 1; i <= 3; i++ {
		id, c := write(t, s, a, fmt.Sprint("r", i), uint64(i))
		decide(t, s, id, notWritten(a, c))
	}
	st := machine(t, s, "m-1").GetStatus()
	if state(t, s, "m-1") != "install_failed" || st.GetEffectiveState() != baremetalv1.MachineStatus_ATTENTION ||
		st.GetAttentionReason() != "INSTALL_ATTEMPTS_EXHAUSTED" || st.GetOsImageDigest() != "" {
		t.Fatalf("%s, %s: %s, image %q", state(t, s, "m-1"), st.GetEffectiveState(), st.GetAttentionReason(), st.GetOsImageDigest())
	}
	id, c := write(t, s, a, "again", 4)
	if st := machine(t, s, "m-1").GetStatus(); state(t, s, "m-1") != "installing" || st.GetInstallAttempts() != 0 {
		t.Errorf("the retry begins %s with %d attempts", state(t, s, "m-1"), st.GetInstallAttempts())
	}
	decide(t, s, id, wrote(a, c))
	whole(t, s, "m-1", id, operation.Succeeded)
	st = machine(t, s, "m-1").GetStatus()
	if condition(machine(t, s, "m-1"), fleet.NeedsIntervention) != nil || st.GetEffectiveState() != baremetalv1.MachineStatus_MAINTENANCE_IDLE {
		t.Errorf("the retry has succeeded, and the machine is %s: %s", st.GetEffectiveState(), st.GetAttentionReason())
	}
}

// A write that was cancelled leaves a machine that holds no verified system, whatever is done with it afterwards.
func TestACancelledWriteIsNeverIdle(t *testing.T) {
	s := storetest.New(t)
	installer(t, s)
	a := serviced(t, s, "m-1")
	if condition(machine(t, s, "m-1"), fleet.Provisioned).GetReason() != "Adopted" {
		t.Fatal("an adopted machine is not provisioned")
	}
	id, c := write(t, s, a, "r", 1)
	decide(t, s, id, operation.CancelAsked{Actor: "x"})
	decide(t, s, id, operation.Resulted{CommandID: c.ID, AgentID: a.id, Outcome: operation.OutcomeCanceled})
	whole(t, s, "m-1", id, operation.Canceled)
	exit := start(t, s, store.StartRequest{MachineID: "m-1", RequestID: "exit", Type: fleet.ExitMaintenance})
	decide(t, s, exit.GetOperationId(), operation.Look{})
	st := machine(t, s, "m-1").GetStatus()
	if st.GetPhase() != baremetalv1.MachineStatus_READY || st.GetSchedulable() || st.GetAttentionReason() != "NOT_PROVISIONED" {
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
	decide(t, s, id, notWritten(a, c))
	boot := start(t, s, store.StartRequest{MachineID: "m-1", RequestID: "b", Type: fleet.Reboot}).GetOperationId()
	cmd := decide(t, s, boot, operation.Look{}).Command
	decide(t, s, boot, ask(a, cmd, 2, 1))
	decide(t, s, boot, operation.Resulted{
		CommandID: cmd.ID, AgentID: a.id, Outcome: operation.OutcomeSucceeded, SessionBootID: "boot-9",
		Evidence: map[string]string{"boot_id_before": "boot-1", "boot_id_after": "boot-9"},
	})
	if got := condition(machine(t, s, "m-1"), fleet.NeedsIntervention); got.GetReason() != "DISK_WRITE_ERROR" {
		t.Errorf("after a reboot NeedsIntervention is %v", got)
	}
}

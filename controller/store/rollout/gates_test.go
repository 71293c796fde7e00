package rollout_test

import (
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/rollout"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	rolloutstore "github.com/ingot-metal/ingot/controller/store/rollout"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

func TestGatesStopARollout(t *testing.T) {
	s := storetest.New(t)
	racked(t, s, 6, 1)
	r := roll(t, s, &baremetalv1.RolloutSpec{MaxInFlight: 1, TotalGate: &baremetalv1.RolloutGate{Failures: 2}})
	r.step()
	for range 2 {
		r.step()
		r.endAll("FAILED")
	}
	ro := r.until(rollout.Paused, false)
	if ro.GetWaitReason() != "PAUSED_BY_GATE" || ro.GetTally().GetFailed() != 2 || ro.GetTally().GetPending() != 4 {
		t.Fatalf("%v", ro)
	}
	r.wants(
		"m-0:1:FAILED:DISK_WRITE_ERROR m-1:1:FAILED:DISK_WRITE_ERROR m-2:1:PENDING m-3:1:PENDING m-4:1:PENDING m-5:1:PENDING")
	r.must(rollout.Resume)
	r.step()
	r.endAll("FAILED")
	r.step() // one more than was acknowledged is less than the gate
	r.endAll("FAILED")
	if ro := r.until(rollout.Paused, false); ro.GetTally().GetFailed() != 4 {
		t.Errorf("%v", ro)
	}
	r.must(rollout.Cancel)
	if ro := r.until(rollout.Canceled, false); ro.GetTally().GetCanceled() != 2 {
		t.Errorf("%v", ro)
	}
	_, err := r.act(rollout.Resume)
	storetest.WantReason(t, err, "ROLLOUT_ENDED")
}

func TestAGateMayCancelTheRest(t *testing.T) {
	s := storetest.New(t)
	racked(t, s, 3, 1)
	r := roll(t, s, &baremetalv1.RolloutSpec{MaxInFlight: 1, OnGate: "cancel"})
	r.step()
	r.step()
	r.endAll("FAILED")
	r.until(rollout.Failed, false)
	r.wants("m-0:1:FAILED:DISK_WRITE_ERROR m-1:1:CANCELED:ROLLOUT_STOPPED m-2:1:CANCELED:ROLLOUT_STOPPED")
}

func TestACancelEndsWhatHasNotBegun(t *testing.T) {
	s := storetest.New(t)
	racked(t, s, 4, 1)
	r := roll(t, s, &baremetalv1.RolloutSpec{MaxInFlight: 3})
	r.step()
	claimed := r.advance().Starting
	op := r.start(claimed[0])
	other := r.start(claimed[1])
	if err := storetest.ExecSQL(t, s, "UPDATE operations SET phase = 'RUNNING' WHERE operation_id = $1",
		other.GetOperationId()); err != nil {
		t.Fatal(err)
	}
	r.must(rollout.Cancel)
	m := r.step()
	if len(m.Cancel) != 1 || m.Cancel[0] != op.GetOperationId() {
		t.Fatalf("to be canceled: %v, want %s alone", m.Cancel, op.GetOperationId())
	}
	r.wants("m-0:1:RUNNING m-1:1:RUNNING m-2:1:CANCELED:ROLLOUT_STOPPED m-3:1:CANCELED:ROLLOUT_STOPPED")
	_, _, err := s.Rollouts.ActOnRollout(t.Context(), rolloutstore.RolloutAct{RolloutID: r.id, Action: rollout.Cancel,
		CancelOperations: true, Actor: "bob"}, storetest.Now())
	if err != nil {
		t.Fatal(err)
	}
	if m = r.step(); len(m.Cancel) != 2 {
		t.Errorf("to be canceled: %v, want both", m.Cancel)
	}
	_, err = r.act(rollout.Resume)
	storetest.WantReason(t, err, "ROLLOUT_STOPPED")
	r.endAll("CANCELED")
	r.until(rollout.Canceled, false)
}

func TestASecondPersonApprovesADigest(t *testing.T) {
	s := storetest.New(t)
	racked(t, s, 1, 1)
	r := roll(t, s, &baremetalv1.RolloutSpec{RequireApproval: true})
	if ro := r.get(); ro.GetState() != baremetalv1.Rollout_AWAITING_APPROVAL ||
		ro.GetWaitReason() != "WAITING_FOR_APPROVAL" {
		t.Fatalf("%v", ro)
	}
	if m := r.advance(); m != nil {
		t.Fatalf("it is due: %+v", m)
	}
	_, err := r.act(rollout.Resume)
	storetest.WantReason(t, err, "ROLLOUT_NOT_APPROVED")
	approve := func(actor, digest string) error {
		_, _, err := s.Rollouts.ActOnRollout(t.Context(), rolloutstore.RolloutAct{RolloutID: r.id, Action: rollout.Approve,
			Actor: actor, Digest: digest}, storetest.Now())
		return err
	}
	storetest.WantReason(t, approve("alice", r.r.Digest), "ROLLOUT_SELF_APPROVAL")
	storetest.WantReason(t, approve("bob", "another"), "ROLLOUT_CHANGED")
	for range 2 {
		if err := approve("bob", r.r.Digest); err != nil {
			t.Fatal(err)
		}
	}
	ro := r.until(rollout.Succeeded, true)
	if ro.GetApprovedBy() != "bob" || ro.GetApprovedAt() == nil {
		t.Errorf("%v", ro)
	}
}

func TestARolloutIsWhatWasPreviewed(t *testing.T) {
	s := storetest.New(t)
	racked(t, s, 2, 1)
	r := rolloutRequest(&baremetalv1.RolloutSpec{})
	seen := preview(t, s, r).GetDigest()
	if again := preview(t, s, r).GetDigest(); again != seen {
		t.Fatalf("the same preview has digests %s and %s", seen, again)
	}
	// Each of these changes what would be done.
	if _, err := s.Machines.Register(t.Context(), &baremetalv1.Machine{MachineId: "m-9", Spec: &baremetalv1.MachineSpec{}},
		"tester", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	r.Digest = seen
	_, _, err := s.Rollouts.CreateRollout(t.Context(), r, storetest.Now())
	storetest.WantReason(t, err, "ROLLOUT_CHANGED")
	r.Digest = preview(t, s, r).GetDigest()
	if _, err := s.Operations.SetFlag(t.Context(), "m-9", "Retired", true, "admin", "", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	_, _, err = s.Rollouts.CreateRollout(t.Context(), r, storetest.Now())
	storetest.WantReason(t, err, "ROLLOUT_CHANGED")
	r.Digest = preview(t, s, r).GetDigest()
	first, created, err := s.Rollouts.CreateRollout(t.Context(), r, storetest.Now())
	if err != nil || !created {
		t.Fatal(err)
	}
	// A repeat gives the same one, whatever has changed since.
	storetest.Maintenance(t, s, "m-0")
	same, created, err := s.Rollouts.CreateRollout(t.Context(), r, storetest.Now())
	if err != nil || created || same.GetRolloutId() != first.GetRolloutId() {
		t.Errorf("%v, %t, %v", same, created, err)
	}
	r.Spec = &baremetalv1.RolloutSpec{MaxInFlight: 7}
	_, _, err = s.Rollouts.CreateRollout(t.Context(), r, storetest.Now())
	storetest.WantReason(t, err, "REQUEST_ID_REUSED")
	r = rolloutRequest(&baremetalv1.RolloutSpec{})
	r.RequestID, r.Machines = "r-2", []machinestore.MachineFilter{{MachineID: "m-9"}}
	r.Digest = preview(t, s, r).GetDigest()
	_, _, err = s.Rollouts.CreateRollout(t.Context(), r, storetest.Now())
	storetest.WantReason(t, err, "ROLLOUT_EMPTY")
}

// TestAPausedRolloutTakesNoSlots: its operations that wait for a budget keep waiting.
func TestAPausedRolloutTakesNoSlots(t *testing.T) {
	s := storetest.New(t)
	racked(t, s, 3, 1)
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 1})
	r := roll(t, s, &baremetalv1.RolloutSpec{})
	r.step()
	r.step()
	err := storetest.ExecSQL(t, s,
		"UPDATE operations SET destructive = true, wait_reason = 'WAITING_FOR_BUDGET' WHERE request_id = $1", r.id)
	if err != nil {
		t.Fatal(err)
	}
	r.step()
	if ro := r.get(); ro.GetWaitReason() != "WAITING_FOR_BUDGET" {
		t.Errorf("%v", ro)
	}
	r.must(rollout.Pause)
	storetest.AdmitDestructive(t, s, 0)
	r.must(rollout.Resume)
	storetest.AdmitDestructive(t, s, 1)
}

// What has begun to wait for a slot begins no work once the rollout is paused, although no budget limits it.
func TestAPausedRolloutTakesNoSlot(t *testing.T) {
	s := storetest.New(t)
	racked(t, s, 1, 1)
	r := roll(t, s, &baremetalv1.RolloutSpec{})
	r.step()
	op := r.start(r.advance().Starting[0]).GetOperationId()
	// Entering maintenance does all that matters here.
	if err := storetest.ExecSQL(t, s, "UPDATE operations SET destructive = true WHERE operation_id = $1", op); err != nil {
		t.Fatal(err)
	}
	r.must(rollout.Pause)
	if a := storetest.Decide(t, s, op, operation.Evaluate{}); a.Phase != operation.Pending {
		t.Errorf("in a paused rollout: %s", a.Phase)
	}
	storetest.AdmitDestructive(t, s, 0)
	r.must(rollout.Resume)
	storetest.AdmitDestructive(t, s, 1)
	if a := storetest.Decide(t, s, op, operation.Evaluate{}); a.Phase != operation.Succeeded {
		t.Errorf("after it was resumed: %s", a.Phase)
	}
}

package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/rollout"
	"github.com/ingot-metal/ingot/controller/store"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	rolloutstore "github.com/ingot-metal/ingot/controller/store/rollout"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

func provisioning(spec *baremetalv1.RolloutSpec) rolloutstore.RolloutRequest {
	spec.Action, spec.Params = baremetalv1.RolloutSpec_PROVISION, map[string]string{"image_ref": "ubuntu-2204"}
	r := rolloutRequest(spec)
	r.Work = operationstore.StartRequest{Type: fleet.Reimage, Params: spec.GetParams(),
		Inputs: kind.Inputs{ImageRef: "ubuntu-2204"}}
	return r
}

// simulated are machines of one rack whose agents write images by themselves.
func simulated(t testing.TB, s *store.Store, n int) {
	t.Helper()
	racked(t, s, n, 1)
	for i := range n {
		storetest.Simulated(t, s, fmt.Sprint("m-", i))
	}
}

func provision(t testing.TB, s *store.Store, spec *baremetalv1.RolloutSpec) *rolling {
	t.Helper()
	return begin(t, s, provisioning(spec))
}

// settle carries out what needs no machine: entering and exiting maintenance.
func (r *rolling) settle() {
	r.t.Helper()
	for _, op := range r.operations("PENDING") {
		if !fleet.Housekeeping(fleet.OperationType(op.GetType().String())) {
			continue
		}
		if _, err := r.s.Operations.Decide(r.t.Context(), op.GetOperationId(), operation.Evaluate{},
			storetest.Now()); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rolling) operations(phase string) []*baremetalv1.Operation {
	r.t.Helper()
	all, err := r.s.OperationQueries.ListOperations(r.t.Context(), operationquery.OperationFilter{Phase: phase,
		Limit: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// done lists what was done on a machine, in order.
func (r *rolling) done(machineID string) string {
	r.t.Helper()
	var out []string
	for _, op := range slices.Backward(r.operations("")) {
		if op.GetMachineId() == machineID {
			out = append(out, op.GetType().String()+":"+op.GetPhase().String())
		}
	}
	return strings.Join(out, " ")
}

func phaseOf(t testing.TB, s *store.Store, id string) string {
	t.Helper()
	m, err := s.Machines.GetMachine(t.Context(), id, "")
	if err != nil {
		t.Fatal(err)
	}
	return m.GetStatus().GetPhase().String()
}

// TestProvisioningIsThreeOperations: each begins when the one before has succeeded, and counts for the limits as one.
func TestProvisioningIsThreeOperations(t *testing.T) {
	s := storetest.New(t)
	simulated(t, s, 3)
	r := provision(t, s, &baremetalv1.RolloutSpec{MaxInFlight: 2})
	for range 40 {
		if r.get().GetFinishedAt() != nil {
			break
		}
		r.step()
		if n := storetest.Count(t, s, "SELECT count(*) FROM rollouts WHERE wake_at IS NOT NULL"); n > 0 {
			t.Fatal("an older version of the controller would look at the rollout")
		}
		if n := len(r.operations("PENDING")); n > 2 {
			t.Fatalf("%d operations at once, the limit is 2", n)
		}
		r.settle()
		r.endAll("SUCCEEDED")
	}
	r.wants("m-0:1:SUCCEEDED m-1:1:SUCCEEDED m-2:1:SUCCEEDED")
	for i := range 3 {
		id := fmt.Sprint("m-", i)
		if got := r.done(id); got != "ENTER_MAINTENANCE:SUCCEEDED REIMAGE:SUCCEEDED EXIT_MAINTENANCE:SUCCEEDED" {
			t.Errorf("%s: %s", id, got)
		}
		if got := phaseOf(t, s, id); got != "READY" {
			t.Errorf("%s is in phase %s", id, got)
		}
	}
	for _, op := range r.operations("") {
		if image := op.GetParams()["image_ref"]; (image == "ubuntu-2204") != (op.GetType() == baremetalv1.Operation_REIMAGE) {
			t.Errorf("%s has image %q", op.GetType(), image)
		}
		if op.GetParams()["rollout_id"] != r.id || !strings.HasPrefix(op.GetRequestId(), r.id+"/") {
			t.Errorf("%v", op)
		}
	}
}

// TestAPauseHoldsBetweenOperations: no installation begins, and a machine that is installed gets back into service.
func TestAPauseHoldsBetweenOperations(t *testing.T) {
	s := storetest.New(t)
	simulated(t, s, 2)
	r := provision(t, s, &baremetalv1.RolloutSpec{MaxInFlight: 1})
	r.step()
	r.step()
	r.settle()
	r.must(rollout.Pause)
	r.step()
	r.wants("m-0:1:PENDING m-1:1:PENDING")
	if got := r.done("m-0"); got != "ENTER_MAINTENANCE:SUCCEEDED" {
		t.Errorf("m-0: %s", got)
	}
	r.must(rollout.Resume)
	r.step()
	r.step()
	if got := r.done("m-0"); got != "ENTER_MAINTENANCE:SUCCEEDED REIMAGE:PENDING" {
		t.Errorf("m-0: %s", got)
	}
	r.must(rollout.Cancel)
	r.endAll("SUCCEEDED")
	for range 4 {
		r.step()
		r.settle()
	}
	r.wants("m-0:1:SUCCEEDED m-1:1:CANCELED:ROLLOUT_STOPPED")
	if got := r.done("m-0"); got != "ENTER_MAINTENANCE:SUCCEEDED REIMAGE:SUCCEEDED EXIT_MAINTENANCE:SUCCEEDED" {
		t.Errorf("m-0: %s", got)
	}
	if ro := r.until(rollout.Canceled, false); ro.GetTally().GetSucceeded() != 1 {
		t.Errorf("%v", ro)
	}
}

// TestAProvisioningThatFails ends its machine in maintenance, and one that is refused on the way has failed too.
func TestAProvisioningThatFails(t *testing.T) {
	s := storetest.New(t)
	simulated(t, s, 2)
	r := provision(t, s, &baremetalv1.RolloutSpec{TotalGate: &baremetalv1.RolloutGate{Failures: 3}})
	r.step()
	r.step()
	r.settle()
	if _, err := s.Operations.SetFlag(t.Context(), "m-1", "RMA", true, "admin", "", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	r.step()
	r.wants("m-0:1:RUNNING m-1:1:FAILED:MACHINE_BLOCKED")
	r.endAll("FAILED")
	r.until(rollout.CompletedWithFailures, false)
	r.wants("m-0:1:FAILED:DISK_WRITE_ERROR m-1:1:FAILED:MACHINE_BLOCKED")
	if got := phaseOf(t, s, "m-0"); got != "MAINTENANCE" {
		t.Errorf("a machine that failed is in phase %s", got)
	}
}

// TestARolloutThatAnOlderControllerEnds keeps its failures: a controller of before this state ends every rollout as
// SUCCEEDED, by the statement below.
func TestARolloutThatAnOlderControllerEnds(t *testing.T) {
	s := storetest.New(t)
	simulated(t, s, 2)
	r := provision(t, s, &baremetalv1.RolloutSpec{TotalGate: &baremetalv1.RolloutGate{Failures: 3}})
	r.step()
	r.step()
	r.settle()
	if _, err := s.Operations.SetFlag(t.Context(), "m-1", "RMA", true, "admin", "", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	r.step()
	r.wants("m-0:1:RUNNING m-1:1:FAILED:MACHINE_BLOCKED")
	if _, err := s.DB.Pool().Exec(t.Context(), `UPDATE rollouts SET state = 'SUCCEEDED', finished_at = $2, wake_at = NULL,
		updated_at = $2, version = version + 1 WHERE rollout_id = $1`, r.id, storetest.Now()); err != nil {
		t.Fatal(err)
	}
	r.until(rollout.CompletedWithFailures, false)
}

// TestAMachineIsNotTakenOutOfServiceForNothing: the image is gone when the machine's turn comes. The machine is refused
// before its first operation, and stays in its phase.
func TestAMachineIsNotTakenOutOfServiceForNothing(t *testing.T) {
	s := storetest.New(t)
	simulated(t, s, 1)
	for _, ref := range []string{"ubuntu-2204", "other"} {
		storetest.Exec(t, s, `INSERT INTO images (image_ref, kind, arch, format, sha256_file, sha256_raw, size_bytes,
			file_size_bytes, minimum_disk_bytes, created_at) VALUES ('`+ref+`', 'os', 'amd64', 'raw', 'c`+ref+`', 'dd', 1, 1, 1, now())`)
	}
	before := phaseOf(t, s, "m-0")
	r := provision(t, s, &baremetalv1.RolloutSpec{})
	if _, err := s.Catalog.RemoveImage(t.Context(), "ubuntu-2204", "tester", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	r.step()
	r.step()
	r.settle()
	r.wants("m-0:1:SKIPPED:IMAGE_NOT_FOUND")
	if got := phaseOf(t, s, "m-0"); got != before || r.done("m-0") != "" {
		t.Errorf("the machine went from %s to %s by %q", before, got, r.done("m-0"))
	}
}

// TestAPreviewOfAProvisioning shows all steps, and refuses what a reimage would refuse but for the phase.
func TestAPreviewOfAProvisioning(t *testing.T) {
	s := storetest.New(t)
	simulated(t, s, 3)
	if _, err := s.Operations.SetFlag(t.Context(), "m-1", "RMA", true, "admin", "", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	p := preview(t, s, provisioning(&baremetalv1.RolloutSpec{}))
	var steps []string
	for _, step := range p.GetStepLists()[0].GetSteps() {
		steps = append(steps, step.GetName())
	}
	if got := strings.Join(steps, " "); !p.GetDestructive() || len(p.GetStepLists()) != 1 ||
		got != "set-phase set-netboot repave-os reboot set-phase" {
		t.Errorf("steps %s of %v", got, p)
	}
	if y := p.GetMachines(); len(y) != 3 || y[2].GetReason() != "MACHINE_BLOCKED" {
		t.Errorf("%v", y)
	}
}

// TestASelectionIsFrozen: who joins later is not in it, a repeat finds it, and it expires.
func TestASelectionIsFrozen(t *testing.T) {
	s := storetest.New(t)
	racked(t, s, 3, 1)
	now := storetest.Now()
	all := rolloutstore.SelectionRequest{RequestID: "sel", Filter: "machine_id=*", Walks: rolloutRequest(
		&baremetalv1.RolloutSpec{}).Machines, TTL: time.Hour, Actor: "alice"}
	sel, err := s.Rollouts.CreateSelection(t.Context(), all, now)
	if err != nil || sel.GetCount() != 3 {
		t.Fatalf("%v, %v", sel, err)
	}
	if _, err := s.Machines.Register(t.Context(), &baremetalv1.Machine{MachineId: "m-late"}, "tester", now); err != nil {
		t.Fatal(err)
	}
	again, err := s.Rollouts.CreateSelection(t.Context(), all, now)
	if err != nil || again.GetSelectionId() != sel.GetSelectionId() || again.GetDigest() != sel.GetDigest() {
		t.Errorf("a repeat gives %v, %v", again, err)
	}
	got, err := s.Rollouts.GetSelection(t.Context(), sel.GetSelectionId(), now)
	if err != nil || strings.Join(got.GetMachineIds(), " ") != "m-0 m-1 m-2" {
		t.Errorf("%v, %v", got, err)
	}
	named, err := s.Rollouts.CreateSelection(t.Context(), rolloutstore.SelectionRequest{RequestID: "named", TTL: time.Hour,
		MachineIDs: []string{"m-2", "m-0", "m-1", "m-0"}}, now)
	if err != nil || named.GetDigest() != sel.GetDigest() {
		t.Errorf("the same machines by name: %v, %v", named, err)
	}
	_, err = s.Rollouts.CreateSelection(t.Context(), rolloutstore.SelectionRequest{RequestID: "named", TTL: time.Hour,
		MachineIDs: []string{"m-2"}}, now)
	storetest.WantReason(t, err, "REQUEST_ID_REUSED")
	_, err = s.Rollouts.CreateSelection(t.Context(), rolloutstore.SelectionRequest{RequestID: "other", TTL: time.Hour,
		MachineIDs: []string{"m-2", "m-8"}}, now)
	storetest.WantReason(t, err, "MACHINE_NOT_FOUND")
	r := begin(t, s, provisioning(&baremetalv1.RolloutSpec{SelectionId: sel.GetSelectionId()}))
	r.wants("m-0:1:PENDING m-1:1:PENDING m-2:1:PENDING")
	_, err = s.Rollouts.GetSelection(t.Context(), sel.GetSelectionId(), now.Add(2*time.Hour))
	storetest.WantReason(t, err, "SELECTION_NOT_FOUND")
}

// TestAProvisioningThatTests puts a machine in service once its hardware is tested, and keeps one in maintenance whose
// hardware is not well.
func TestAProvisioningThatTests(t *testing.T) {
	s := storetest.New(t)
	simulated(t, s, 2)
	r := provision(t, s, &baremetalv1.RolloutSpec{Test: &baremetalv1.TestHardware{DurationSeconds: 7}, MaxInFlight: 1,
		TotalGate: &baremetalv1.RolloutGate{Failures: 3}})
	for range 60 {
		if r.get().GetFinishedAt() != nil {
			break
		}
		r.step()
		r.settle()
		for _, op := range r.operations("PENDING") {
			phase := "SUCCEEDED"
			if op.GetType() == baremetalv1.Operation_TEST_HARDWARE && op.GetMachineId() == "m-0" {
				phase = "FAILED"
			}
			r.endAll(phase)
		}
	}
	if got := r.done("m-0"); got != "ENTER_MAINTENANCE:SUCCEEDED REIMAGE:SUCCEEDED TEST_HARDWARE:FAILED" {
		t.Errorf("m-0: %s", got)
	}
	if got := r.done("m-1"); got !=
		"ENTER_MAINTENANCE:SUCCEEDED REIMAGE:SUCCEEDED TEST_HARDWARE:SUCCEEDED EXIT_MAINTENANCE:SUCCEEDED" {
		t.Errorf("m-1: %s", got)
	}
	if a, b := phaseOf(t, s, "m-0"), phaseOf(t, s, "m-1"); a != "MAINTENANCE" || b != "READY" {
		t.Errorf("phases %s, %s", a, b)
	}
	for _, op := range r.operations("") {
		if op.GetType() == baremetalv1.Operation_TEST_HARDWARE && (op.GetParams()["image_ref"] != "" ||
			op.GetParams()["duration_seconds"] != "7") {
			t.Errorf("a test has the parameters %v", op.GetParams())
		}
	}
}

package delivery_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/rollout"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	rolloutstore "github.com/ingot-metal/ingot/controller/store/rollout"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// rollOut begins work on one machine. Without an agent there a reboot ends only when somebody ends it.
func (r *rig) rollOut(work fleet.OperationType, machine string, spec *pb.RolloutSpec) *pb.Rollout {
	r.t.Helper()
	if spec.TotalGate == nil {
		spec.TotalGate = &pb.RolloutGate{Failures: 1}
	}
	req := rolloutstore.RolloutRequest{
		RequestID: "roll-" + machine, Spec: spec, Machines: []machinestore.MachineFilter{{MachineID: machine}},
		Work: operationstore.StartRequest{Type: work}, Actor: "alice",
	}
	p, err := r.store.Rollouts.PreviewRollout(r.t.Context(), req, time.Now())
	if err != nil {
		r.t.Fatal(err)
	}
	req.Digest = p.GetDigest()
	out, _, err := r.store.Rollouts.CreateRollout(r.t.Context(), req, time.Now())
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *rig) act(ro *pb.Rollout, a rollout.Action) {
	r.t.Helper()
	_, err := r.e.Requests.ActOnRollout(r.t.Context(), rolloutstore.RolloutAct{RolloutID: ro.GetRolloutId(), Action: a,
		Digest: ro.GetDigest(), CancelOperations: true, Actor: "bob"})
	if err != nil {
		r.t.Fatal(err)
	}
}

// under waits for the operation of a rollout's only machine.
func (r *rig) under(ro *pb.Rollout) (operationID string) {
	r.t.Helper()
	testkit.Eventually(r.t, patience, func() bool {
		all, _, err := r.store.Rollouts.ListRolloutMachines(r.t.Context(),
			rolloutstore.RolloutMachineFilter{RolloutID: ro.GetRolloutId(), Wave: -1, Limit: 1})
		if err != nil || len(all) != 1 || all[0].GetOperationId() == "" {
			return false
		}
		op, err := r.store.OperationQueries.GetOperation(r.t.Context(), all[0].GetOperationId())
		operationID = op.GetOperationId()
		return err == nil && op.GetStartedAt() != nil
	}, "the rollout does not begin")
	return operationID
}

func (r *rig) until(ro *pb.Rollout, state pb.Rollout_State) {
	r.t.Helper()
	testkit.Eventually(r.t, patience, func() bool {
		now, err := r.store.Rollouts.GetRollout(r.t.Context(), ro.GetRolloutId())
		return err == nil && now.GetState() == state
	}, "the rollout is not %s", state)
}

// rollouts lives through all that is told of them: one that succeeds, one that a person steers, and one that fails.
func (r *rig) rollouts() {
	r.t.Helper()
	for _, id := range []string{"m-r1", "m-r2", "m-r3", "m-r4"} {
		r.register(id, map[string]string{"of": id})
	}
	r.until(r.rollOut(fleet.EnterMaintenance, "m-r1", &pb.RolloutSpec{}), pb.Rollout_SUCCEEDED)
	r.over(r.maintain("m-r2"))
	steered := r.rollOut(fleet.Reboot, "m-r2", &pb.RolloutSpec{RequireApproval: true})
	r.act(steered, rollout.Approve)
	r.under(steered)
	r.act(steered, rollout.Pause)
	r.act(steered, rollout.Resume)
	r.act(steered, rollout.Cancel)
	r.until(steered, pb.Rollout_CANCELED)
	r.over(r.maintain("m-r3"))
	failing := r.rollOut(fleet.Reboot, "m-r3", &pb.RolloutSpec{})
	if _, err := r.store.Operations.Decide(r.t.Context(), r.under(failing), operation.Evaluate{},
		time.Now().Add(24*time.Hour)); err != nil {
		r.t.Fatal(err)
	}
	r.until(failing, pb.Rollout_FAILED)
	r.over(r.maintain("m-r4"))
	tolerant := r.rollOut(fleet.Reboot, "m-r4", &pb.RolloutSpec{TotalGate: &pb.RolloutGate{Failures: 9}})
	if _, err := r.store.Operations.Decide(r.t.Context(), r.under(tolerant), operation.Evaluate{},
		time.Now().Add(24*time.Hour)); err != nil {
		r.t.Fatal(err)
	}
	r.until(tolerant, pb.Rollout_COMPLETED_WITH_FAILURES)
}

// What is told of rollouts is what has happened to each, once, and only to those whose filter one of its machines fits.
func TestRolloutsAreTold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	all, some, none := newReceiver(t, nil), newReceiver(t, nil), newReceiver(t, nil)
	r.subscribe(all.URL, "rollout.*")
	r.subscribeFiltered(some.URL, "labels.of=m-r3", "rollout.*")
	r.subscribeFiltered(none.URL, "labels.of=nothing", "rollout.*")
	r.run()
	r.rollouts()
	failing := []string{"created", "started", "gate_closed", "wave_ended", "failed"}
	want := slices.Concat([]string{"created", "started", "wave_ended", "succeeded"},
		[]string{"created", "started", "paused", "resumed", "canceled"}, failing,
		[]string{"created", "started", "wave_ended", "completed_with_failures"})
	for rec, kinds := range map[*receiver][]string{all: want, some: failing} {
		testkit.Eventually(t, patience, func() bool { return len(rec.got()) >= len(kinds) }, "%d events have come",
			len(rec.got()))
		counts := map[string]int{}
		for _, kind := range kinds {
			counts["rollout."+kind]++
		}
		have := rec.kinds(t)
		for kind, n := range counts {
			if have[kind] != n {
				t.Errorf("%s has come %d times, not %d", kind, have[kind], n)
			}
		}
	}
	if n := len(none.got()); n > 0 {
		t.Errorf("%d events of rollouts of other machines", n)
	}
	for _, p := range some.got() {
		var e struct {
			Data struct {
				Spec  json.RawMessage `json:"spec"`
				State string          `json:"state"`
			} `json:"data"`
		}
		if err := json.Unmarshal(p.body, &e); err != nil || len(e.Data.Spec) == 0 || e.Data.State == "" {
			t.Errorf("the data is no rollout: %s, %v", p.body, err)
		}
	}
}

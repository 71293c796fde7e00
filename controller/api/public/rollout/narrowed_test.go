package rollout_test

import (
	"context"
	"fmt"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failure"
)

// TestANarrowedCallerWorksOnWhatItsSelectionHolds, on several machines at a time, and meets nothing of the others.
func TestANarrowedCallerWorksOnWhatItsSelectionHolds(t *testing.T) {
	r := publictest.NewRig(t)
	for i := range 4 {
		m := publictest.NewMachine(i)
		m.Labels = map[string]string{"team": []string{"web", "db"}[i%2]}
		r.Register(m)
	}
	web := as(publictest.Within(t.Context(), "labels.team=web"), "web")
	db := as(publictest.Within(t.Context(), "labels.team=db"), "db")
	outside := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: nothing is refused", what)
			return
		}
		publictest.Wants(t, err, failure.KindDenied, "OUTSIDE_SELECTION", "")
	}
	selected := func(ctx context.Context, q *pb.CreateSelectionRequest) (*pb.Selection, error) {
		return r.Rollouts.CreateSelection(ctx, q)
	}
	all, err := selected(t.Context(), &pb.CreateSelectionRequest{RequestId: "fleet", Filter: "machine_id=*"})
	if err != nil || all.GetCount() != 4 {
		t.Fatal(all, err)
	}
	mine, err := selected(web, &pb.CreateSelectionRequest{RequestId: "mine", Filter: "machine_id=*"})
	if err != nil || mine.GetCount() != 2 {
		t.Fatal(mine, err)
	}
	kept, err := r.Rollouts.GetSelection(web, &pb.GetSelectionRequest{SelectionId: mine.GetSelectionId()})
	if err != nil || fmt.Sprint(kept.GetMachineIds()) != "[m-000 m-002]" {
		t.Errorf("%v, %v", kept, err)
	}
	_, err = selected(web, &pb.CreateSelectionRequest{RequestId: "x", MachineIds: []string{"m-000", "m-001"}})
	outside("a machine outside", err)
	_, err = selected(web, &pb.CreateSelectionRequest{RequestId: "y", MachineIds: []string{"m-000", "no-such"}})
	outside("a machine that there is not", err)
	_, err = selected(web, &pb.CreateSelectionRequest{RequestId: "fleet", Filter: "machine_id=*"})
	outside("the request of another", err)
	for _, id := range []string{all.GetSelectionId(), "sel-none"} {
		_, err = r.Rollouts.GetSelection(web, &pb.GetSelectionRequest{SelectionId: id})
		outside("a selection of another", err)
		_, err = r.Rollouts.PreviewRollout(web, &pb.PreviewRolloutRequest{Spec: &pb.RolloutSpec{SelectionId: id,
			Type: "ENTER_MAINTENANCE"}})
		outside("a preview of it", err)
	}

	rebooting := &pb.RolloutSpec{SelectionId: mine.GetSelectionId(), Type: "ENTER_MAINTENANCE", Title: "by selection"}
	of, err := r.Rollouts.PreviewRollout(web, &pb.PreviewRolloutRequest{Spec: rebooting})
	if err != nil {
		t.Fatal(err)
	}
	again := func(ctx context.Context) (*pb.Rollout, error) {
		return r.Rollouts.CreateRollout(ctx,
			&pb.CreateRolloutRequest{RequestId: "kept", Spec: rebooting, Digest: of.GetDigest()})
	}
	first, err := again(web)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Exec(t, r.Store, "DELETE FROM selections") // it has expired
	if second, err := again(web); err != nil || second.GetRolloutId() != first.GetRolloutId() {
		t.Errorf("a repeat after the selection: %v, %v", second, err)
	}
	_, err = again(db)
	outside("the repeat of another", err)
	if _, err := r.Rollouts.CancelRollout(web, &pb.CancelRolloutRequest{RolloutId: first.GetRolloutId()}); err != nil {
		t.Fatal(err)
	}

	spec := &pb.RolloutSpec{Filter: "machine_id=*", Type: "ENTER_MAINTENANCE"}
	p, err := r.Rollouts.PreviewRollout(web, &pb.PreviewRolloutRequest{Spec: spec})
	if err != nil || len(p.GetMachines()) != 2 {
		t.Fatal(p, err)
	}
	ro, err := r.Rollouts.CreateRollout(
		web,
		&pb.CreateRolloutRequest{RequestId: "work", Spec: spec, Digest: p.GetDigest()},
	)
	if err != nil || ro.GetTally().GetMachines() != 2 {
		t.Fatal(ro, err)
	}
	id := ro.GetRolloutId()
	calls := func(ctx context.Context, id string) map[string]error {
		got := map[string]error{}
		_, got["get"] = r.Rollouts.GetRollout(ctx, &pb.GetRolloutRequest{RolloutId: id})
		_, got["machines"] = r.Rollouts.ListRolloutMachines(ctx, &pb.ListRolloutMachinesRequest{RolloutId: id})
		_, got["pause"] = r.Rollouts.PauseRollout(ctx, &pb.PauseRolloutRequest{RolloutId: id})
		_, got["resume"] = r.Rollouts.ResumeRollout(ctx, &pb.ResumeRolloutRequest{RolloutId: id})
		_, got["cancel"] = r.Rollouts.CancelRollout(ctx, &pb.CancelRolloutRequest{RolloutId: id})
		w, err := r.Rollouts.WatchRollout(ctx, &pb.WatchRolloutRequest{RolloutId: id})
		if err == nil {
			_, err = w.Recv()
		}
		got["watch"] = err
		return got
	}
	for what, err := range calls(db, id) {
		outside("the rollout of another: "+what, err)
	}
	for what, err := range calls(web, "ro-none") {
		outside("a rollout that there is not: "+what, err)
	}
	_, err = r.Rollouts.CreateRollout(db, &pb.CreateRolloutRequest{RequestId: "work", Spec: spec, Digest: p.GetDigest()})
	outside("the request of another", err)
	// A token has its maker's identity, and sees no more of the maker's rollouts than its selection holds.
	whole, err := r.Rollouts.PreviewRollout(as(t.Context(), "db"), &pb.PreviewRolloutRequest{Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	makers, err := r.Rollouts.CreateRollout(as(t.Context(), "db"), &pb.CreateRolloutRequest{RequestId: "all", Spec: spec,
		Digest: whole.GetDigest()})
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range calls(db, makers.GetRolloutId()) {
		outside("the rollout of its maker: "+what, err)
	}
	for ctx, want := range map[context.Context]int{web: 2, db: 0, t.Context(): 3} {
		got, err := r.Rollouts.ListRollouts(ctx, &pb.ListRolloutsRequest{})
		if err != nil || len(got.GetRollouts()) != want {
			t.Errorf("%v, %v, want %d", got, err, want)
		}
	}
	for what, err := range calls(web, id) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

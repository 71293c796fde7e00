package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
)

// as is a call by another person.
func as(ctx context.Context, name string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "test-caller", name)
}

func entering(change func(*pb.RolloutSpec)) *pb.RolloutSpec {
	s := &pb.RolloutSpec{Filter: "site=default", Type: "ENTER_MAINTENANCE"}
	if change != nil {
		change(s)
	}
	return s
}

func preview(r *publictest.Rig, spec *pb.RolloutSpec) *pb.RolloutPreview {
	r.T.Helper()
	p, err := r.Rollouts.PreviewRollout(r.T.Context(), &pb.PreviewRolloutRequest{Spec: spec})
	if err != nil {
		r.T.Fatalf("preview: %v", err)
	}
	return p
}

func create(r *publictest.Rig, id string, spec *pb.RolloutSpec) *pb.Rollout {
	r.T.Helper()
	ro, err := r.Rollouts.CreateRollout(r.T.Context(),
		&pb.CreateRolloutRequest{RequestId: id, Spec: spec, Digest: preview(r, spec).GetDigest()})
	if err != nil {
		r.T.Fatalf("create: %v", err)
	}
	return ro
}

// turn does what an engine does with a rollout, so many minutes from now: it is due then.
func turn(r *publictest.Rig, id string, minutes int) error {
	m, err := r.Store.Rollouts.AdvanceRollout(r.T.Context(), id, time.Now().Add(time.Duration(minutes)*time.Minute))
	if err != nil || m == nil {
		return err
	}
	for _, machine := range m.Starting {
		op, err := r.Store.Rollouts.StartRolloutMachine(r.T.Context(), id, machine, time.Now())
		if err != nil || op == nil {
			return err
		}
		if err := r.Engine.Look(r.T.Context(), op.GetOperationId()); err != nil {
			return err
		}
	}
	return nil
}

func TestPreviewOfARollout(t *testing.T) {
	r := publictest.NewRig(t)
	for i := range 4 {
		m := publictest.NewMachine(i)
		if rack := fmt.Sprint("r", i%2); i == 1 {
			m.Spec.Rack = rack // the domain label:rack reads both
		} else {
			m.Labels = map[string]string{"rack": rack}
		}
		r.Register(m)
	}
	r.Maintenance("m-000")
	r.Maintenance("m-001")
	if _, err := r.Budgets.SetBudget(t.Context(),
		&pb.SetBudgetRequest{Budget: &pb.Budget{Name: "all", Domain: "fleet", AtOnce: 1}}); err != nil {
		t.Fatal(err)
	}
	p := preview(r, &pb.RolloutSpec{Filter: "site=default", Type: "REPAVE",
		Params: map[string]string{"image_ref": "ubuntu-2204"}, Canary: 1, Domain: "label:rack", MaxPerDomain: 2})
	if !p.GetDestructive() || len(p.GetDigest()) != 64 || len(p.GetWaves()) != 2 {
		t.Fatalf("%v", p)
	}
	said := ""
	for _, m := range p.GetMachines() {
		said += fmt.Sprintf("%s %d %s %s; ", m.GetMachineId(), m.GetWave(), m.GetDomain(), m.GetReason())
	}
	if want := "m-000 1 r0 ; m-001 2 r1 ; m-002 0 r0 WRONG_PHASE; m-003 0 r1 WRONG_PHASE; "; said != want {
		t.Errorf("got  %s\nwant %s", said, want)
	}
	steps := p.GetStepLists()[0]
	if len(p.GetStepLists()) != 1 || steps.GetMachines() != 2 ||
		strings.Join(steps.GetDestructiveSteps(), " ") != "repave-os" {
		t.Errorf("%v", p.GetStepLists())
	}
	for _, step := range steps.GetSteps() {
		if image := step.GetRepave(); image != nil && image.GetImage() != "ubuntu-2204" {
			t.Errorf("%v", step)
		}
	}
	if s := p.GetSpec(); s.GetOnGate() != "pause" || s.GetTotalGate().GetFailures() != 1 {
		t.Errorf("defaults: %v", s)
	}
	all := preview(r, &pb.RolloutSpec{Filter: "phase=MAINTENANCE", Type: "REPAVE",
		Params: map[string]string{"image_ref": "ubuntu-2204"}})
	if b := all.GetBudgets(); len(b) != 1 || b[0].GetName() != "all" || b[0].GetLimit() != 1 || b[0].GetWanted() != 2 {
		t.Errorf("budgets: %v", b)
	}
	ops, err := r.Operations.ListOperations(t.Context(), &pb.ListOperationsRequest{Filter: "type=REIMAGE"})
	if err != nil || len(ops.GetOperations()) > 0 {
		t.Errorf("a preview has begun %v, %v", ops, err)
	}
}

func TestRolloutRequestsThatAreRefused(t *testing.T) {
	r := publictest.NewRig(t)
	r.Register(publictest.NewMachine(1))
	for name, c := range map[string]struct {
		change        func(*pb.RolloutSpec)
		reason, field string
	}{
		"no filter":            {func(s *pb.RolloutSpec) { s.Filter = "" }, "INVALID_FIELD", "spec.filter"},
		"machines by two ways": {func(s *pb.RolloutSpec) { s.SelectionId = "sel-1" }, "INVALID_FIELD", "spec.selection_id"},
		"an action and a type": {func(s *pb.RolloutSpec) { s.Action = pb.RolloutSpec_PROVISION }, "INVALID_FIELD",
			"spec.type"},
		"tests without an installation": {func(s *pb.RolloutSpec) { s.Test = &pb.TestHardware{} }, "INVALID_FIELD",
			"spec.test"},
		"an unknown action":           {func(s *pb.RolloutSpec) { s.Action = 9 }, "INVALID_FIELD", "spec.action"},
		"a filter that means nothing": {func(s *pb.RolloutSpec) { s.Filter = "colour=red" }, "INVALID_FILTER", ""},
		"no work":                     {func(s *pb.RolloutSpec) { s.Type = "" }, "UNKNOWN_RUN_TYPE", "spec.type"},
		"a workflow":                  {func(s *pb.RolloutSpec) { s.Type = "ONBOARD" }, "INVALID_FIELD", "spec.type"},
		"a parameter of other work": {func(s *pb.RolloutSpec) { s.Params = map[string]string{"image_ref": "x"} },
			"INVALID_FIELD", "spec.params[image_ref]"},
		"a negative canary": {func(s *pb.RolloutSpec) { s.Canary = -1 }, "INVALID_FIELD", "spec.canary"},
		"waves that shrink": {func(s *pb.RolloutSpec) { s.Percents = []int32{50, 10} }, "INVALID_FIELD",
			"spec.percents"},
		"more than all": {func(s *pb.RolloutSpec) { s.Percents = []int32{101} }, "INVALID_FIELD",
			"spec.percents"},
		"negative in flight":        {func(s *pb.RolloutSpec) { s.MaxInFlight = -1 }, "INVALID_FIELD", "spec.max_in_flight"},
		"an unknown domain":         {func(s *pb.RolloutSpec) { s.Domain = "planet" }, "INVALID_FIELD", "spec.domain"},
		"a label without a key":     {func(s *pb.RolloutSpec) { s.Domain = "label:" }, "INVALID_FIELD", "spec.domain"},
		"a number without a domain": {func(s *pb.RolloutSpec) { s.MaxPerDomain = 1 }, "INVALID_FIELD", "spec.max_per_domain"},
		"a gate above all": {func(s *pb.RolloutSpec) { s.WaveGate = &pb.RolloutGate{Percent: 101} }, "INVALID_FIELD",
			"spec.wave_gate.percent"},
		"a negative gate": {func(s *pb.RolloutSpec) { s.TotalGate = &pb.RolloutGate{Failures: -1} }, "INVALID_FIELD",
			"spec.total_gate.failures"},
		"a rest of weeks": {func(s *pb.RolloutSpec) { s.SoakSeconds = 1 << 30 }, "INVALID_FIELD",
			"spec.soak_seconds"},
		"a gate that does nothing": {func(s *pb.RolloutSpec) { s.OnGate = "ignore" }, "INVALID_FIELD", "spec.on_gate"},
		"a long title": {func(s *pb.RolloutSpec) { s.Title = strings.Repeat("x", 300) }, "INVALID_FIELD",
			"spec.title"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.Rollouts.PreviewRollout(t.Context(), &pb.PreviewRolloutRequest{Spec: entering(c.change)})
			publictest.Wants(t, err, failure.KindInvalid, c.reason, c.field)
		})
	}
	_, err := r.Rollouts.PreviewRollout(t.Context(),
		&pb.PreviewRolloutRequest{Spec: entering(func(s *pb.RolloutSpec) { s.Type, s.PlanId = "", "none" })})
	publictest.Wants(t, err, failure.KindNotFound, "PLAN_NOT_FOUND", "")
	_, err = r.Rollouts.CreateRollout(t.Context(), &pb.CreateRolloutRequest{RequestId: "r", Spec: entering(nil)})
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_FIELD", "digest")
	_, err = r.Rollouts.CreateRollout(t.Context(), &pb.CreateRolloutRequest{Spec: entering(nil),
		Digest: strings.Repeat("0", 64)})
	publictest.Wants(t, err, failure.KindInvalid, "REQUEST_ID_REQUIRED", "request_id")
	_, err = r.Rollouts.CreateRollout(t.Context(), &pb.CreateRolloutRequest{RequestId: "r", Spec: entering(nil),
		Digest: strings.Repeat("0", 64)})
	publictest.Wants(t, err, failure.KindPrecondition, "ROLLOUT_CHANGED", "digest")
	if now := failure.From(err).Metadata["digest"]; now != preview(r, entering(nil)).GetDigest() {
		t.Errorf("the refusal names digest %s", now)
	}
	_, err = r.Rollouts.GetRollout(t.Context(), &pb.GetRolloutRequest{RolloutId: "ro-none"})
	publictest.Wants(t, err, failure.KindNotFound, "ROLLOUT_NOT_FOUND", "rollout_id")
	_, err = r.Rollouts.PauseRollout(t.Context(), &pb.PauseRolloutRequest{RolloutId: "ro-none"})
	publictest.Wants(t, err, failure.KindNotFound, "ROLLOUT_NOT_FOUND", "rollout_id")
}

// TestARolloutFromBeginningToEnd, with its lists page by page and a watch that sees it all.
func TestARolloutFromBeginningToEnd(t *testing.T) {
	r := publictest.NewRig(t)
	for i := range 3 {
		r.Register(publictest.NewMachine(i))
	}
	ro := create(r, "first", entering(func(s *pb.RolloutSpec) { s.Canary, s.Title = 1, "all of it" }))
	if ro.GetState() != pb.Rollout_RUNNING || ro.GetCreatedBy() != "tester" || ro.GetTally().GetPending() != 3 ||
		len(ro.GetWaves()) != 2 {
		t.Fatalf("%v", ro)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := r.Rollouts.WatchRollout(ctx, &pb.WatchRolloutRequest{RolloutId: ro.GetRolloutId()})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := stream.Recv(); err != nil || first.GetRolloutId() != ro.GetRolloutId() {
		t.Fatalf("%v, %v", first, err)
	}
	g, _ := task.New(t.Context())
	g.Go("engine", func(context.Context) error {
		for minutes := range 20 {
			if err := turn(r, ro.GetRolloutId(), minutes); err != nil {
				return err
			}
			r.Engine.Publish()
		}
		return nil
	})
	var last *pb.Rollout
	for {
		next, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if next.GetVersion() <= last.GetVersion() {
			t.Errorf("version %d after %d", next.GetVersion(), last.GetVersion())
		}
		last = next
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if last.GetState() != pb.Rollout_SUCCEEDED || last.GetTally().GetSucceeded() != 3 {
		t.Errorf("%v", last)
	}
	create(r, "second", entering(nil))
	lists(r, ro.GetRolloutId())
}

func lists(r *publictest.Rig, first string) {
	t := r.T
	t.Helper()
	seen, token := 0, ""
	for {
		page, err := r.Rollouts.ListRollouts(t.Context(), &pb.ListRolloutsRequest{PageSize: 1, PageToken: token})
		if err != nil || len(page.GetRollouts()) != 1 {
			t.Fatalf("%v, %v", page, err)
		}
		seen++
		if token = page.GetNextPageToken(); token == "" {
			if id := page.GetRollouts()[0].GetRolloutId(); id != first {
				t.Errorf("the oldest is %s, want %s", id, first)
			}
			break
		}
	}
	done, err := r.Rollouts.ListRollouts(t.Context(), &pb.ListRolloutsRequest{Filter: "state=SUCCEEDED"})
	if err != nil || seen != 2 || len(done.GetRollouts()) != 1 {
		t.Errorf("%d rollouts, of which %v; %v", seen, done, err)
	}
	names := ""
	token = ""
	for {
		page, err := r.Rollouts.ListRolloutMachines(t.Context(),
			&pb.ListRolloutMachinesRequest{RolloutId: first, PageSize: 1, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.GetMachines() {
			names += m.GetMachineId() + " "
			if m.GetState() != pb.RolloutMachine_SUCCEEDED || m.GetOperationId() == "" || m.GetFinishedAt() == nil {
				t.Errorf("%v", m)
			}
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if names != "m-000 m-001 m-002 " {
		t.Errorf("machines: %s", names)
	}
	wave, err := r.Rollouts.ListRolloutMachines(t.Context(),
		&pb.ListRolloutMachinesRequest{RolloutId: first, Filter: "wave=2,state=SUCCEEDED"})
	if err != nil || len(wave.GetMachines()) != 2 {
		t.Errorf("%v, %v", wave, err)
	}
	_, err = r.Rollouts.ListRolloutMachines(t.Context(),
		&pb.ListRolloutMachinesRequest{RolloutId: first, Filter: "wave=x"})
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_FILTER", "filter")
	_, err = r.Rollouts.ListRolloutMachines(t.Context(), &pb.ListRolloutMachinesRequest{RolloutId: "ro-none"})
	publictest.Wants(t, err, failure.KindNotFound, "ROLLOUT_NOT_FOUND", "rollout_id")
}

func TestSteeringARollout(t *testing.T) {
	r := publictest.NewRig(t)
	r.Register(publictest.NewMachine(1))
	ro := create(r, "it", entering(func(s *pb.RolloutSpec) { s.RequireApproval = true }))
	id := ro.GetRolloutId()
	approve := func(who string) error {
		_, err := r.Rollouts.ApproveRollout(as(t.Context(), who),
			&pb.ApproveRolloutRequest{RolloutId: id, Digest: ro.GetDigest()})
		return err
	}
	publictest.Wants(t, approve("tester"), failure.KindDenied, "ROLLOUT_SELF_APPROVAL", "")
	_, err := r.Rollouts.ResumeRollout(t.Context(), &pb.ResumeRolloutRequest{RolloutId: id})
	publictest.Wants(t, err, failure.KindPrecondition, "ROLLOUT_NOT_APPROVED", "")
	if err := approve("second"); err != nil {
		t.Fatal(err)
	}
	paused, err := r.Rollouts.PauseRollout(t.Context(), &pb.PauseRolloutRequest{RolloutId: id, Comment: "wait"})
	if err != nil || paused.GetState() != pb.Rollout_PAUSED || paused.GetApprovedBy() != "second" {
		t.Fatalf("%v, %v", paused, err)
	}
	if resumed, err := r.Rollouts.ResumeRollout(t.Context(), &pb.ResumeRolloutRequest{RolloutId: id}); err != nil ||
		resumed.GetState() != pb.Rollout_RUNNING {
		t.Fatalf("%v, %v", resumed, err)
	}
	for range 2 {
		gone, err := r.Rollouts.CancelRollout(t.Context(), &pb.CancelRolloutRequest{RolloutId: id})
		if err != nil || gone.GetState() != pb.Rollout_STOPPING {
			t.Fatalf("%v, %v", gone, err)
		}
	}
	// Its machine was claimed when it was resumed, and is let go.
	for minutes := range 3 {
		if err := turn(r, id, minutes+1); err != nil {
			t.Fatal(err)
		}
	}
	gone, err := r.Rollouts.CancelRollout(t.Context(), &pb.CancelRolloutRequest{RolloutId: id})
	if err != nil || gone.GetState() != pb.Rollout_CANCELED || gone.GetTally().GetCanceled() != 1 {
		t.Fatalf("%v, %v", gone, err)
	}
	_, err = r.Rollouts.ResumeRollout(t.Context(), &pb.ResumeRolloutRequest{RolloutId: id})
	publictest.Wants(t, err, failure.KindPrecondition, "ROLLOUT_ENDED", "")
	log, err := r.Admin.ListAuditLog(t.Context(), &pb.ListAuditLogRequest{TargetId: id})
	if err != nil {
		t.Fatal(err)
	}
	verbs := ""
	for _, e := range log.GetEntries() {
		verbs = e.GetVerb() + "/" + e.GetActor() + " " + verbs
	}
	for _, want := range []string{"CREATE_ROLLOUT/tester", "APPROVE_ROLLOUT/second", "PAUSE_ROLLOUT/tester",
		"RESUME_ROLLOUT/tester", "CANCEL_ROLLOUT/tester", "ROLLOUT_CANCELED/system"} {
		if strings.Count(verbs, want) != 1 {
			t.Errorf("%s is not once in %s", want, verbs)
		}
	}
}

// TestSelections: a rollout over a selection has its machines, whatever is registered since.
func TestSelections(t *testing.T) {
	r := publictest.NewRig(t)
	for i := range 3 {
		r.Register(publictest.NewMachine(i))
	}
	ctx := t.Context()
	sel, err := r.Rollouts.CreateSelection(ctx, &pb.CreateSelectionRequest{RequestId: "s-1", Filter: "state=NEW",
		Ttl: durationpb.New(time.Minute)})
	if err != nil || sel.GetCount() != 3 || sel.GetExpiresAt().AsTime().Sub(sel.GetCreatedAt().AsTime()) != time.Minute {
		t.Fatalf("%v, %v", sel, err)
	}
	r.Register(publictest.NewMachine(9))
	spec := &pb.RolloutSpec{SelectionId: sel.GetSelectionId(), Action: pb.RolloutSpec_PROVISION,
		Params: map[string]string{"image_ref": "ubuntu-2204"}}
	if p := preview(r, spec); len(p.GetMachines()) != 3 || !p.GetDestructive() {
		t.Errorf("%v", p)
	}
	ro := create(r, "it", spec)
	if ro.GetTally().GetMachines() != 3 || ro.GetSpec().GetSelectionId() != sel.GetSelectionId() {
		t.Errorf("%v", ro)
	}
	got, err := r.Rollouts.GetSelection(ctx, &pb.GetSelectionRequest{SelectionId: sel.GetSelectionId()})
	if err != nil || len(got.GetMachineIds()) != 3 {
		t.Errorf("%v, %v", got, err)
	}
	_, err = r.Rollouts.PreviewRollout(ctx, &pb.PreviewRolloutRequest{Spec: &pb.RolloutSpec{SelectionId: "sel-1",
		Type: "REBOOT"}})
	publictest.Wants(t, err, failure.KindNotFound, "SELECTION_NOT_FOUND", "spec.selection_id")
	for what, bad := range map[string]*pb.CreateSelectionRequest{
		"filter":      {RequestId: "s-2"},
		"machine_ids": {RequestId: "s-2", Filter: "state=NEW", MachineIds: []string{"m-000"}},
		"ttl":         {RequestId: "s-2", Filter: "state=NEW", Ttl: durationpb.New(8 * 24 * time.Hour)},
		"request_id":  {Filter: "state=NEW"},
	} {
		_, err := r.Rollouts.CreateSelection(ctx, bad)
		f := failure.From(err)
		if f.Kind != failure.KindInvalid || len(f.Fields) != 1 || f.Fields[0].Path != what {
			t.Errorf("%s: %v", what, err)
		}
	}
}

package rollout

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/rollout"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	rolloutstore "github.com/ingot-metal/ingot/controller/store/rollout"
	"github.com/ingot-metal/ingot/controller/validate"
)

var (
	rolloutKeys = validate.Keys{
		"state":      validate.Among(query.EnumNames(baremetalv1.Rollout_State_value, "")),
		"request_id": validate.Any,
	}
	rolloutMachineKeys = validate.Keys{
		"state": validate.Among(query.EnumNames(baremetalv1.RolloutMachine_State_value, "")),
		"wave":  waveNumber,
	}
)

func waveNumber(value string) (string, bool) {
	n, err := strconv.ParseInt(value, 10, 32)
	return value, err == nil && n >= 0
}

// rolloutRequest checks everything that can be checked without looking at machines.
func (s *Server) rolloutRequest(
	ctx context.Context, spec *baremetalv1.RolloutSpec, requestID string, keepSeed bool,
) (rolloutstore.RolloutRequest, error) {
	var r rolloutstore.RolloutRequest
	var err error
	if r.Spec, err = validate.Rollout(spec); err != nil {
		return r, err
	}
	if err := kind.ValidateTest(r.Spec.GetTest(), func(field string) string { return "spec.test." + field }); err != nil {
		return r, err
	}
	terms, err := query.Machines.Parse(r.Spec.GetFilter())
	if err != nil {
		return r, err
	}
	r.Actor = service.Actor(ctx)
	r.By, _ = call.Caller(ctx)
	if r.Machines, err = service.Walks(call.Working(ctx), terms); err != nil {
		return r, err
	}
	if used, err := s.hasUsed(ctx, r.Spec.GetSelectionId(), requestID); err != nil {
		return r, err
	} else if !used {
		if err := s.mayUseSelection(call.Working(ctx), r.Spec.GetSelectionId()); err != nil {
			return r, err
		}
	}
	if err := validate.PhonesHome("spec.seed", r.Spec.GetSeed(), r.Spec.GetParams()); err != nil {
		return r, err
	}
	// The seed itself is in no row of the rollout, nor in its digest: its name is.
	if r.Spec.SeedId, err = s.KeepSeed(ctx, "spec.seed", r.Spec.GetSeed(), !keepSeed); err != nil {
		return r, err
	}
	r.Spec.Seed = nil
	r.Work, err = rolloutWork(r.Spec)
	return r, err
}

// rolloutWork returns the work on each machine, without the machine.
func rolloutWork(spec *baremetalv1.RolloutSpec) (operationstore.StartRequest, error) {
	if w, ok, err := rolloutstore.WorkflowOf(spec); ok {
		return w.Request(), err
	}
	t, err := service.RunType(spec.GetType(), spec.GetPlanId())
	if spec.GetAction() == baremetalv1.RolloutSpec_PROVISION {
		t, err = fleet.Reimage, nil
	}
	if err != nil {
		return operationstore.StartRequest{}, err
	}
	if t == fleet.Onboard || t == fleet.Decommission {
		return operationstore.StartRequest{}, validate.Fault("spec.type", "set spec.action to %s instead", t)
	}
	r, err := service.Work{
		MachineID: "each", RequestID: "each", Kind: t, PlanID: spec.GetPlanId(), Params: spec.GetParams(),
		Path: func(param string) string { return "spec.params[" + param + "]" }, Seed: spec.GetSeedId(),
	}.Request()
	r.MachineID, r.RequestID = "", ""
	return r, err
}

// PreviewRollout implements RolloutService.
func (s *Server) PreviewRollout(
	ctx context.Context, r *baremetalv1.PreviewRolloutRequest,
) (*baremetalv1.RolloutPreview, error) {
	req, err := s.rolloutRequest(ctx, r.GetSpec(), "", false)
	if err != nil {
		return nil, err
	}
	return s.stores.Rollouts.PreviewRollout(ctx, req, s.Clock.Now())
}

// CreateRollout implements RolloutService.
func (s *Server) CreateRollout(ctx context.Context, r *baremetalv1.CreateRolloutRequest) (*baremetalv1.Rollout, error) {
	err := service.FirstError(validate.RequestID(r.GetRequestId()), validate.Comment("comment", r.GetComment()),
		digestOf(r.GetDigest(), r.GetValidateOnly()))
	if err != nil {
		return nil, err
	}
	req, err := s.rolloutRequest(ctx, r.GetSpec(), r.GetRequestId(), !r.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	req.RequestID, req.Digest, req.Comment = r.GetRequestId(), r.GetDigest(), r.GetComment()
	if r.GetValidateOnly() {
		return s.ofCaller(ctx)(s.stores.Rollouts.ValidateRollout(ctx, req, s.Clock.Now()))
	}
	return s.ofCaller(ctx)(s.Engine.CreateRollout(ctx, req))
}

// digestOf checks a preview's digest. A call that only validates may leave it out.
func digestOf(digest string, optional bool) error {
	if len(digest) != 64 && (digest != "" || !optional) {
		return validate.Fault("digest", "required: that of the preview, 64 hexadecimal digits")
	}
	return nil
}

// ApproveRollout implements RolloutService.
func (s *Server) ApproveRollout(
	ctx context.Context, r *baremetalv1.ApproveRolloutRequest,
) (*baremetalv1.Rollout, error) {
	if err := digestOf(r.GetDigest(), false); err != nil {
		return nil, err
	}
	return s.actOnRollout(ctx, rolloutstore.RolloutAct{RolloutID: r.GetRolloutId(), Action: rollout.Approve,
		Digest: r.GetDigest(), Comment: r.GetComment()})
}

// PauseRollout implements RolloutService.
func (s *Server) PauseRollout(ctx context.Context, r *baremetalv1.PauseRolloutRequest) (*baremetalv1.Rollout, error) {
	return s.actOnRollout(ctx, rolloutstore.RolloutAct{RolloutID: r.GetRolloutId(), Action: rollout.Pause,
		Comment: r.GetComment()})
}

// ResumeRollout implements RolloutService.
func (s *Server) ResumeRollout(ctx context.Context, r *baremetalv1.ResumeRolloutRequest) (*baremetalv1.Rollout, error) {
	return s.actOnRollout(ctx, rolloutstore.RolloutAct{RolloutID: r.GetRolloutId(), Action: rollout.Resume,
		Comment: r.GetComment()})
}

// CancelRollout implements RolloutService.
func (s *Server) CancelRollout(ctx context.Context, r *baremetalv1.CancelRolloutRequest) (*baremetalv1.Rollout, error) {
	return s.actOnRollout(ctx, rolloutstore.RolloutAct{
		RolloutID: r.GetRolloutId(), Action: rollout.Cancel, CancelOperations: r.GetCancelOperations(),
		Comment: r.GetComment(),
	})
}

func (s *Server) actOnRollout(ctx context.Context, a rolloutstore.RolloutAct) (*baremetalv1.Rollout, error) {
	if err := service.FirstError(
		validate.Key("rollout_id", a.RolloutID),
		validate.Comment("comment", a.Comment),
	); err != nil {
		return nil, err
	}
	if err := s.mayActOn(ctx, a.RolloutID); err != nil {
		return nil, err
	}
	a.Actor = service.Actor(ctx)
	a.By, _ = call.Caller(ctx)
	return s.Engine.ActOnRollout(ctx, a)
}

// GetRollout implements RolloutService.
func (s *Server) GetRollout(ctx context.Context, r *baremetalv1.GetRolloutRequest) (*baremetalv1.Rollout, error) {
	if err := validate.Key("rollout_id", r.GetRolloutId()); err != nil {
		return nil, err
	}
	if err := s.maySee(ctx, r.GetRolloutId()); err != nil {
		return nil, err
	}
	return s.stores.Rollouts.GetRollout(ctx, r.GetRolloutId())
}

// ListRollouts implements RolloutService.
func (s *Server) ListRollouts(
	ctx context.Context, r *baremetalv1.ListRolloutsRequest,
) (*baremetalv1.ListRolloutsResponse, error) {
	terms, err := validate.Filter(r.GetFilter(), rolloutKeys)
	if err != nil {
		return nil, err
	}
	var f rolloutstore.RolloutFilter
	within, err := query.Within(ctx)
	if err != nil {
		return nil, err
	}
	if within.Narrow() {
		f.Identity = call.Identity(ctx)
	}
	for _, t := range terms {
		switch t.Key {
		case "state":
			f.State = t.Value
		case "request_id":
			f.RequestID = t.Value
		}
	}
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.Rollout]{
		Name: "rollouts", Filter: r.GetFilter(),
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.Rollout, error) {
			f.BeforeID, f.BeforeTime, f.Limit = after.ID, after.Time, limit
			return s.visible(ctx, f, within.Narrow())
		},
		Place: service.ByTime((*baremetalv1.Rollout).GetRolloutId,
			func(r *baremetalv1.Rollout) time.Time { return r.GetCreatedAt().AsTime() }),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListRolloutsResponse{Rollouts: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// ListRolloutMachines implements RolloutService.
func (s *Server) ListRolloutMachines(
	ctx context.Context, r *baremetalv1.ListRolloutMachinesRequest,
) (*baremetalv1.ListRolloutMachinesResponse, error) {
	if err := validate.Key("rollout_id", r.GetRolloutId()); err != nil {
		return nil, err
	}
	f, err := rolloutMachineFilter(r)
	if err != nil {
		return nil, err
	}
	if err := s.maySee(ctx, r.GetRolloutId()); err != nil {
		return nil, err
	}
	positions := map[*baremetalv1.RolloutMachine]int32{}
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.RolloutMachine]{
		Name: "rollout-machines " + r.GetRolloutId(), Filter: r.GetFilter(),
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.RolloutMachine, error) {
			if f.After, err = rolloutPosition(after); err != nil {
				return nil, err
			}
			f.Limit = limit
			all, at, err := s.stores.Rollouts.ListRolloutMachines(ctx, f)
			for i, m := range all {
				positions[m] = at[i]
			}
			return all, err
		},
		Place: service.ByNumber(func(m *baremetalv1.RolloutMachine) int64 { return int64(positions[m]) }),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListRolloutMachinesResponse{Machines: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

func rolloutMachineFilter(r *baremetalv1.ListRolloutMachinesRequest) (rolloutstore.RolloutMachineFilter, error) {
	f := rolloutstore.RolloutMachineFilter{RolloutID: r.GetRolloutId(), Wave: -1}
	terms, err := validate.Filter(r.GetFilter(), rolloutMachineKeys)
	if err != nil {
		return f, err
	}
	for _, t := range terms {
		switch t.Key {
		case "state":
			f.State = t.Value
		case "wave":
			n, _ := strconv.ParseInt(t.Value, 10, 32) // checked by its key
			f.Wave = int32(n)
		}
	}
	return f, nil
}

// rolloutPosition reads the number of a machine in its rollout; 0 at the start.
func rolloutPosition(after validate.Page) (int32, error) {
	if after.ID == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(after.ID, 10, 32)
	if err != nil {
		return 0, validate.Fault("page_token", "not one of this list")
	}
	return int32(n), nil
}

// WatchRollout implements RolloutService.
func (s *Server) WatchRollout(
	r *baremetalv1.WatchRolloutRequest, stream grpc.ServerStreamingServer[baremetalv1.Rollout],
) error {
	if err := validate.Key("rollout_id", r.GetRolloutId()); err != nil {
		return err
	}
	if err := s.maySee(stream.Context(), r.GetRolloutId()); err != nil {
		return err
	}
	ctx, end := s.Streaming(stream.Context())
	out := service.NewSender(stream.Send, s.Clock, s.Config.SendTimeout)
	return end(out.Finish(ctx, s.followRollout(ctx, r.GetRolloutId(), out)))
}

// followRollout sends the rollout after each change, until it has ended.
func (s *Server) followRollout(ctx context.Context, id string, out *service.Sender[*baremetalv1.Rollout]) error {
	p := service.Pacer{Base: s.Base}
	sent := int64(0)
	for {
		changed := p.Mark()
		ro, err := s.stores.Rollouts.GetRollout(ctx, id)
		if err != nil {
			return err
		}
		if ro.GetVersion() != sent {
			if err := out.Send(ctx, ro); err != nil {
				return err
			}
			sent = ro.GetVersion()
		}
		if rollout.State(ro.GetState().String()).Ended() {
			return nil
		}
		if err := p.Wait(ctx, changed); err != nil {
			return err
		}
	}
}

package operation

import (
	"context"
	"math"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/operationlog"
	"github.com/ingot-metal/ingot/controller/validate"
)

// StartRun implements RunService.
func (s *Server) StartRun(ctx context.Context, r *baremetalv1.StartRunRequest) (*baremetalv1.Run, error) {
	if err := validate.RequestID(r.GetRequestId()); err != nil {
		return nil, err
	}
	t, err := service.RunType(r.GetType(), r.GetPlanId())
	if err != nil {
		return nil, err
	}
	w := service.Work{
		MachineID: r.GetMachineId(), RequestID: r.GetRequestId(), Kind: t, PlanID: r.GetPlanId(), Params: r.GetParams(),
		Path: func(param string) string { return "params[" + param + "]" },
	}
	if r.GetValidateOnly() {
		return s.validateRun(ctx, w)
	}
	op, err := s.Begin(ctx, w)
	if err != nil {
		return nil, err
	}
	return s.stores.OperationQueries.GetRun(ctx, op.GetOperationId())
}

// validateRun returns the run that the work would be; one that the same request has started before is returned as it
// is.
func (s *Server) validateRun(ctx context.Context, w service.Work) (*baremetalv1.Run, error) {
	op, steps, err := s.Validate(ctx, w)
	if err != nil {
		return nil, err
	}
	if op.GetOperationId() != "" {
		return s.stores.OperationQueries.GetRun(ctx, op.GetOperationId())
	}
	proposed := operation.Operation{Type: fleet.OperationType(op.GetType().String())}
	for _, f := range steps {
		step := plan.StepOf(f.Step)
		step.Name, step.Kind, step.State = f.Step.GetName(), f.Kind, operation.StepWaiting
		proposed.Steps = append(proposed.Steps, step)
	}
	return convert.RunMessage(op, proposed, nil, nil), nil
}

// GetRun implements RunService.
func (s *Server) GetRun(ctx context.Context, r *baremetalv1.GetRunRequest) (*baremetalv1.Run, error) {
	if err := validate.Key("run_id", r.GetRunId()); err != nil {
		return nil, err
	}
	return s.stores.OperationQueries.GetRun(ctx, r.GetRunId())
}

// CancelRun implements RunService.
func (s *Server) CancelRun(ctx context.Context, r *baremetalv1.CancelRunRequest) (*baremetalv1.Run, error) {
	if err := validate.Key("run_id", r.GetRunId()); err != nil {
		return nil, err
	}
	if _, err := s.Engine.Cancel(ctx, r.GetRunId(), service.Actor(ctx)); err != nil {
		return nil, err
	}
	return s.stores.OperationQueries.GetRun(ctx, r.GetRunId())
}

// ListRuns implements RunService.
func (s *Server) ListRuns(ctx context.Context, r *baremetalv1.ListRunsRequest) (*baremetalv1.ListRunsResponse, error) {
	l, err := workList(
		ctx,
		s,
		"runs",
		r,
		query.RunKeys,
		s.stores.OperationQueries.ListRuns,
		service.ByTime(
			(*baremetalv1.Run).GetRunId,
			func(run *baremetalv1.Run) time.Time { return run.GetCreatedAt().AsTime() },
		),
	)
	if err != nil {
		return nil, err
	}
	p, err := service.Page(ctx, s.Base, l, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListRunsResponse{Runs: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// WatchRuns implements RunService. A snapshot has the run and its steps as they were after the event.
func (s *Server) WatchRuns(r *baremetalv1.WatchRunsRequest, stream baremetalv1.RunService_WatchRunsServer) error {
	return watch(stream.Context(), s, r, query.RunWatchKeys, stream.Send,
		func(e operationlog.Event, cursor string) (*baremetalv1.RunEvent, error) {
			run, err := s.stores.OperationQueries.GetRun(stream.Context(), e.Snapshot.GetOperationId())
			if err != nil {
				return nil, err
			}
			if e.Seq > 0 { // else it is the run as it is now
				before, err := s.stores.Logs.EventsOf(stream.Context(), run.GetRunId(), 0, int32(min(e.Seq, math.MaxInt32)))
				if err != nil {
					return nil, err
				}
				run.Steps = stepsAt(run.GetSteps(), before)
			}
			return runEvent(e, run, cursor), nil
		})
}

func runEvent(e operationlog.Event, run *baremetalv1.Run, cursor string) *baremetalv1.RunEvent {
	op := e.Snapshot
	run.Phase, run.Error, run.WaitReason = baremetalv1.Run_Phase(op.GetPhase()), op.GetError(), op.GetWaitReason()
	run.CurrentStep, run.StartedAt, run.FinishedAt = op.GetCurrentStage(), op.GetStartedAt(), op.GetFinishedAt()
	return &baremetalv1.RunEvent{Ts: service.Stamp(e.TS), Snapshot: run, Message: e.Message, Cursor: cursor, Seq: e.Seq,
		Kind: e.Kind}
}

// StreamRunLogs implements RunService.
func (s *Server) StreamRunLogs(
	r *baremetalv1.StreamRunLogsRequest, stream baremetalv1.RunService_StreamRunLogsServer,
) error {
	if err := validate.Key("run_id", r.GetRunId()); err != nil {
		return err
	}
	wanted := logRequest{operationID: r.GetRunId(), after: r.GetAfterSeq(), noFollow: r.GetNoFollow()}
	return s.logs(stream.Context(), wanted, stream.Send)
}

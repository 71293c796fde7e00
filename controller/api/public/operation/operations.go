package operation

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/store/operationlog"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	"github.com/ingot-metal/ingot/controller/validate"
)

// GetOperation implements OperationService.
func (s *Server) GetOperation(ctx context.Context, r *baremetalv1.GetOperationRequest) (*baremetalv1.Operation, error) {
	if err := validate.Key("operation_id", r.GetOperationId()); err != nil {
		return nil, err
	}
	return s.stores.OperationQueries.GetOperation(ctx, r.GetOperationId())
}

// ListOperations implements OperationService.
func (s *Server) ListOperations(
	ctx context.Context, r *baremetalv1.ListOperationsRequest,
) (*baremetalv1.ListOperationsResponse, error) {
	l, err := workList(ctx, s, "operations", r, query.OperationKeys, s.stores.OperationQueries.ListOperations,
		service.ByTime((*baremetalv1.Operation).GetOperationId,
			func(op *baremetalv1.Operation) time.Time { return op.GetCreatedAt().AsTime() }))
	if err != nil {
		return nil, err
	}
	p, err := service.Page(ctx, s.Base, l, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListOperationsResponse{Operations: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// workRequest is what the requests for operations and for runs have in common.
type workRequest interface {
	service.PageRequest
	GetFilter() string
}

// workList is the list of operations or of runs, newest first.
func workList[M proto.Message](ctx context.Context, s *Server, name string, r workRequest, keys validate.Keys,
	read func(context.Context, operationquery.OperationFilter) ([]M, error), place func(M) validate.Page,
) (service.List[M], error) {
	l := service.List[M]{Name: name, Filter: r.GetFilter(), Place: place}
	terms, err := validate.Filter(r.GetFilter(), keys)
	if err != nil {
		return l, err
	}
	f, err := query.OperationFilter(terms)
	if err != nil {
		return l, err
	}
	f.Selections, err = query.Within(ctx)
	l.Subject = service.Subjects(s.Machine(service.Named(terms, "machine_id")),
		service.SubjectOf(service.Named(terms, "run_id"), s.stores.OperationQueries.GetRun))
	l.Read = func(ctx context.Context, after validate.Page, limit int32) ([]M, error) {
		f.BeforeID, f.BeforeTime, f.Limit = after.ID, after.Time, limit
		return read(ctx, f)
	}
	return l, err
}

// WatchOperations implements OperationService.
func (s *Server) WatchOperations(
	r *baremetalv1.WatchOperationsRequest, stream baremetalv1.OperationService_WatchOperationsServer,
) error {
	return watch(stream.Context(), s, r, query.OperationWatchKeys, stream.Send, operationEvent)
}

func operationEvent(e operationlog.Event, cursor string) (*baremetalv1.OperationEvent, error) {
	return &baremetalv1.OperationEvent{
		Ts: service.Stamp(
			e.TS,
		),
		Snapshot: e.Snapshot,
		Message:  e.Message,
		Cursor:   cursor,
		Seq:      e.Seq,
		Kind:     e.Kind,
		Step:     e.Step,
	}, nil
}

// StreamOperationLogs implements OperationService.
func (s *Server) StreamOperationLogs(
	r *baremetalv1.StreamOperationLogsRequest, stream baremetalv1.OperationService_StreamOperationLogsServer,
) error {
	if err := validate.Key("operation_id", r.GetOperationId()); err != nil {
		return err
	}
	wanted := logRequest{operationID: r.GetOperationId(), after: r.GetAfterSeq(), noFollow: r.GetNoFollow()}
	return s.logs(stream.Context(), wanted, stream.Send)
}

package frontpage

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/validate"
)

func stamp(t time.Time) *timestamppb.Timestamp { return timestamppb.New(t) }

func stampIfSet(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// GetOperation implements OperationService.
func (s *Server) GetOperation(ctx context.Context, r *baremetalv1.GetOperationRequest) (*baremetalv1.Operation, error) {
	if err := validate.Key("operation_id", r.GetOperationId()); err != nil {
		return nil, err
	}
	return s.store.GetOperation(ctx, r.GetOperationId())
}

// ListOperations implements OperationService.
func (s *Server) ListOperations(ctx context.Context, r *baremetalv1.ListOperationsRequest) (*baremetalv1.ListOperationsResponse, error) {
	q, err := workPage("operations", r, operationKeys)
	if err != nil {
		return nil, err
	}
	all, err := s.store.ListOperations(ctx, q.filter)
	if err != nil {
		return nil, err
	}
	out := &baremetalv1.ListOperationsResponse{Operations: all}
	if len(all) > int(q.size) {
		out.Operations = all[:q.size]
		last := out.Operations[q.size-1]
		out.NextPageToken = q.next(last.GetOperationId(), last.GetCreatedAt())
	}
	return out, nil
}

// listRequest is what the requests for operations and for runs have in common.
type listRequest interface {
	GetFilter() string
	GetPageSize() int32
	GetPageToken() string
}

// pageQuery is one page of a list that is read newest first.
type pageQuery struct {
	list, text string
	size       int32
	filter     store.OperationFilter
}

// workPage asks for one row more than the page has: it shows whether there is another page.
func workPage(list string, r listRequest, keys validate.Keys) (pageQuery, error) {
	q := pageQuery{list: list, text: r.GetFilter()}
	var err error
	if q.size, err = validate.PageSize(r.GetPageSize()); err != nil {
		return q, err
	}
	terms, err := validate.Filter(q.text, keys)
	if err != nil {
		return q, err
	}
	if q.filter, err = operationFilter(terms); err != nil {
		return q, err
	}
	page, err := validate.ParsePage(r.GetPageToken(), list, q.text)
	q.filter.BeforeID, q.filter.BeforeTime, q.filter.Limit = page.ID, page.Time, q.size+1
	return q, err
}

func (q pageQuery) next(id string, created *timestamppb.Timestamp) string {
	return validate.Page{ID: id, Time: created.AsTime()}.Token(q.list, q.text)
}

// WatchOperations implements OperationService.
func (s *Server) WatchOperations(r *baremetalv1.WatchOperationsRequest, stream baremetalv1.OperationService_WatchOperationsServer) error {
	return watch(stream.Context(), s, r, operationWatchKeys, stream.Send, operationEvent)
}

func operationEvent(e store.Event, cursor string) (*baremetalv1.OperationEvent, error) {
	return &baremetalv1.OperationEvent{
		Ts: stamp(e.TS), Snapshot: e.Snapshot, Message: e.Message, Cursor: cursor, Seq: e.Seq, Kind: e.Kind, Step: e.Step,
	}, nil
}

// StreamOperationLogs implements OperationService.
func (s *Server) StreamOperationLogs(r *baremetalv1.StreamOperationLogsRequest, stream baremetalv1.OperationService_StreamOperationLogsServer) error {
	if err := validate.Key("operation_id", r.GetOperationId()); err != nil {
		return err
	}
	return s.logs(stream.Context(), logRequest{r.GetOperationId(), r.GetAfterSeq(), r.GetNoFollow()}, stream.Send)
}

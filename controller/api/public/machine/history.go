package machine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	timelinestore "github.com/ingot-metal/ingot/controller/store/timeline"
	"github.com/ingot-metal/ingot/controller/validate"
)

// GetMachineTimeline implements MachineService.
func (s *Server) GetMachineTimeline(
	ctx context.Context, r *baremetalv1.GetMachineTimelineRequest,
) (*baremetalv1.GetMachineTimelineResponse, error) {
	since, sinceErr := timeOf("since", r.GetSince())
	at, atErr := timeOf("at", r.GetAt())
	if err := service.FirstError(validate.Key("machine_id", r.GetMachineId()), sinceErr, atErr); err != nil {
		return nil, err
	}
	f := timelinestore.TimelineQuery{MachineID: r.GetMachineId(), Since: since, Until: at, OldestFirst: r.GetOldestFirst()}
	out := &baremetalv1.GetMachineTimelineResponse{}
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.TimelineEntry]{
		Name: "timeline",
		Filter: fmt.Sprint(f.MachineID, " ", f.Since.UnixNano(), " ", f.Until.UnixNano(), " ",
			f.OldestFirst),
		Uncounted: true,
		Read: func(ctx context.Context, after validate.Page, limit int32) (all []*baremetalv1.TimelineEntry, err error) {
			f.Limit = limit
			if f.From.Seq, f.From.Change, err = after.HistoryPosition(); err != nil {
				return nil, err
			}
			return s.stores.Timelines.Timeline(ctx, f)
		},
		Place: service.ByID(
			func(e *baremetalv1.TimelineEntry) string { return fmt.Sprintf("%d.%d", e.GetSeq(), e.GetChange()) },
		),
	}, r)
	if err != nil {
		return nil, err
	}
	if r.GetPageToken() == "" {
		if out.State, err = s.stateAt(ctx, r.GetMachineId(), at); err != nil {
			return nil, err
		}
	}
	out.Entries, out.NextPageToken = p.Rows, p.Next
	return out, nil
}

// timeOf is the time of a field, the zero time where it is not set.
func timeOf(field string, t *timestamppb.Timestamp) (time.Time, error) {
	if t == nil {
		return time.Time{}, nil
	}
	if t.CheckValid() != nil || t.AsTime().Year() < 1970 || t.AsTime().Year() > 9999 {
		return time.Time{}, validate.Fault(field, "not a time between 1970 and 9999")
	}
	return t.AsTime(), nil
}

// stateAt also tells an unknown machine from one that had no history yet.
func (s *Server) stateAt(ctx context.Context, machineID string, at time.Time) (*baremetalv1.TimelineState, error) {
	if _, err := s.stores.Machines.KnownMachine(ctx, machineID); err != nil {
		return nil, err
	}
	state, err := s.stores.Timelines.StateAt(ctx, machineID, at)
	if err != nil || state == nil {
		return nil, err
	}
	return timelineState(state), nil
}

const (
	defaultVerdicts = 20
	maxVerdicts     = 200
)

// VerifyTimeline implements MachineService.
func (s *Server) VerifyTimeline(
	ctx context.Context, r *baremetalv1.VerifyTimelineRequest,
) (*baremetalv1.VerifyTimelineResponse, error) {
	if r.GetMachineId() != "" {
		return s.verifyOne(ctx, r.GetMachineId())
	}
	if r.GetPageSize() < 0 {
		return nil, validate.Fault("page_size", "not negative; 0 means %d", defaultVerdicts)
	}
	size := min(cmp.Or(r.GetPageSize(), defaultVerdicts), maxVerdicts)
	page, err := validate.ParsePage(r.GetPageToken(), "verdicts", "")
	if err != nil {
		return nil, err
	}
	owners, total, err := s.stores.Timelines.HistoryOwners(ctx, page.ID, size)
	if err != nil {
		return nil, err
	}
	out := &baremetalv1.VerifyTimelineResponse{Total: total}
	if n := len(owners); n >= int(size) && owners[n-1] != "" {
		out.NextPageToken = validate.Page{ID: owners[n-1]}.Token("verdicts", "")
	}
	for _, id := range owners {
		v, err := s.stores.Timelines.VerifyTimeline(ctx, id)
		if err != nil {
			return nil, err
		}
		out.Verdicts = append(out.Verdicts, v)
	}
	return out, nil
}

func (s *Server) verifyOne(ctx context.Context, machineID string) (*baremetalv1.VerifyTimelineResponse, error) {
	if err := validate.Key("machine_id", machineID); err != nil {
		return nil, err
	}
	v, err := s.stores.Timelines.VerifyTimeline(ctx, machineID)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.VerifyTimelineResponse{Verdicts: []*baremetalv1.TimelineVerdict{v}, Total: 1}, nil
}

package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/agent/transport"
	"github.com/ingot-metal/ingot/internal/task"
)

// eventBatch is how many events are read from the buffer at once.
const eventBatch = 128

type eventStream = grpc.BidiStreamingClient[fleetv1.EventsRequest, fleetv1.EventsResponse]

// events sends the buffered events, in order, and heartbeats between.
func (s *session) events(ctx context.Context, group *task.Group, client fleetv1.AgentServiceClient) error {
	stream, err := client.Events(ctx)
	if err != nil {
		return fmt.Errorf("open event stream: %w", err)
	}
	err = stream.Send(&fleetv1.EventsRequest{Message: &fleetv1.EventsRequest_Hello{Hello: &fleetv1.EventsHello{
		SessionId: s.welcome.GetSessionId(), Epoch: s.welcome.GetEpoch(), StateId: s.hello.GetStateId(),
	}}})
	if err != nil {
		return fmt.Errorf("say hello on event stream: %w", err)
	}
	group.Go("event-acks", func(ctx context.Context) error { return s.ended(ctx, s.acks(ctx, stream)) })
	if err := s.beat(ctx, stream); err != nil {
		return err
	}
	var sent uint64
	for due := s.nextBeat(); ; {
		if sent, err = s.drainBuffer(ctx, stream, sent); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.r.cfg.Store.Changed():
		case <-due:
			if err := s.beat(ctx, stream); err != nil {
				return err
			}
			due = s.nextBeat()
		}
	}
}

// nextBeat spreads the heartbeats of a fleet by a tenth.
func (s *session) nextBeat() <-chan time.Time {
	d := time.Duration(s.r.heartbeat.Load())
	return s.r.cfg.Clock.After(d - transport.Jitter(d/10))
}

func (s *session) drainBuffer(ctx context.Context, stream eventStream, sent uint64) (uint64, error) {
	if s.inDoubt {
		err := s.r.cfg.Store.Recognized(ctx, s.welcome.GetPreviousEventSeq())
		if errors.Is(err, state.ErrStorageFull) {
			return sent, nil // an event that was sent meanwhile would make this memory look like a copy
		}
		if err != nil {
			return sent, fatal{err}
		}
		s.inDoubt = false
	}
	for {
		list, err := s.r.cfg.Store.Events(ctx, sent, eventBatch, s.r.cfg.Clock.Now())
		if errors.Is(err, state.ErrStorageFull) {
			return sent, nil // the note of what was dropped waits for room
		}
		if err != nil {
			return sent, fatal{err}
		}
		for _, e := range list {
			if err := stream.Send(&fleetv1.EventsRequest{Message: &fleetv1.EventsRequest_Event{Event: e}}); err != nil {
				return sent, fmt.Errorf("send event: %w", err)
			}
			sent = e.GetSeq()
		}
		if len(list) < eventBatch {
			return sent, nil
		}
	}
}

func (s *session) acks(ctx context.Context, stream eventStream) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("event stream: %w", err)
		}
		err = s.r.cfg.Store.Trim(ctx, m.GetAckedSeq())
		if err != nil && !errors.Is(err, state.ErrStorageFull) {
			return fatal{err}
		}
	}
}

func (s *session) beat(ctx context.Context, stream eventStream) error {
	h, err := s.r.fullHeartbeat(ctx)
	if err != nil {
		return fatal{err}
	}
	if err := stream.Send(&fleetv1.EventsRequest{Message: &fleetv1.EventsRequest_Heartbeat{Heartbeat: h}}); err != nil {
		return fmt.Errorf("send heartbeat: %w", err)
	}
	return nil
}

func (r *Runner) fullHeartbeat(ctx context.Context) (*fleetv1.Heartbeat, error) {
	h := r.cfg.Heartbeat()
	h.Ts = timestamppb.New(r.cfg.Clock.Now())
	meta, err := r.cfg.Store.Meta(ctx)
	if err != nil {
		return nil, err
	}
	h.LockedReason = meta.LockedReason
	h.BufferedEvents, err = r.cfg.Store.BufferedEvents(ctx)
	return h, err
}

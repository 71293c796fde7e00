package machine

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/internal/clock"
)

const (
	// summaryFor is how old the numbers of a summary may be.
	summaryFor = 2 * time.Second
	// failedWithin is how far back operations count that have failed.
	failedWithin = 24 * time.Hour
)

// GetFleetSummary implements MachineService.
func (s *Server) GetFleetSummary(
	ctx context.Context, _ *baremetalv1.GetFleetSummaryRequest,
) (*baremetalv1.FleetSummary, error) {
	return s.summary.get(ctx)
}

func (s *Server) readSummary(ctx context.Context) (*baremetalv1.FleetSummary, error) {
	counts, err := s.CountMachines(ctx, &baremetalv1.CountMachinesRequest{GroupBy: []string{"effective_state"}})
	if err != nil {
		return nil, err
	}
	work, err := s.Store.CountWork(ctx, s.Clock.Now().Add(-failedWithin))
	if err != nil {
		return nil, err
	}
	since, awaited, err := s.CatchingUp(ctx)
	if err != nil {
		return nil, err
	}
	shared, err := s.sharedCauses(ctx, "")
	if err != nil {
		return nil, err
	}
	return &baremetalv1.FleetSummary{
		NotListeningSince: service.StampIfSet(since), AgentsAwaited: awaited,
		AsOf: counts.GetAsOf(), Machines: counts.GetGroups(), TotalMachines: counts.GetTotal(),
		RunningOperations: work.Running, PendingOperations: work.Pending, FailedOperations: work.Failed,
		ConnectedAgents: work.Agents, SharedCauses: shared,
	}, nil
}

// summary reads the fleet's summary once for all who ask within a while.
type summary struct {
	read  func(context.Context) (*baremetalv1.FleetSummary, error)
	clock clock.Clock
	// turn is held by the one who looks at what follows, and reads.
	turn chan struct{}
	last *baremetalv1.FleetSummary
	at   time.Time
}

func newSummary(read func(context.Context) (*baremetalv1.FleetSummary, error), c clock.Clock) *summary {
	return &summary{read: read, clock: c, turn: make(chan struct{}, 1)}
}

// get gives the numbers that were read last, or new ones. A read that fails is its caller's alone: the next one reads.
func (s *summary) get(ctx context.Context) (*baremetalv1.FleetSummary, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	now := s.clock.Now()
	if s.last == nil || now.Sub(s.at) >= summaryFor {
		fresh, err := s.read(ctx)
		if err != nil {
			return nil, err
		}
		s.last, s.at = fresh, now
	}
	return proto.CloneOf(s.last), nil
}

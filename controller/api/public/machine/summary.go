package machine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/filter"
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
	work, err := s.stores.OperationQueries.CountWork(ctx, s.Clock.Now().Add(-failedWithin))
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

// get returns the numbers that were read last, or new ones. A read that fails is its caller's alone: the next one
// reads.
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

const (
	// mostCauses bounds the shared causes of an answer.
	mostCauses = 100
	// notObservedFilter lists the machines that need somebody only because nothing observes them.
	notObservedFilter = "attention_reason=" + fleet.AttentionNotObserved
)

// ownEntries are keys of a filter that asks for machines one by one, whatever cause they share.
var ownEntries = []string{"attention_reason", "machine_id", "conditions." + string(fleet.Reachable)}

// shares reports whether machines of a filter that share one cause are one entry.
func shares(terms []filter.Term) bool {
	return !slices.ContainsFunc(terms, func(t filter.Term) bool { return slices.Contains(ownEntries, t.Key) })
}

// sharedCauses returns the causes that machines of a filter share, those of the most machines first.
func (s *Server) sharedCauses(ctx context.Context, filter string) ([]*baremetalv1.SharedCause, error) {
	unknown, err := s.stores.Machines.AnythingUnknown(ctx)
	if err != nil || !unknown {
		return nil, err
	}
	text := notObservedFilter
	if filter != "" {
		text = filter + "," + text
	}
	counts, err := s.CountMachines(ctx, &baremetalv1.CountMachinesRequest{Filter: text, GroupBy: []string{"site"}})
	if err != nil {
		return nil, err
	}
	groups := counts.GetGroups()
	slices.SortStableFunc(
		groups,
		func(a, b *baremetalv1.MachineGroup) int { return cmp.Compare(b.GetCount(), a.GetCount()) },
	)
	out := make([]*baremetalv1.SharedCause, 0, len(groups))
	for _, g := range groups[:min(len(groups), mostCauses)] {
		site, err := s.stores.Sites.GetSite(ctx, g.GetValues()[0])
		if err != nil && !failure.HasReason(err, "SITE_NOT_FOUND") {
			return nil, err
		}
		out = append(out, siteCause(g.GetValues()[0], site, g.GetCount()))
	}
	return out, nil
}

// siteCause is the silence of a site as the cause of its machines.
func siteCause(name string, site *baremetalv1.Site, machines int32) *baremetalv1.SharedCause {
	count := fmt.Sprintf("%d machines are", machines)
	if machines == 1 {
		count = "1 machine is"
	}
	c := &baremetalv1.SharedCause{
		Reason: baremetalv1.Reason_SITE_AGENT_SILENT.String(), Site: name, Machines: machines,
		Text:    fmt.Sprintf("site %s is silent: %s not observed", name, count),
		Since:   site.GetSilentSince(),
		WaitsOn: string(explain.OnAgent), WaitsFor: "the agent of site " + name,
		Filter: "site=" + name + "," + notObservedFilter,
	}
	if site.GetSilentSince() == nil {
		c.Reason = fleet.AttentionNotObserved
		c.Text = fmt.Sprintf("the agent of site %s is back: %s not observed yet", name, count)
	}
	for _, a := range []explain.Action{
		{Command: "ingot agent list", Consequence: "shows which agents are connected, and since when the others are not"},
		{Command: "ingot-agent doctor   (on the agent's machine)",
			Consequence: "checks clock, certificate, controller, disk and privileges"},
		{Command: "ingot list --filter " + c.GetFilter(), Consequence: "lists the machines"},
	} {
		c.Actions = append(c.Actions, &baremetalv1.OperatorAction{Command: a.Command, Consequence: a.Consequence})
	}
	return c
}

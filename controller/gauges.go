package controller

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/controller/catalog/blob"
	"github.com/ingot-metal/ingot/controller/session"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/obs/metrics"
)

// gauges counts the fleet and this controller for the metrics.
type gauges struct {
	store    *store.Store
	sessions *session.Registry
	blobs    blob.Store
	ca       *ca.Authority
	certs    *ca.ServerCerts
	// frontpageEnds returns the end of the frontpage's certificate from a file; zero where it has none.
	frontpageEnds func() time.Time
	// ready returns why the controller does not serve; nil where it does.
	ready       func() error
	metrics     *metrics.Metrics
	clock       clock.Clock
	log         *slog.Logger
	version, id string
}

// refresh counts the fleet every 30 s.
func (g *gauges) refresh(ctx context.Context) error {
	t := g.clock.NewTicker(30 * time.Second)
	defer t.Stop()
	for {
		if g.ready() == nil {
			if err := g.countFleet(ctx); err != nil && ctx.Err() == nil {
				g.log.Warn("gauges not refreshed", "error", err.Error())
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C():
		}
	}
}

// countFleet sets all gauges; one that can't be read leaves the others to the next time.
func (g *gauges) countFleet(ctx context.Context) error {
	for _, count := range []func(context.Context) error{
		g.countMachines, g.countSites, g.countOperations, g.countRollouts, g.countWebhooks, g.countFreeze,
		g.countBudgets,
	} {
		if err := count(ctx); err != nil {
			return err
		}
	}
	g.countSessions()
	g.countSelf()
	return nil
}

func (g *gauges) countMachines(ctx context.Context) error {
	counts, err := g.store.Machines.CountMachines(ctx)
	if err != nil {
		return err
	}
	out := make([]metrics.MachineCount, 0, len(counts))
	for k, n := range counts {
		out = append(out, metrics.MachineCount{
			Phase: k.Phase, EffectiveState: k.Effective, NodeState: k.NodeState, Region: k.Region, Site: k.Site, Count: int64(n),
		})
	}
	g.metrics.SetMachines(out)
	return nil
}

func (g *gauges) countSites(ctx context.Context) error {
	sites, err := g.store.Sites.ListSites(ctx, "", math.MaxInt32)
	if err == nil {
		g.metrics.SetCapacity(capacityOf(sites))
	}
	return err
}

func (g *gauges) countOperations(ctx context.Context) error {
	unwakeable, err := g.store.OperationQueries.CountUnwakeable(ctx, g.clock.Now())
	if err != nil {
		return err
	}
	g.metrics.OperationsUnwakeable.Set(float64(unwakeable))
	_, safe, err := g.store.MachineFeed.HeadCursor(ctx)
	if err == nil {
		g.metrics.CursorLag.Set(g.clock.Now().Sub(safe).Seconds())
	}
	return err
}

func (g *gauges) countRollouts(ctx context.Context) error {
	states, err := g.store.Rollouts.CountRollouts(ctx)
	if err != nil {
		return err
	}
	for _, state := range []baremetalv1.Rollout_State{baremetalv1.Rollout_AWAITING_APPROVAL, baremetalv1.Rollout_RUNNING,
		baremetalv1.Rollout_PAUSED, baremetalv1.Rollout_STOPPING} {
		g.metrics.Rollouts.WithLabelValues(state.String()).Set(float64(states[state.String()]))
	}
	return nil
}

func (g *gauges) countWebhooks(ctx context.Context) error {
	waiting, oldest, err := g.store.Webhooks.WebhookBacklog(ctx)
	if err != nil {
		return err
	}
	g.metrics.WebhookBacklog.Set(float64(waiting))
	g.metrics.WebhookOldest.Set(max(0, g.clock.Now().Sub(oldest).Seconds()))
	return nil
}

func (g *gauges) countFreeze(ctx context.Context) error {
	since, _, err := g.store.Incarnations.Frozen(ctx)
	frozen := 0.0
	if !since.IsZero() {
		frozen = 1
	}
	g.metrics.FleetFrozen.Set(frozen)
	return err
}

func (g *gauges) countBudgets(ctx context.Context) error {
	used, waiting, err := g.store.Budgets.BudgetUsage(ctx, g.clock.Now())
	if err != nil {
		return err
	}
	out := make([]metrics.BudgetUse, 0, len(used))
	for _, u := range used {
		out = append(out, metrics.BudgetUse{Budget: u.Rule, Limit: strings.ReplaceAll(string(u.Kind), " ", "_"),
			Ratio: u.Ratio()})
	}
	g.metrics.SetBudgets(out)
	g.metrics.BudgetWaiting.Set(float64(waiting))
	return nil
}

func (g *gauges) countSessions() {
	roles := map[string]int{"host": 0, "site": 0}
	var first time.Time
	for _, s := range g.sessions.All() {
		roles[s.Role]++
		if first.IsZero() || s.CertificateEnds.Before(first) {
			first = s.CertificateEnds
		}
	}
	g.metrics.SetAgentCertificate(first)
	for role, n := range roles {
		g.metrics.Sessions.WithLabelValues(role).Set(float64(n))
	}
}

// countSelf is about this controller, its keys and its disk.
func (g *gauges) countSelf() {
	g.metrics.BuildInfo.WithLabelValues(g.version, g.id).Set(1)
	for name, at := range g.ca.Expiries() {
		g.metrics.CertificateExpires.WithLabelValues(name).Set(float64(at.Unix()))
	}
	g.metrics.ServerCertificateExpires.WithLabelValues("fleet").Set(float64(g.certs.Ends().Unix()))
	front := g.certs.Ends()
	if ends := g.frontpageEnds(); !ends.IsZero() {
		front = ends
	}
	g.metrics.ServerCertificateExpires.WithLabelValues("frontpage").Set(float64(front.Unix()))
	if free, size, err := g.blobs.Space(); err == nil {
		g.metrics.ImageSpace.WithLabelValues("free").Set(float64(free))
		g.metrics.ImageSpace.WithLabelValues("size").Set(float64(size))
	}
}

// capacityOf counts the addresses of each segment, as its site's agent has reported them last.
func capacityOf(sites []*baremetalv1.Site) []metrics.Capacity {
	var out []metrics.Capacity
	for _, site := range sites {
		for _, segment := range site.GetSegments() {
			out = append(out, metrics.Capacity{
				Site: site.GetSite(), Segment: segment.GetName(), Resource: "addresses",
				Used: int64(segment.GetPoolUsed()), Size: int64(segment.GetPoolSize()),
			})
		}
	}
	return out
}

package controller

import (
	"context"
	"math"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/obs/metrics"
)

// refreshGauges counts the fleet every 30 s.
func (c *Controller) refreshGauges(ctx context.Context) error {
	t := c.clock.NewTicker(30 * time.Second)
	defer t.Stop()
	for {
		if c.ready.err() == nil {
			if err := c.countFleet(ctx); err != nil && ctx.Err() == nil {
				c.log.Warn("gauges not refreshed", "error", err.Error())
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
func (c *Controller) countFleet(ctx context.Context) error {
	for _, count := range []func(context.Context) error{
		c.countMachines, c.countSites, c.countOperations, c.countRollouts, c.countWebhooks, c.countFreeze,
		c.countBudgets,
	} {
		if err := count(ctx); err != nil {
			return err
		}
	}
	c.countSessions()
	c.countSelf()
	return nil
}

func (c *Controller) countMachines(ctx context.Context) error {
	counts, err := c.store.Machines.CountMachines(ctx)
	if err != nil {
		return err
	}
	out := make([]metrics.MachineCount, 0, len(counts))
	for k, n := range counts {
		out = append(out, metrics.MachineCount{
			Phase: k.Phase, EffectiveState: k.Effective, NodeState: k.NodeState, Region: k.Region, Site: k.Site, Count: int64(n),
		})
	}
	c.metrics.SetMachines(out)
	return nil
}

func (c *Controller) countSites(ctx context.Context) error {
	sites, err := c.store.Sites.ListSites(ctx, "", math.MaxInt32)
	if err == nil {
		c.metrics.SetCapacity(capacityOf(sites))
	}
	return err
}

func (c *Controller) countOperations(ctx context.Context) error {
	unwakeable, err := c.store.OperationQueries.CountUnwakeable(ctx, c.clock.Now())
	if err != nil {
		return err
	}
	c.metrics.OperationsUnwakeable.Set(float64(unwakeable))
	_, safe, err := c.store.MachineFeed.HeadCursor(ctx)
	if err == nil {
		c.metrics.CursorLag.Set(c.clock.Now().Sub(safe).Seconds())
	}
	return err
}

func (c *Controller) countRollouts(ctx context.Context) error {
	states, err := c.store.Rollouts.CountRollouts(ctx)
	if err != nil {
		return err
	}
	for _, state := range []baremetalv1.Rollout_State{baremetalv1.Rollout_AWAITING_APPROVAL, baremetalv1.Rollout_RUNNING,
		baremetalv1.Rollout_PAUSED, baremetalv1.Rollout_STOPPING} {
		c.metrics.Rollouts.WithLabelValues(state.String()).Set(float64(states[state.String()]))
	}
	return nil
}

func (c *Controller) countWebhooks(ctx context.Context) error {
	waiting, oldest, err := c.store.Webhooks.WebhookBacklog(ctx)
	if err != nil {
		return err
	}
	c.metrics.WebhookBacklog.Set(float64(waiting))
	c.metrics.WebhookOldest.Set(max(0, c.clock.Now().Sub(oldest).Seconds()))
	return nil
}

func (c *Controller) countFreeze(ctx context.Context) error {
	since, _, err := c.store.Incarnations.Frozen(ctx)
	frozen := 0.0
	if !since.IsZero() {
		frozen = 1
	}
	c.metrics.FleetFrozen.Set(frozen)
	return err
}

func (c *Controller) countBudgets(ctx context.Context) error {
	used, waiting, err := c.store.Budgets.BudgetUsage(ctx, c.clock.Now())
	if err != nil {
		return err
	}
	out := make([]metrics.BudgetUse, 0, len(used))
	for _, u := range used {
		out = append(out, metrics.BudgetUse{Budget: u.Rule, Limit: strings.ReplaceAll(string(u.Kind), " ", "_"),
			Ratio: u.Ratio()})
	}
	c.metrics.SetBudgets(out)
	c.metrics.BudgetWaiting.Set(float64(waiting))
	return nil
}

func (c *Controller) countSessions() {
	roles := map[string]int{"host": 0, "site": 0}
	var first time.Time
	for _, s := range c.sessions.All() {
		roles[s.Role]++
		if first.IsZero() || s.CertificateEnds.Before(first) {
			first = s.CertificateEnds
		}
	}
	c.metrics.SetAgentCertificate(first)
	for role, n := range roles {
		c.metrics.Sessions.WithLabelValues(role).Set(float64(n))
	}
}

// countSelf is about this controller, its keys and its disk.
func (c *Controller) countSelf() {
	c.metrics.BuildInfo.WithLabelValues(c.version, c.id).Set(1)
	for name, at := range c.ca.Expiries() {
		c.metrics.CertificateExpires.WithLabelValues(name).Set(float64(at.Unix()))
	}
	c.metrics.ServerCertificateExpires.WithLabelValues("fleet").Set(float64(c.certs.Ends().Unix()))
	front := c.certs.Ends()
	if !c.frontpageEnds.IsZero() {
		front = c.frontpageEnds
	}
	c.metrics.ServerCertificateExpires.WithLabelValues("frontpage").Set(float64(front.Unix()))
	if free, size, err := c.blobs.Space(); err == nil {
		c.metrics.ImageSpace.WithLabelValues("free").Set(float64(free))
		c.metrics.ImageSpace.WithLabelValues("size").Set(float64(size))
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

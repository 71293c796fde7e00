package controller

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/healthhttp"
	"github.com/ingot-metal/ingot/controller/engine"
	"github.com/ingot-metal/ingot/internal/obs/metrics"
	"github.com/ingot-metal/ingot/internal/task"
)

// readiness is why the controller does not serve yet; empty when it does.
type readiness struct {
	mu       sync.Mutex
	why      string
	stopping bool
}

func (r *readiness) set(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopping {
		r.why = why
	}
}

// stop is the last word.
func (r *readiness) stop(why string) {
	r.set(why)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
}

func (r *readiness) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why == "" {
		return nil
	}
	return errors.New(r.why)
}

// runHTTP serves health and metrics, and refreshes the gauges.
func (c *Controller) runHTTP(ctx context.Context) error {
	srv := healthhttp.New(healthhttp.Config{
		Gatherer: c.registry,
		Logger:   c.log, Requested: c.bounded.http.Requested,
		Checks: []healthhttp.Check{
			{Name: "startup", Run: func(context.Context) error { return c.ready.err() }},
			{Name: "database", Run: c.store.Ping},
			{Name: "lease", Run: func(context.Context) error {
				if !c.engine.LeaseFresh() {
					return errors.New("the lease in the database has not been renewed in time")
				}
				return nil
			}},
		},
	})
	g, _ := task.New(ctx)
	g.Go("http", func(ctx context.Context) error { return srv.Serve(ctx, c.listeners.http) })
	g.Go("gauges", c.refreshGauges)
	return g.Wait()
}

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

func (c *Controller) countFleet(ctx context.Context) error {
	counts, err := c.store.CountMachines(ctx)
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
	sites, err := c.store.ListSites(ctx, "", math.MaxInt32)
	if err != nil {
		return err
	}
	c.metrics.SetCapacity(capacityOf(sites))
	unwakeable, err := c.store.CountUnwakeable(ctx, c.clock.Now())
	if err != nil {
		return err
	}
	c.metrics.OperationsUnwakeable.Set(float64(unwakeable))
	_, safe, err := c.store.HeadCursor(ctx)
	if err != nil {
		return err
	}
	c.metrics.CursorLag.Set(c.clock.Now().Sub(safe).Seconds())
	roles := map[string]int{"host": 0, "site": 0}
	for _, s := range c.sessions.All() {
		roles[s.Role]++
	}
	for role, n := range roles {
		c.metrics.Sessions.WithLabelValues(role).Set(float64(n))
	}
	return nil
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

// observer hands the engine's observations to the metrics.
type observer struct{ m *metrics.Metrics }

var _ engine.Observer = observer{}

func (o observer) Ended(kind, outcome string, took time.Duration) {
	o.m.Operations.WithLabelValues(kind, outcome).Inc()
	o.m.OperationSeconds.WithLabelValues(kind, outcome).Observe(took.Seconds())
}

func (o observer) Dispatched(kind string, took time.Duration) {
	o.m.CommandLatency.WithLabelValues(kind, metrics.StageDispatch).Observe(took.Seconds())
}

func (o observer) Done(kind string, took time.Duration) {
	o.m.CommandLatency.WithLabelValues(kind, metrics.StageDone).Observe(took.Seconds())
}

func (o observer) Sent(outcome string) { o.m.WebhookDeliveries.WithLabelValues(outcome).Inc() }

// Refused and Waited are about calls of clients.
func (o observer) Refused(client, why string) { o.m.CallsRefused.WithLabelValues(client, why).Inc() }

func (o observer) Waited(took time.Duration, running, waiting int) {
	o.m.CallWait.Observe(took.Seconds())
	o.m.CallsRunning.Set(float64(running))
	o.m.CallsWaiting.Set(float64(waiting))
}

func (o observer) Rescued(n int) { o.m.OperationsRescued.Add(float64(n)) }

func (o observer) Stuck(n int) { o.m.OperationsStuck.Set(float64(n)) }

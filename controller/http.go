package controller

import (
	"context"
	"errors"
	"sync"
	"time"

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
		Logger:   c.log, Requested: c.servers.HTTP().Requested,
		Checks: []healthhttp.Check{
			{Name: "startup", Run: func(context.Context) error { return c.ready.err() }},
			{Name: "database", Run: c.store.DB.Ping},
			{Name: "writes", Run: func(context.Context) error {
				if !c.engine.Written() {
					return errors.New("the database has stored nothing for four seconds")
				}
				return nil
			}},
			{Name: "lease", Run: func(context.Context) error {
				if !c.engine.LeaseFresh() {
					return errors.New("the lease in the database has not been renewed in time")
				}
				return nil
			}},
		},
	})
	g, _ := task.New(ctx)
	g.Go("http", func(ctx context.Context) error { return srv.Serve(ctx, c.servers.HTTP()) })
	g.Go("gauges", c.gauges().refresh)
	return g.Wait()
}

func (c *Controller) gauges() *gauges {
	return &gauges{
		store: c.store, sessions: c.sessions, blobs: c.blobs, ca: c.ca, certs: c.certs,
		frontpageEnds: c.servers.FrontpageEnds, ready: c.ready.err, metrics: c.metrics, clock: c.clock, log: c.log,
		version: c.version, id: c.id,
	}
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

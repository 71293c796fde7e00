// Package delivery turns events into deliveries of webhooks, sends them, and removes old ones. River has a queue for
// each webhook.
package delivery

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/ingot-metal/ingot/controller/engine/uniquejob"
	"github.com/ingot-metal/ingot/controller/secret"
	webhookstore "github.com/ingot-metal/ingot/controller/store/webhook"
	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/clock"
)

// Config is what it takes to send events to other systems.
type Config struct {
	Sender  *webhook.Sender
	Secrets *secret.Box
	// Source tells one installation from another in the events; "/ingot" when empty.
	Source   string
	Schedule webhook.Schedule
	// Limits bound what is kept; where they are zero delivered events stay for a week, dead ones for 30 days, and 100,000
	// pending ones pause a webhook.
	Limits webhookstore.WebhookLimits
}

func (c Config) filled() Config {
	out := c
	out.Schedule = c.Schedule.Filled()
	out.Source = cmp.Or(c.Source, "/ingot")
	out.Limits.KeepDelivered = cmp.Or(c.Limits.KeepDelivered, 7*24*time.Hour)
	out.Limits.KeepDead = cmp.Or(c.Limits.KeepDead, 30*24*time.Hour)
	out.Limits.MaxPending = cmp.Or(c.Limits.MaxPending, 100_000)
	return out
}

const (
	// fanOutPage is how many events become deliveries in one transaction.
	fanOutPage = 500
	// fanOutPause lets events gather: one transaction for many of them.
	fanOutPause = 50 * time.Millisecond
	// overduePage is how many late deliveries the sweep takes at once.
	overduePage = 1000
)

// Parts are what a Publisher works with.
type Parts struct {
	Store *webhookstore.Store
	Clock clock.Clock
	Log   *slog.Logger
	// Changed is closed at the next change that this controller commits, or hears of.
	Changed func() <-chan struct{}
	// Sent counts tries by outcome: delivered, retried, dead.
	Sent func(outcome string)
}

// Publisher sends the events of one controller.
type Publisher struct {
	hooks   Config
	store   *webhookstore.Store
	clock   clock.Clock
	log     *slog.Logger
	changed func() <-chan struct{}
	sent    func(outcome string)
	river   *river.Client[pgx.Tx]
	// queues are River's queues of webhooks and their workers; only one task touches them.
	queues map[string]int
}

// New returns a publisher whose workers are among the given ones. It sends nothing before Use.
func New(c Config, p Parts, workers *river.Workers) *Publisher {
	out := &Publisher{
		hooks: c.filled(), store: p.Store, clock: p.Clock, log: p.Log, changed: p.Changed, sent: p.Sent,
		queues: map[string]int{},
	}
	river.AddWorker(workers, &deliverWorker{p: out})
	river.AddWorker(workers, &retentionWorker{p: out})
	return out
}

// Use has the publisher insert its jobs by this client, which has its workers.
func (p *Publisher) Use(client *river.Client[pgx.Tx]) {
	p.river = client
	p.store.OnDeliveries(p.enqueueDeliveries)
}

// FanOut turns events into deliveries for a second: at once, and soon after each change that this controller has made.
// While nobody subscribes it only asks for that.
func (p *Publisher) FanOut(ctx context.Context) error {
	second := p.clock.After(time.Second)
	active, err := p.syncQueues(ctx)
	if err != nil || !active {
		return err
	}
	for {
		changed := p.changed()
		if err := p.fanOut(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-second:
			return nil
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.clock.After(fanOutPause):
		}
	}
}

func (p *Publisher) fanOut(ctx context.Context) error {
	for {
		out, err := p.store.FanOut(ctx, p.hooks.Source, fanOutPage, p.clock.Now())
		if err != nil || !out.More {
			return err
		}
	}
}

// syncQueues gives each webhook a queue of its own, so that a slow receiver keeps nobody else's events waiting. It says
// whether any webhook is active.
func (p *Publisher) syncQueues(ctx context.Context) (active bool, err error) {
	all, err := p.store.WebhookQueues(ctx)
	if err != nil {
		return false, err
	}
	want := map[string]int{}
	for _, w := range all {
		want[queueOf(w.WebhookID)] = w.MaxConcurrency
		active = active || w.Active
	}
	for name, have := range p.queues {
		if want[name] != have {
			if err := p.removeQueue(ctx, name, want[name] == 0); err != nil {
				return active, err
			}
		}
	}
	for name, workers := range want {
		if _, ok := p.queues[name]; ok {
			continue
		}
		err := p.river.Queues().Add(name, river.QueueConfig{MaxWorkers: workers, FetchCooldown: 5 * time.Millisecond,
			FetchPollInterval: time.Second})
		if err != nil {
			return active, fmt.Errorf("add queue: %w", err)
		}
		p.queues[name] = workers
	}
	return active, nil
}

// removeQueue stops a queue. One whose requests are still under way is removed a second later.
func (p *Publisher) removeQueue(ctx context.Context, name string, gone bool) error {
	limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	err := p.river.Queues().Remove(limited, name)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove queue: %w", err)
	}
	delete(p.queues, name)
	if !gone {
		return nil
	}
	// Nobody will ever work these.
	if _, err := p.river.JobDeleteMany(ctx, river.NewJobDeleteManyParams().Queues(name).First(10_000)); err != nil {
		return fmt.Errorf("remove jobs of a deleted webhook: %w", err)
	}
	return nil
}

// queueOf names a webhook's queue: River's names are shorter than ids may be, and of fewer characters.
func queueOf(webhookID string) string {
	sum := sha256.Sum256([]byte(webhookID))
	return "webhook_" + hex.EncodeToString(sum[:16])
}

// enqueueDeliveries puts a job for each delivery into the transaction that makes them.
func (p *Publisher) enqueueDeliveries(ctx context.Context, tx pgx.Tx, jobs []webhookstore.DeliveryJob) error {
	if _, err := p.river.InsertManyTx(ctx, tx, deliverJobs(jobs)); err != nil {
		return fmt.Errorf("enqueue deliveries: %w", err)
	}
	return nil
}

func deliverJobs(jobs []webhookstore.DeliveryJob) []river.InsertManyParams {
	out := make([]river.InsertManyParams, 0, len(jobs))
	for _, j := range jobs {
		out = append(out, river.InsertManyParams{
			Args:       deliverArgs{DeliveryID: j.DeliveryID, Round: j.Round},
			InsertOpts: &river.InsertOpts{Queue: queueOf(j.WebhookID)},
		})
	}
	return out
}

// Sweep has somebody try what nobody has tried in its time, whatever River's tables say. A job that is still
// waiting swallows the second one; it no longer waits for the time of a clock that was ahead.
func (p *Publisher) Sweep(ctx context.Context) error {
	late, err := p.store.OverdueDeliveries(ctx, p.clock.Now(), overduePage)
	if err != nil || len(late) == 0 {
		return err
	}
	if _, err := p.river.InsertMany(ctx, deliverJobs(late)); err != nil {
		return fmt.Errorf("enqueue late deliveries: %w", err)
	}
	hastened, err := p.store.HastenDeliveries(ctx, JobKind, late)
	if hastened > 0 {
		p.log.Info("webhook deliveries that waited by a clock that was ahead are sent now", "deliveries", hastened)
	}
	return err
}

// tidyWebhooks bounds what is kept.
func (p *Publisher) tidyWebhooks(ctx context.Context) error {
	paused, err := p.store.TidyWebhooks(ctx, p.hooks.Limits, p.clock.Now())
	for _, id := range paused {
		p.log.Warn("webhook paused: too many deliveries wait", "webhook_id", id, "reason", webhook.ReasonBacklog)
	}
	return err
}

// retentionEvery is how often old deliveries are removed.
const retentionEvery = time.Minute

// retentionArgs ask for the removal of old webhook deliveries, and for a pause of webhooks with too many.
type retentionArgs struct{}

// Kind implements river.JobArgs.
func (retentionArgs) Kind() string { return "webhook_retention" }

// InsertOpts implements river.JobArgsWithInsertOpts.
func (retentionArgs) InsertOpts() river.InsertOpts { return uniquejob.Options() }

type retentionWorker struct {
	river.WorkerDefaults[retentionArgs]
	p *Publisher
}

// Work implements river.Worker.
func (w *retentionWorker) Work(ctx context.Context, _ *river.Job[retentionArgs]) error {
	return w.p.tidyWebhooks(ctx)
}

// PeriodicJob is inserted by the controller that leads River's queue.
func (p *Publisher) PeriodicJob() *river.PeriodicJob {
	return river.NewPeriodicJob(river.PeriodicInterval(retentionEvery),
		func() (river.JobArgs, *river.InsertOpts) { return retentionArgs{}, nil }, nil)
}

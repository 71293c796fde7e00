package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/ingot-metal/ingot/controller/secret"
	webhookstore "github.com/ingot-metal/ingot/controller/store/webhook"
	"github.com/ingot-metal/ingot/controller/webhook"
)

// Webhooks is what it takes to send events to other systems.
type Webhooks struct {
	Sender  *webhook.Sender
	Secrets *secret.Box
	// Source tells one installation from another in the events; "/ingot" when empty.
	Source   string
	Schedule webhook.Schedule
	// Limits bound what is kept; where they are zero delivered events stay for a week, dead ones for 30 days, and 100,000
	// pending ones pause a webhook.
	Limits webhookstore.WebhookLimits
}

func (w *Webhooks) filled() *Webhooks {
	out := *w
	out.Schedule = w.Schedule.Filled()
	out.Source = cmp.Or(w.Source, "/ingot")
	out.Limits.KeepDelivered = cmp.Or(w.Limits.KeepDelivered, 7*24*time.Hour)
	out.Limits.KeepDead = cmp.Or(w.Limits.KeepDead, 30*24*time.Hour)
	out.Limits.MaxPending = cmp.Or(w.Limits.MaxPending, 100_000)
	return &out
}

const (
	// fanOutPage is how many events become deliveries in one transaction.
	fanOutPage = 500
	// fanOutPause lets events gather: one transaction for many of them.
	fanOutPause = 50 * time.Millisecond
	// overduePage is how many late deliveries the sweep takes at once.
	overduePage = 1000
)

// fanOuts turns events into deliveries: soon after a change that this controller has made, and once a second. While
// nobody subscribes it asks for no more than that, once a second.
func (e *Engine) fanOuts(ctx context.Context) error {
	return e.every(ctx, time.Second, "webhooks", func(ctx context.Context) error {
		second := e.clock.After(time.Second)
		active, err := e.syncQueues(ctx)
		if err != nil || !active {
			return err
		}
		for {
			changed := e.Changed()
			if err := e.fanOut(ctx); err != nil {
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
			case <-e.clock.After(fanOutPause):
			}
		}
	})
}

func (e *Engine) fanOut(ctx context.Context) error {
	for {
		out, err := e.store.FanOut(ctx, e.hooks.Source, fanOutPage, e.clock.Now())
		if err != nil || !out.More {
			return err
		}
	}
}

// syncQueues gives each webhook a queue of its own, so that a slow receiver keeps nobody else's events waiting. It says
// whether any webhook is active.
func (e *Engine) syncQueues(ctx context.Context) (active bool, err error) {
	all, err := e.store.WebhookQueues(ctx)
	if err != nil {
		return false, err
	}
	want := map[string]int{}
	for _, w := range all {
		want[queueOf(w.WebhookID)] = w.MaxConcurrency
		active = active || w.Active
	}
	for name, have := range e.queues {
		if want[name] != have {
			if err := e.removeQueue(ctx, name, want[name] == 0); err != nil {
				return active, err
			}
		}
	}
	for name, workers := range want {
		if _, ok := e.queues[name]; ok {
			continue
		}
		err := e.river.Queues().Add(name, river.QueueConfig{MaxWorkers: workers, FetchCooldown: 5 * time.Millisecond,
			FetchPollInterval: time.Second})
		if err != nil {
			return active, fmt.Errorf("add queue: %w", err)
		}
		e.queues[name] = workers
	}
	return active, nil
}

// removeQueue stops a queue. One whose requests are still under way is removed a second later.
func (e *Engine) removeQueue(ctx context.Context, name string, gone bool) error {
	limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	err := e.river.Queues().Remove(limited, name)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove queue: %w", err)
	}
	delete(e.queues, name)
	if !gone {
		return nil
	}
	// Nobody will ever work these.
	if _, err := e.river.JobDeleteMany(ctx, river.NewJobDeleteManyParams().Queues(name).First(10_000)); err != nil {
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
func (e *Engine) enqueueDeliveries(ctx context.Context, tx pgx.Tx, jobs []webhookstore.DeliveryJob) error {
	if _, err := e.river.InsertManyTx(ctx, tx, deliverJobs(jobs)); err != nil {
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

// sweepDeliveries has somebody try what nobody has tried in its time, whatever River's tables say. A job that is still
// waiting swallows the second one.
func (e *Engine) sweepDeliveries(ctx context.Context) error {
	late, err := e.store.OverdueDeliveries(ctx, e.clock.Now(), overduePage)
	if err != nil || len(late) == 0 {
		return err
	}
	if _, err := e.river.InsertMany(ctx, deliverJobs(late)); err != nil {
		return fmt.Errorf("enqueue late deliveries: %w", err)
	}
	return nil
}

// tidyWebhooks bounds what is kept.
func (e *Engine) tidyWebhooks(ctx context.Context) error {
	paused, err := e.store.TidyWebhooks(ctx, e.hooks.Limits, e.clock.Now())
	for _, id := range paused {
		e.log.Warn("webhook paused: too many deliveries wait", "webhook_id", id, "reason", webhook.ReasonBacklog)
	}
	return err
}

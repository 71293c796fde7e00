package delivery

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/riverqueue/river"

	"github.com/ingot-metal/ingot/controller/engine/uniquejob"
	webhookstore "github.com/ingot-metal/ingot/controller/store/webhook"
	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

var (
	fpBeforeSend = failpoint.Register("webhook.before-send")
	fpAfterSend  = failpoint.Register("webhook.after-send")
)

// deliverArgs asks for a delivery to be tried until it has ended. The tries are counted in the delivery's row, so that
// neither a lost job nor one that a dead controller left behind begins them anew.
type deliverArgs struct {
	DeliveryID string `json:"delivery_id" river:"unique"`
	Round      int32  `json:"round" river:"unique"`
}

// JobKind is River's kind of the jobs that deliver events.
const JobKind = "webhook_deliver"

// Kind names the job.
func (deliverArgs) Kind() string { return JobKind }

// InsertOpts makes one job per delivery and round. River counts an attempt only where a controller died in it or the
// database was away.
func (deliverArgs) InsertOpts() river.InsertOpts {
	return uniquejob.Options()
}

type deliverWorker struct {
	river.WorkerDefaults[deliverArgs]
	p *Publisher
}

// Timeout leaves time to write down what the slowest request has come to.
func (w *deliverWorker) Timeout(*river.Job[deliverArgs]) time.Duration {
	return w.p.JobTime()
}

// JobTime is how long one delivery may run.
func (p *Publisher) JobTime() time.Duration { return p.hooks.Sender.Timeout() + 10*time.Second }

// NextRetry is soon: what went wrong was ours, not the receiver's.
func (w *deliverWorker) NextRetry(*river.Job[deliverArgs]) time.Time {
	return w.p.clock.Now().Add(5 * time.Second)
}

// Work makes one try, if there is still one to make, and has River do the next in its time.
func (w *deliverWorker) Work(ctx context.Context, job *river.Job[deliverArgs]) error {
	d, err := w.p.store.LoadDelivery(ctx, job.Args.DeliveryID, w.p.clock.Now())
	if err != nil {
		return err
	}
	switch {
	case d == nil, d.State != webhook.Pending, d.Round != job.Args.Round:
		return nil
	case d.EventType == webhook.Ping:
		// A webhook that rests can be tested before it is resumed.
	case d.WebhookState != webhook.Active:
		return w.p.store.ParkDelivery(ctx, d.DeliveryJob)
	}
	if wait := d.HoldUntil.Sub(w.p.clock.Now()); wait > 0 && d.EventType != webhook.Ping {
		return river.JobSnooze(wait + rand.N(time.Second))
	}
	return w.p.try(ctx, d)
}

func (p *Publisher) try(ctx context.Context, d *webhookstore.Delivery) error {
	if err := fpBeforeSend.HitCtx(ctx); err != nil {
		return err
	}
	r, err := p.send(ctx, d)
	if err != nil {
		return err
	}
	if err := fpAfterSend.HitCtx(ctx); err != nil {
		return err
	}
	v := p.hooks.Schedule.Decide(d.EventType, d.Attempts+1, r, rand.Float64())
	state, err := p.store.RecordAttempt(ctx, d, r, v, p.hooks.Schedule, p.clock.Now())
	if err != nil {
		return err
	}
	p.logAttempt(d, r, v, state)
	p.sent(outcomeOf(r, v))
	if v.State == webhook.Pending && state == "" {
		return river.JobSnooze(v.Wait)
	}
	return nil
}

func (p *Publisher) send(ctx context.Context, d *webhookstore.Delivery) (webhook.Result, error) {
	var secrets []webhook.Secret
	for _, s := range d.Secrets {
		plain, err := p.hooks.Secrets.OpenWebhook(d.WebhookID, s.ID, s.Sealed)
		if err != nil {
			p.log.Error("webhook secret cannot be opened", "webhook_id", d.WebhookID, "secret_id", s.ID, "error", err.Error())
			continue
		}
		secrets = append(secrets, plain)
	}
	if len(secrets) == 0 {
		return webhook.Result{Problem: "no secret of the webhook can be opened with the controller's key; rotate it"}, nil
	}
	return p.hooks.Sender.Send(ctx, webhook.Request{URL: d.URL, EventID: d.EventID, Body: d.Body, Secrets: secrets})
}

func (p *Publisher) logAttempt(d *webhookstore.Delivery, r webhook.Result, v webhook.Verdict, state string) {
	log := p.log.With("webhook_id", d.WebhookID, "delivery_id", d.DeliveryID, "event_type", d.EventType, "attempt",
		d.Attempts+1)
	switch {
	case state != "":
		log.Warn("webhook is no longer active", "state", state, "reason", r.Problem)
	case v.State == webhook.Dead:
		log.Warn("webhook delivery given up", "reason", r.Problem)
	case v.State == webhook.Pending:
		log.Info("webhook delivery failed; it is tried again", "reason", r.Problem, "wait",
			v.Wait.Round(time.Second).String())
	default:
		log.Debug("webhook delivered")
	}
}

// outcomeOf is the label of the metric.
func outcomeOf(r webhook.Result, v webhook.Verdict) string {
	switch {
	case r.OK():
		return "delivered"
	case v.State == webhook.Dead:
		return "dead"
	}
	return "retried"
}

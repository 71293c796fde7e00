package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
)

// deliveryGrace is how long a delivery's job may be late before the sweep looks as well.
const deliveryGrace = 2 * time.Minute

// Delivery is what it takes to try one.
type Delivery struct {
	DeliveryJob
	EventID, EventType, State string
	Body                      []byte
	Attempts                  int
	URL                       string
	WebhookState              string
	// HoldUntil is when the receiver may be asked again.
	HoldUntil time.Time
	// Failing is set when the webhook's last try failed.
	Failing bool
	Secrets []SealedSecret
}

// LoadDelivery reads a delivery with its webhook; nil where it is gone.
func (s *Store) LoadDelivery(ctx context.Context, id string, now time.Time) (*Delivery, error) {
	r, err := s.db.Q.LoadDelivery(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read delivery: %w", err)
	}
	secrets, err := s.db.Q.SecretsOfWebhooks(ctx, dbsqlc.SecretsOfWebhooksParams{WebhookIds: []string{r.Webhook.WebhookID},
		Now: &now})
	if err != nil {
		return nil, fmt.Errorf("read secrets: %w", err)
	}
	d := r.WebhookDelivery
	out := &Delivery{
		DeliveryJob: DeliveryJob{d.DeliveryID, d.WebhookID, d.Round}, EventID: d.EventID, EventType: d.EventType,
		State: d.State,
		Body:  d.Body, Attempts: int(d.Attempts), URL: r.Webhook.Url, WebhookState: r.Webhook.State,
		HoldUntil: pgtx.TimeVal(r.Webhook.HoldUntil), Failing: r.Webhook.FailingSince != nil || r.Webhook.FailedEvents > 0,
	}
	for _, sec := range secrets {
		out.Secrets = append(out.Secrets, SealedSecret{sec.SecretID, sec.Sealed})
	}
	return out, nil
}

// ParkDelivery leaves a delivery until its webhook is resumed.
func (s *Store) ParkDelivery(ctx context.Context, j DeliveryJob) error {
	if err := s.db.Q.ParkDelivery(ctx, dbsqlc.ParkDeliveryParams{DeliveryID: j.DeliveryID, Round: j.Round}); err != nil {
		return fmt.Errorf("park delivery: %w", err)
	}
	return nil
}

// RecordAttempt stores what a try has come to. It returns the new state of the webhook where that has changed.
func (s *Store) RecordAttempt(
	ctx context.Context, d *Delivery, r webhook.Result, v webhook.Verdict, sched webhook.Schedule, now time.Time,
) (string, error) {
	var state string
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		if state, err = s.countAttempt(ctx, q, d, r, v, sched, now); err != nil || state == webhook.Disabled {
			return err
		}
		return recordAttempt(ctx, q, d, r, v, now)
	})
	if err != nil {
		return "", fmt.Errorf("record attempt: %w", err)
	}
	return state, nil
}

func recordAttempt(
	ctx context.Context, q *dbsqlc.Queries, d *Delivery, r webhook.Result, v webhook.Verdict, now time.Time,
) error {
	p := dbsqlc.RecordDeliveryParams{
		DeliveryID: d.DeliveryID, Round: d.Round, State: v.State, Attempts: int32(d.Attempts) + 1,
		LastStatus: int32(r.Status),
		LastError:  r.Problem, Now: &now,
	}
	if v.State == webhook.Pending {
		p.NextAt = pgtx.TimePtr(now.Add(v.Wait))
	} else {
		p.FinishedAt = &now
	}
	// None is hit where it was sent again or deleted meanwhile.
	if _, err := q.RecordDelivery(ctx, p); err != nil {
		return fmt.Errorf("write delivery: %w", err)
	}
	return nil
}

// countAttempt keeps the webhook's health. A ping does not affect it, unless it is answered.
func (s *Store) countAttempt(
	ctx context.Context, q *dbsqlc.Queries, d *Delivery, r webhook.Result, v webhook.Verdict, sched webhook.Schedule,
	now time.Time,
) (string, error) {
	switch {
	case r.OK() && d.Failing:
		if err := q.WebhookWorks(ctx, d.WebhookID); err != nil {
			return "", fmt.Errorf("note that the webhook works: %w", err)
		}
		return "", nil
	case r.OK(), d.EventType == webhook.Ping && !r.Gone:
		return "", nil
	case r.Gone:
		return disableGone(ctx, q, d, r, v, now)
	}
	givenUp := int32(0)
	if v.State == webhook.Dead {
		givenUp = 1
	}
	p := dbsqlc.WebhookFailsParams{WebhookID: d.WebhookID, GivenUp: givenUp, Now: &now}
	if r.RetryAfter > 0 {
		p.HoldUntil = pgtx.TimePtr(now.Add(r.RetryAfter))
	}
	w, err := q.WebhookFails(ctx, p)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil // deleted meanwhile
	}
	if err != nil {
		return "", fmt.Errorf("note that the webhook fails: %w", err)
	}
	if w.State != webhook.Active || !sched.ShouldPause(int(w.FailedEvents), pgtx.TimeVal(w.FailingSince), now) {
		return "", nil
	}
	return webhook.Paused, pauseWebhook(ctx, q, d.WebhookID, webhook.ReasonFailing, history.System, now)
}

// disableGone ends a webhook whose receiver wants nothing any more, and all that is pending for it.
func disableGone(
	ctx context.Context, q *dbsqlc.Queries, d *Delivery, r webhook.Result, v webhook.Verdict, now time.Time,
) (string, error) {
	w, err := q.LockWebhook(ctx, d.WebhookID)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("lock webhook: %w", err)
	}
	if err := recordAttempt(ctx, q, d, r, v, now); err != nil {
		return "", err
	}
	if w.State != webhook.Disabled {
		if err := setWebhookState(ctx, q, d.WebhookID, webhook.Disabled, webhook.ReasonGone, history.System,
			now); err != nil {
			return "", err
		}
	}
	if err := q.BuryDeliveries(ctx, dbsqlc.BuryDeliveriesParams{WebhookID: d.WebhookID, Now: &now,
		Reason: "the receiver answered HTTP 410 Gone"}); err != nil {
		return "", fmt.Errorf("bury deliveries: %w", err)
	}
	return webhook.Disabled, nil
}

// DeliveryFilter narrows a list of deliveries. Empty fields match everything.
type DeliveryFilter struct {
	WebhookID, DeliveryID, State string
	// BeforeTime and BeforeID are the position of the last row of the page before.
	BeforeTime time.Time
	BeforeID   string
	Limit      int32
}

// ListDeliveries reads deliveries, newest first.
func (s *Store) ListDeliveries(ctx context.Context, f DeliveryFilter) ([]*baremetalv1.WebhookDelivery, error) {
	rows, err := s.db.Lists(ctx).ListDeliveries(ctx, dbsqlc.ListDeliveriesParams{
		WebhookID: f.WebhookID, DeliveryID: f.DeliveryID, State: f.State, BeforeTime: f.BeforeTime, BeforeID: f.BeforeID,
		PageSize: f.Limit,
	})
	if err != nil {
		return nil, fmt.Errorf("list deliveries: %w", err)
	}
	out := make([]*baremetalv1.WebhookDelivery, 0, len(rows))
	for _, r := range rows {
		out = append(out, &baremetalv1.WebhookDelivery{
			DeliveryId: r.DeliveryID, WebhookId: r.WebhookID, EventType: r.EventType, State: r.State, Attempts: r.Attempts,
			LastError: r.LastError, EventId: r.EventID, Subject: r.Subject, MachineId: r.MachineID, LastStatus: r.LastStatus,
			CreatedAt: convert.Timestamp(r.CreatedAt), LastAttemptAt: convert.TimestampPtr(r.LastAttemptAt),
			NextAt:     convert.TimestampPtr(r.NextAt),
			FinishedAt: convert.TimestampPtr(r.FinishedAt),
		})
	}
	return out, nil
}

// GetDelivery reads one delivery.
func (s *Store) GetDelivery(ctx context.Context, id string) (*baremetalv1.WebhookDelivery, error) {
	all, err := s.ListDeliveries(ctx, DeliveryFilter{DeliveryID: id, Limit: 1})
	if err != nil {
		return nil, err
	}
	if id == "" || len(all) == 0 {
		return nil, deliveryNotFound(id)
	}
	return all[0], nil
}

func deliveryNotFound(id string) error {
	return failure.NotFound("DELIVERY_NOT_FOUND", "there is no delivery %q; ended ones are kept for a while only",
		id).WithField("delivery_id", "unknown")
}

// Redeliver sends an event once more, under its id. One that is pending stays as it is.
func (s *Store) Redeliver(ctx context.Context, id, actor string, now time.Time) (*baremetalv1.WebhookDelivery, error) {
	err := s.db.InTx(ctx, func(tx pgx.Tx, q *dbsqlc.Queries) error {
		d, err := q.LockDelivery(ctx, id)
		if errors.Is(err, pgx.ErrNoRows) {
			return deliveryNotFound(id)
		}
		if err != nil {
			return fmt.Errorf("lock delivery: %w", err)
		}
		if d.State == webhook.Pending {
			return nil
		}
		if err := q.RestartDelivery(ctx, dbsqlc.RestartDeliveryParams{DeliveryID: id, NextAt: &now}); err != nil {
			return fmt.Errorf("restart delivery: %w", err)
		}
		err = history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "REDELIVER_WEBHOOK", Target: d.WebhookID,
			Data: map[string]string{"delivery_id": id}}, now)
		if err != nil {
			return err
		}
		return s.enqueueDeliveries(ctx, tx, []DeliveryJob{{id, d.WebhookID, d.Round + 1}})
	})
	if err != nil {
		return nil, fmt.Errorf("redeliver: %w", err)
	}
	return s.GetDelivery(ctx, id)
}

// PingWebhook sends an event of type ping to one webhook.
func (s *Store) PingWebhook(
	ctx context.Context, webhookID, source, actor string, now time.Time,
) (*baremetalv1.WebhookDelivery, error) {
	e := webhook.Event{ID: ids.New(ids.Event), Type: webhook.Ping, Subject: webhookID, Time: now}
	body, err := webhook.Body(source, e)
	if err != nil {
		return nil, err
	}
	d := &newDeliveries{}
	d.add(webhookID, e, body)
	err = s.db.InTx(ctx, func(tx pgx.Tx, q *dbsqlc.Queries) error {
		if _, err := q.LockWebhook(ctx, webhookID); errors.Is(err, pgx.ErrNoRows) {
			return webhookNotFound(webhookID)
		} else if err != nil {
			return fmt.Errorf("lock webhook: %w", err)
		}
		if err := s.insertDeliveries(ctx, tx, q, d, now); err != nil {
			return err
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "TEST_WEBHOOK", Target: webhookID}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("test webhook: %w", err)
	}
	return s.GetDelivery(ctx, d.jobs[0].DeliveryID)
}

// OverdueDeliveries takes pending deliveries that were not tried for long after their time.
func (s *Store) OverdueDeliveries(ctx context.Context, now time.Time, limit int32) ([]DeliveryJob, error) {
	rows, err := s.db.Q.ClaimDueDeliveries(ctx, dbsqlc.ClaimDueDeliveriesParams{
		Overdue: pgtx.TimePtr(now.Add(-deliveryGrace)), PushTo: &now, MaxRows: limit,
	})
	if err != nil {
		return nil, fmt.Errorf("claim overdue deliveries: %w", err)
	}
	out := make([]DeliveryJob, 0, len(rows))
	for _, r := range rows {
		out = append(out, DeliveryJob{r.DeliveryID, r.WebhookID, r.Round})
	}
	return out, nil
}

// HastenDeliveries makes the jobs of late deliveries available that wait for a time of a clock that was ahead. It
// returns how many. The table of jobs is River's.
func (s *Store) HastenDeliveries(ctx context.Context, kind string, late []DeliveryJob) (int64, error) {
	ids := make([]string, 0, len(late))
	for _, d := range late {
		ids = append(ids, d.DeliveryID)
	}
	tag, err := s.db.Pool().Exec(ctx, `UPDATE river_job SET state = 'available', scheduled_at = now()
		WHERE state IN ('available', 'retryable', 'scheduled') AND kind = $1 AND scheduled_at > now()
		AND args ->> 'delivery_id' = ANY($2)`, kind, ids)
	if err != nil {
		return 0, fmt.Errorf("hasten deliveries: %w", err)
	}
	return tag.RowsAffected(), nil
}

// WebhookQueue has the limits of the work on a webhook's deliveries.
type WebhookQueue struct {
	WebhookID      string
	MaxConcurrency int
	Active         bool
}

// WebhookBacklog counts the deliveries that wait, and returns since when the oldest does: now where none waits.
func (s *Store) WebhookBacklog(ctx context.Context) (waiting int64, oldest time.Time, err error) {
	row, err := s.db.Q.WebhookBacklog(ctx)
	return row.Waiting, row.Oldest, err
}

// WebhookQueues reads all webhooks, whatever their state.
func (s *Store) WebhookQueues(ctx context.Context) ([]WebhookQueue, error) {
	rows, err := s.db.Q.WebhookQueues(ctx)
	if err != nil {
		return nil, fmt.Errorf("read webhooks: %w", err)
	}
	out := make([]WebhookQueue, 0, len(rows))
	for _, r := range rows {
		out = append(out, WebhookQueue{r.WebhookID, int(r.MaxConcurrency), r.Active})
	}
	return out, nil
}

// WebhookLimits bound the kept deliveries.
type WebhookLimits struct {
	// KeepDelivered and KeepDead are how long ended deliveries stay.
	KeepDelivered, KeepDead time.Duration
	// MaxPending deliveries pause a webhook.
	MaxPending int32
}

// TidyWebhooks removes deliveries that ended long ago and secrets that have expired, and pauses webhooks that cannot
// keep up. It returns the paused ones.
func (s *Store) TidyWebhooks(ctx context.Context, l WebhookLimits, now time.Time) ([]string, error) {
	if err := s.db.Q.DropExpiredSecrets(ctx, &now); err != nil {
		return nil, fmt.Errorf("drop expired secrets: %w", err)
	}
	for {
		const batch = 5000
		n, err := s.db.Q.PruneDeliveries(ctx, dbsqlc.PruneDeliveriesParams{
			DeliveredBefore: now.Add(-l.KeepDelivered), DeadBefore: now.Add(-l.KeepDead), MaxRows: batch,
		})
		if err != nil {
			return nil, fmt.Errorf("prune deliveries: %w", err)
		}
		if n < batch {
			break
		}
	}
	full, err := s.db.Q.OverfullWebhooks(ctx, l.MaxPending)
	if err != nil {
		return nil, fmt.Errorf("look for webhooks that cannot keep up: %w", err)
	}
	for _, id := range full {
		err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
			return pauseWebhook(ctx, q, id, webhook.ReasonBacklog, history.System, now)
		})
		if err != nil {
			return nil, err
		}
	}
	return full, nil
}

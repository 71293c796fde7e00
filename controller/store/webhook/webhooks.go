package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/failure"
)

// WebhookSpec is an operator's settings of a webhook. The filter is normalized.
type WebhookSpec struct {
	ID, URL, Filter string
	EventTypes      []string
	MaxConcurrency  int32
}

// SealedSecret is a webhook's secret as it is stored: only who has the key can read it.
type SealedSecret struct {
	ID     string
	Sealed []byte
}

func webhookNotFound(id string) error {
	return failure.NotFound("WEBHOOK_NOT_FOUND", "there is no webhook %q", id).WithField("webhook_id", "unknown")
}

// CreateWebhook stores a webhook and its first secret. created is false where the same webhook was there already.
func (s *Store) CreateWebhook(
	ctx context.Context, w WebhookSpec, sec SealedSecret, actor string, now time.Time,
) (out *baremetalv1.Webhook, created bool, err error) {
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		created = false
		if err := startFeed(ctx, q); err != nil {
			return err
		}
		n, err := q.InsertWebhook(ctx, dbsqlc.InsertWebhookParams{
			WebhookID: w.ID, Url: w.URL, EventTypes: pgtx.NonNil(w.EventTypes), Filter: w.Filter,
			MaxConcurrency: w.MaxConcurrency,
			WantsMachines:  webhook.WantsMachines(w.EventTypes), CreatedAt: now,
		})
		if err != nil {
			return fmt.Errorf("insert webhook: %w", err)
		}
		if n == 0 {
			return sameWebhook(ctx, q, w)
		}
		created = true
		err = q.InsertWebhookSecret(ctx, dbsqlc.InsertWebhookSecretParams{WebhookID: w.ID, SecretID: sec.ID,
			Sealed: sec.Sealed, Now: now})
		if err != nil {
			return fmt.Errorf("insert secret: %w", err)
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "CREATE_WEBHOOK", Target: w.ID,
			Data: specData(w)}, now)
	})
	if err != nil {
		return nil, false, fmt.Errorf("create webhook: %w", err)
	}
	out, err = s.GetWebhook(ctx, w.ID, now)
	return out, created, err
}

func specData(w WebhookSpec) map[string]string {
	return map[string]string{"url": w.URL, "event_types": strings.Join(w.EventTypes, " "), "filter": w.Filter}
}

// startFeed lets the feed of events begin here, if it was not needed so far.
func startFeed(ctx context.Context, q *dbsqlc.Queries) error {
	if _, err := q.HoldWebhookFeed(ctx); err != nil {
		return fmt.Errorf("hold the feed: %w", err)
	}
	active, err := q.ActiveWebhooks(ctx)
	if err != nil {
		return fmt.Errorf("read webhooks: %w", err)
	}
	if len(active) > 0 {
		return nil
	}
	if err := errors.Join(q.StartWebhookFeed(ctx), q.EmptyOutbox(ctx), q.EmptyRolloutOutbox(ctx),
		q.EmptySiteOutbox(ctx)); err != nil {
		return fmt.Errorf("start the feed: %w", err)
	}
	return nil
}

// sameWebhook refuses another webhook under the name of one that is there.
func sameWebhook(ctx context.Context, q *dbsqlc.Queries, w WebhookSpec) error {
	have, err := q.LockWebhook(ctx, w.ID)
	if errors.Is(err, pgx.ErrNoRows) {
		return pgtx.ErrLostVersion // deleted in between: again
	}
	if err != nil {
		return fmt.Errorf("read webhook: %w", err)
	}
	if have.Url != w.URL || have.Filter != w.Filter || !slices.Equal(have.EventTypes, pgtx.NonNil(w.EventTypes)) ||
		have.MaxConcurrency != w.MaxConcurrency {
		return failure.AlreadyExists("WEBHOOK_EXISTS",
			"webhook %q exists and is another one; update it, or choose another name", w.ID).
			WithField("webhook.webhook_id", "taken")
	}
	return nil
}

// GetWebhook reads one webhook.
func (s *Store) GetWebhook(ctx context.Context, id string, now time.Time) (*baremetalv1.Webhook, error) {
	all, err := s.webhooks(ctx, dbsqlc.ListWebhooksParams{WebhookID: id, PageSize: 1}, now)
	if err != nil {
		return nil, err
	}
	if id == "" || len(all) == 0 {
		return nil, webhookNotFound(id)
	}
	return all[0], nil
}

// ListWebhooks reads webhooks by id.
func (s *Store) ListWebhooks(
	ctx context.Context, afterID string, limit int32, now time.Time,
) ([]*baremetalv1.Webhook, error) {
	return s.webhooks(ctx, dbsqlc.ListWebhooksParams{AfterID: afterID, PageSize: limit}, now)
}

func (s *Store) webhooks(
	ctx context.Context, p dbsqlc.ListWebhooksParams, now time.Time,
) ([]*baremetalv1.Webhook, error) {
	rows, err := s.db.Lists(ctx).ListWebhooks(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("list webhooks: %w", err)
	}
	var idList []string
	for _, r := range rows {
		idList = append(idList, r.Webhook.WebhookID)
	}
	secrets, err := s.db.Q.SecretsOfWebhooks(ctx, dbsqlc.SecretsOfWebhooksParams{WebhookIds: pgtx.NonNil(idList),
		Now: &now})
	if err != nil {
		return nil, fmt.Errorf("read secrets: %w", err)
	}
	out := make([]*baremetalv1.Webhook, 0, len(rows))
	for _, r := range rows {
		m := webhookMessage(r.Webhook)
		m.PendingDeliveries, m.DeadDeliveries = r.Pending, r.Dead
		for _, sec := range secrets {
			if sec.WebhookID == m.GetWebhookId() {
				m.Secrets = append(m.Secrets, &baremetalv1.WebhookSecret{
					SecretId: sec.SecretID, CreatedAt: convert.Timestamp(sec.CreatedAt),
					ExpiresAt: convert.TimestampPtr(sec.ExpiresAt),
				})
			}
		}
		out = append(out, m)
	}
	return out, nil
}

func webhookMessage(w dbsqlc.Webhook) *baremetalv1.Webhook {
	return &baremetalv1.Webhook{
		WebhookId: w.WebhookID, Url: w.Url, EventTypes: w.EventTypes, Filter: w.Filter, Enabled: w.State == webhook.Active,
		State: w.State, StateReason: w.StateReason, StateChangedAt: convert.Timestamp(w.StateChangedAt),
		CreatedAt: convert.Timestamp(w.CreatedAt),
		UpdatedAt: convert.Timestamp(w.UpdatedAt), MaxConcurrency: w.MaxConcurrency,
		FailingSince: convert.TimestampPtr(w.FailingSince),
		FailedEvents: w.FailedEvents, HoldUntil: convert.TimestampPtr(w.HoldUntil), Version: w.Version,
	}
}

// WebhookChange is what UpdateWebhook does. Nil fields stay as they are.
type WebhookChange struct {
	URL, Filter    *string
	EventTypes     *[]string
	MaxConcurrency *int32
	// Active pauses or resumes.
	Active *bool
	// NewSecret signs from now on, and those of before until Overlap has passed.
	NewSecret *SealedSecret
	Overlap   time.Duration
}

// UpdateWebhook changes a webhook. The same change again changes nothing, except that a new secret is one more.
func (s *Store) UpdateWebhook(
	ctx context.Context, id string, c WebhookChange, actor string, now time.Time, opts ...pgtx.WriteOption,
) (*baremetalv1.Webhook, error) {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		if c.Active != nil && *c.Active {
			if err := startFeed(ctx, q); err != nil {
				return err
			}
		}
		have, err := q.LockWebhook(ctx, id)
		if errors.Is(err, pgx.ErrNoRows) {
			return webhookNotFound(id)
		}
		if err != nil {
			return fmt.Errorf("lock webhook: %w", err)
		}
		if err := pgtx.ConditionsOf(opts).Check("webhook "+id, pgtx.ResourceExists,
			pgtx.Stored{Exists: true, Version: have.Version}); err != nil {
			return err
		}
		if err := changeSpec(ctx, q, have, c, actor, now); err != nil {
			return err
		}
		if err := changeActive(ctx, q, have, c.Active, actor, now); err != nil {
			return err
		}
		return rotateSecret(ctx, q, id, c, actor, now)
	})
	if err != nil {
		return nil, fmt.Errorf("update webhook: %w", err)
	}
	return s.GetWebhook(ctx, id, now)
}

func changeSpec(
	ctx context.Context, q *dbsqlc.Queries, have dbsqlc.Webhook, c WebhookChange, actor string, now time.Time,
) error {
	want := WebhookSpec{ID: have.WebhookID, URL: have.Url, Filter: have.Filter, EventTypes: have.EventTypes,
		MaxConcurrency: have.MaxConcurrency}
	set(&want.URL, c.URL)
	set(&want.Filter, c.Filter)
	set(&want.EventTypes, c.EventTypes)
	set(&want.MaxConcurrency, c.MaxConcurrency)
	if want.URL == have.Url && want.Filter == have.Filter && want.MaxConcurrency == have.MaxConcurrency &&
		slices.Equal(want.EventTypes, have.EventTypes) {
		return nil
	}
	err := q.UpdateWebhook(ctx, dbsqlc.UpdateWebhookParams{
		WebhookID: want.ID, Url: want.URL, EventTypes: pgtx.NonNil(want.EventTypes), Filter: want.Filter,
		WantsMachines: webhook.WantsMachines(want.EventTypes), MaxConcurrency: want.MaxConcurrency, Now: now,
	})
	if err != nil {
		return fmt.Errorf("write webhook: %w", err)
	}
	return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "UPDATE_WEBHOOK", Target: want.ID,
		Data: specData(want)}, now)
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func changeActive(
	ctx context.Context, q *dbsqlc.Queries, have dbsqlc.Webhook, active *bool, actor string, now time.Time,
) error {
	switch {
	case active == nil || *active == (have.State == webhook.Active):
		return nil
	case *active:
		if err := setWebhookState(ctx, q, have.WebhookID, webhook.Active, "", actor, now); err != nil {
			return err
		}
		if err := q.ReleaseDeliveries(ctx, dbsqlc.ReleaseDeliveriesParams{WebhookID: have.WebhookID,
			Now: longAgo(now)}); err != nil {
			return fmt.Errorf("release deliveries: %w", err)
		}
		return nil
	case have.State == webhook.Disabled:
		return nil // it rests already, and why must stay to be seen
	}
	return pauseWebhook(ctx, q, have.WebhookID, webhook.ReasonOperator, actor, now)
}

// longAgo makes the sweep take a delivery at once.
func longAgo(now time.Time) *time.Time { return pgtx.TimePtr(now.Add(-2 * deliveryGrace)) }

func setWebhookState(ctx context.Context, q *dbsqlc.Queries, id, state, reason, actor string, now time.Time) error {
	err := q.SetWebhookState(ctx, dbsqlc.SetWebhookStateParams{WebhookID: id, State: state, StateReason: reason, Now: now})
	if err != nil {
		return fmt.Errorf("set state of webhook: %w", err)
	}
	verb := map[string]string{webhook.Active: "RESUME_WEBHOOK", webhook.Paused: "PAUSE_WEBHOOK",
		webhook.Disabled: "DISABLE_WEBHOOK"}[state]
	return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: verb, Target: id,
		Data: map[string]string{"reason": reason}}, now)
}

// pauseWebhook stops a webhook; pending deliveries wait until it is resumed.
func pauseWebhook(ctx context.Context, q *dbsqlc.Queries, id, reason, actor string, now time.Time) error {
	if err := setWebhookState(ctx, q, id, webhook.Paused, reason, actor, now); err != nil {
		return err
	}
	if err := q.HoldDeliveries(ctx, id); err != nil {
		return fmt.Errorf("hold deliveries: %w", err)
	}
	return nil
}

func rotateSecret(
	ctx context.Context, q *dbsqlc.Queries, id string, c WebhookChange, actor string, now time.Time,
) error {
	if c.NewSecret == nil {
		return nil
	}
	err := q.InsertWebhookSecret(ctx, dbsqlc.InsertWebhookSecretParams{
		WebhookID: id, SecretID: c.NewSecret.ID, Sealed: c.NewSecret.Sealed, Now: now,
	})
	if err != nil {
		return fmt.Errorf("insert secret: %w", err)
	}
	err = q.ExpireWebhookSecrets(ctx, dbsqlc.ExpireWebhookSecretsParams{
		WebhookID: id, ExpiresAt: now.Add(c.Overlap), ExceptID: c.NewSecret.ID,
	})
	if err != nil {
		return fmt.Errorf("let old secrets expire: %w", err)
	}
	return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "ROTATE_WEBHOOK_SECRET", Target: id,
		Data: map[string]string{"secret_id": c.NewSecret.ID}}, now)
}

// DeleteWebhook removes a webhook with all that belongs to it, and returns it as it was.
func (s *Store) DeleteWebhook(
	ctx context.Context, id, actor string, now time.Time, opts ...pgtx.WriteOption,
) (*baremetalv1.Webhook, error) {
	var row dbsqlc.Webhook
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		if row, err = q.LockWebhook(ctx, id); errors.Is(err, pgx.ErrNoRows) {
			return webhookNotFound(id)
		}
		if err != nil {
			return fmt.Errorf("lock webhook: %w", err)
		}
		if err := pgtx.ConditionsOf(opts).Check("webhook "+id, pgtx.ResourceExists,
			pgtx.Stored{Exists: true, Version: row.Version}); err != nil {
			return err
		}
		if err := q.DeleteWebhook(ctx, id); err != nil {
			return fmt.Errorf("delete webhook: %w", err)
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "DELETE_WEBHOOK", Target: id,
			Data: map[string]string{"url": row.Url}}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("delete webhook: %w", err)
	}
	return webhookMessage(row), nil
}

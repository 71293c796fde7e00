package admin

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	webhookstore "github.com/ingot-metal/ingot/controller/store/webhook"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/filter"
	"github.com/ingot-metal/ingot/internal/ids"
)

const (
	maxConcurrency     = 4
	defaultConcurrency = 2
	maxEventTypes      = 32
	// defaultOverlap and maxOverlap are how long secrets of before go on signing.
	defaultOverlap = 24 * time.Hour
	maxOverlap     = 30 * 24 * time.Hour
)

// CreateWebhook implements AdminService.
func (s *Server) CreateWebhook(ctx context.Context, r *baremetalv1.CreateWebhookRequest) (*baremetalv1.Webhook, error) {
	w := r.GetWebhook()
	spec := webhookstore.WebhookSpec{ID: w.GetWebhookId(), URL: w.GetUrl(), EventTypes: w.GetEventTypes(),
		MaxConcurrency: cmp.Or(w.GetMaxConcurrency(), defaultConcurrency)}
	filter, filterErr := webhookFilter(w.GetFilter())
	err := service.FirstError(
		validate.NewID("webhook.webhook_id", spec.ID),
		s.webhookURL(spec.URL),
		eventTypes(spec.EventTypes),
		filterErr,
		concurrency(spec.MaxConcurrency),
	)
	if err != nil {
		return nil, err
	}
	spec.Filter = filter
	if spec.ID == "" {
		spec.ID = ids.New(ids.Webhook)
	}
	plain, sealed := s.newSecret(spec.ID)
	out, created, err := s.stores.Webhooks.CreateWebhook(ctx, spec, sealed, service.Actor(ctx), s.Clock.Now())
	if err != nil {
		return nil, err
	}
	if created {
		out.Secret = plain.Shown()
	}
	return out, nil
}

func (s *Server) newSecret(webhookID string) (webhook.Secret, webhookstore.SealedSecret) {
	plain, id := webhook.NewSecret(), ids.New(ids.WebhookSecret)
	return plain, webhookstore.SealedSecret{ID: id, Sealed: s.Config.Secrets.SealWebhook(webhookID, id, plain)}
}

func (s *Server) webhookURL(url string) error {
	if url == "" {
		return validate.Fault("webhook.url", "required")
	}
	if err := s.Config.WebhookPolicy.CheckURL(url); err != nil {
		return failure.Invalid("WEBHOOK_URL_REFUSED", "webhook.url: %s", err.Error()).WithField("webhook.url", err.Error())
	}
	return nil
}

func eventTypes(patterns []string) error {
	if len(patterns) > maxEventTypes {
		return validate.Fault("webhook.event_types", "more than %d", maxEventTypes)
	}
	for _, p := range patterns {
		if err := webhook.CheckPattern(p); err != nil {
			return validate.Fault("webhook.event_types", "%s", err.Error())
		}
	}
	return nil
}

// webhookFilter checks a filter and writes it in the form that is matched.
func webhookFilter(text string) (string, error) {
	terms, err := query.Machines.Parse(text)
	return filter.Format(terms), err
}

func concurrency(n int32) error {
	if n < 1 || n > maxConcurrency {
		return validate.Fault("webhook.max_concurrency", "1 to %d", maxConcurrency)
	}
	return nil
}

// GetWebhook implements AdminService.
func (s *Server) GetWebhook(ctx context.Context, r *baremetalv1.GetWebhookRequest) (*baremetalv1.Webhook, error) {
	if err := validate.Key("webhook_id", r.GetWebhookId()); err != nil {
		return nil, err
	}
	return s.stores.Webhooks.GetWebhook(ctx, r.GetWebhookId(), s.Clock.Now())
}

// ListWebhooks implements AdminService.
func (s *Server) ListWebhooks(
	ctx context.Context, r *baremetalv1.ListWebhooksRequest,
) (*baremetalv1.ListWebhooksResponse, error) {
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.Webhook]{
		Name: "webhooks", Short: true,
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.Webhook, error) {
			return s.stores.Webhooks.ListWebhooks(ctx, after.ID, limit, s.Clock.Now())
		},
		Place: service.ByID((*baremetalv1.Webhook).GetWebhookId),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListWebhooksResponse{Webhooks: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// UpdateWebhook implements AdminService.
func (s *Server) UpdateWebhook(ctx context.Context, r *baremetalv1.UpdateWebhookRequest) (*baremetalv1.Webhook, error) {
	id := r.GetWebhook().GetWebhookId()
	if err := validate.Key("webhook.webhook_id", id); err != nil {
		return nil, err
	}
	c, err := s.webhookChange(r.GetWebhook(), r.GetUpdateMask())
	if err != nil {
		return nil, err
	}
	if c.Overlap, err = overlap(r); err != nil {
		return nil, err
	}
	var plain webhook.Secret
	if r.GetRotateSecret() {
		var sealed webhookstore.SealedSecret
		plain, sealed = s.newSecret(id)
		c.NewSecret = &sealed
	}
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	out, err := s.stores.Webhooks.UpdateWebhook(ctx, id, c, service.Actor(ctx), s.Clock.Now(), opts...)
	if err != nil {
		return nil, err
	}
	if plain != nil {
		out.Secret = plain.Shown()
	}
	return out, nil
}

func (s *Server) webhookChange(
	w *baremetalv1.Webhook, mask *fieldmaskpb.FieldMask,
) (webhookstore.WebhookChange, error) {
	var c webhookstore.WebhookChange
	for _, path := range mask.GetPaths() {
		var err error
		switch path {
		case "url":
			c.URL, err = &w.Url, s.webhookURL(w.GetUrl())
		case "event_types":
			list := slices.Clone(w.GetEventTypes())
			c.EventTypes, err = &list, eventTypes(list)
		case "filter":
			var filter string
			filter, err = webhookFilter(w.GetFilter())
			c.Filter = &filter
		case "max_concurrency":
			n := cmp.Or(w.GetMaxConcurrency(), defaultConcurrency)
			c.MaxConcurrency, err = &n, concurrency(n)
		case "enabled":
			c.Active = &w.Enabled
		default:
			err = validate.Fault("update_mask", "%.100q is none of url, event_types, filter, max_concurrency, enabled", path)
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

func overlap(r *baremetalv1.UpdateWebhookRequest) (time.Duration, error) {
	if r.GetSecretOverlap() == nil {
		return defaultOverlap, nil
	}
	d := r.GetSecretOverlap().AsDuration()
	if d < 0 || d > maxOverlap || r.GetSecretOverlap().CheckValid() != nil {
		return 0, validate.Fault("secret_overlap", "0 to 30 days")
	}
	return d, nil
}

// DeleteWebhook implements AdminService.
func (s *Server) DeleteWebhook(ctx context.Context, r *baremetalv1.DeleteWebhookRequest) (*baremetalv1.Webhook, error) {
	if err := validate.Key("webhook_id", r.GetWebhookId()); err != nil {
		return nil, err
	}
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	return s.stores.Webhooks.DeleteWebhook(ctx, r.GetWebhookId(), service.Actor(ctx), s.Clock.Now(), opts...)
}

// TestWebhook implements AdminService.
func (s *Server) TestWebhook(
	ctx context.Context, r *baremetalv1.TestWebhookRequest,
) (*baremetalv1.WebhookDelivery, error) {
	if err := validate.Key("webhook_id", r.GetWebhookId()); err != nil {
		return nil, err
	}
	return s.stores.Webhooks.PingWebhook(ctx, r.GetWebhookId(), s.Config.WebhookSource, service.Actor(ctx), s.Clock.Now())
}

// ListWebhookDeliveries implements AdminService.
func (s *Server) ListWebhookDeliveries(
	ctx context.Context, r *baremetalv1.ListWebhookDeliveriesRequest,
) (*baremetalv1.ListWebhookDeliveriesResponse, error) {
	err := service.FirstError(validate.OptionalKey("webhook_id", r.GetWebhookId()),
		validate.OptionalKey("delivery_id", r.GetDeliveryId()),
		validate.OneOf("state", r.GetState(), "", webhook.Pending, webhook.Delivered, webhook.Dead))
	if err != nil {
		return nil, err
	}
	narrowed := strings.Join([]string{r.GetWebhookId(), r.GetDeliveryId(), r.GetState()}, "\x00")
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.WebhookDelivery]{
		Name: "webhook deliveries", Filter: narrowed,
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.WebhookDelivery, error) {
			return s.stores.Webhooks.ListDeliveries(ctx, webhookstore.DeliveryFilter{
				WebhookID: r.GetWebhookId(), DeliveryID: r.GetDeliveryId(), State: r.GetState(),
				BeforeTime: after.Time, BeforeID: after.ID, Limit: limit,
			})
		},
		Subject: service.Subjects(
			service.SubjectOf(r.GetWebhookId(), func(ctx context.Context, id string) (*baremetalv1.Webhook, error) {
				return s.stores.Webhooks.GetWebhook(ctx, id, s.Clock.Now())
			}),
			service.SubjectOf(r.GetDeliveryId(), s.stores.Webhooks.GetDelivery)),
		Place: service.ByTime((*baremetalv1.WebhookDelivery).GetDeliveryId,
			func(d *baremetalv1.WebhookDelivery) time.Time { return d.GetCreatedAt().AsTime() }),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListWebhookDeliveriesResponse{Deliveries: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// RedeliverWebhook implements AdminService.
func (s *Server) RedeliverWebhook(
	ctx context.Context, r *baremetalv1.RedeliverWebhookRequest,
) (*baremetalv1.WebhookDelivery, error) {
	if err := validate.Key("delivery_id", r.GetDeliveryId()); err != nil {
		return nil, err
	}
	return s.stores.Webhooks.Redeliver(ctx, r.GetDeliveryId(), service.Actor(ctx), s.Clock.Now())
}

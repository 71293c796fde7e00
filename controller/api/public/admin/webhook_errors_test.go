package admin_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
)

const hookURL = "https://hooks.example.org/x"

func creating(w *pb.Webhook) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error {
		return only(r.Admin.CreateWebhook(ctx, &pb.CreateWebhookRequest{Webhook: w}))
	}
}

func changing(w *pb.Webhook, paths ...string) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error {
		return only(r.Admin.UpdateWebhook(ctx,
			&pb.UpdateWebhookRequest{Webhook: w, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}}))
	}
}

func rotating(overlap *durationpb.Duration) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error {
		return only(r.Admin.UpdateWebhook(ctx, &pb.UpdateWebhookRequest{Webhook: &pb.Webhook{WebhookId: "there"},
			RotateSecret: true, SecretOverlap: overlap}))
	}
}

func deliveries(q *pb.ListWebhookDeliveriesRequest) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error { return only(r.Admin.ListWebhookDeliveries(ctx, q)) }
}

var badWebhooks = []badCall{
	{"no address", invalid, "INVALID_FIELD", "webhook.url", creating(&pb.Webhook{})},
	{"nothing", invalid, "INVALID_FIELD", "webhook.url", creating(nil)},
	{"not https", invalid, "WEBHOOK_URL_REFUSED", "webhook.url", creating(&pb.Webhook{Url: "http://hooks.example.org/"})},
	{"loopback", invalid, "WEBHOOK_URL_REFUSED", "webhook.url", creating(&pb.Webhook{Url: "https://127.0.0.1/"})},
	{"metadata service", invalid, "WEBHOOK_URL_REFUSED", "webhook.url",
		creating(&pb.Webhook{Url: "https://169.254.169.254/latest"})},
	{"password in the address", invalid, "WEBHOOK_URL_REFUSED", "webhook.url",
		creating(&pb.Webhook{Url: "https://u:p@hooks.example.org/"})},
	{"bad id", invalid, "INVALID_FIELD", "webhook.webhook_id", creating(&pb.Webhook{WebhookId: "No!", Url: hookURL})},
	{"unknown type", invalid, "INVALID_FIELD", "webhook.event_types",
		creating(&pb.Webhook{Url: hookURL, EventTypes: []string{"agent.died"}})},
	{"ping is not subscribed to", invalid, "INVALID_FIELD", "webhook.event_types",
		creating(&pb.Webhook{Url: hookURL, EventTypes: []string{"ping"}})},
	{"too many types", invalid, "INVALID_FIELD", "webhook.event_types",
		creating(&pb.Webhook{Url: hookURL, EventTypes: slices.Repeat([]string{"*"}, 33)})},
	{"unknown key of a filter", invalid, "INVALID_FILTER", "", creating(&pb.Webhook{Url: hookURL, Filter: "colour=red"})},
	{"value that nothing has", invalid, "INVALID_FILTER", "", creating(&pb.Webhook{Url: hookURL, Filter: "phase=ASLEEP"})},
	{"too many at once", invalid, "INVALID_FIELD", "webhook.max_concurrency",
		creating(&pb.Webhook{Url: hookURL, MaxConcurrency: 5})},
	{"fewer than one", invalid, "INVALID_FIELD", "webhook.max_concurrency",
		creating(&pb.Webhook{Url: hookURL, MaxConcurrency: -1})},
	{"another one of the name", exists, "WEBHOOK_EXISTS", "webhook.webhook_id",
		creating(&pb.Webhook{WebhookId: "there", Url: hookURL + "/other"})},

	{"update of none", invalid, "INVALID_FIELD", "webhook.webhook_id", changing(&pb.Webhook{}, "url")},
	{"update of an unknown", notFound, "WEBHOOK_NOT_FOUND", "webhook.webhook_id",
		changing(&pb.Webhook{WebhookId: "no", Enabled: true}, "enabled")},
	{"update of what only the server sets", invalid, "INVALID_FIELD", "update_mask",
		changing(&pb.Webhook{WebhookId: "there"}, "state")},
	{"update to no address", invalid, "INVALID_FIELD", "webhook.url", changing(&pb.Webhook{WebhookId: "there"}, "url")},
	{"update to loopback", invalid, "WEBHOOK_URL_REFUSED", "webhook.url",
		changing(&pb.Webhook{WebhookId: "there", Url: "https://[::1]/"}, "url")},
	{"update to a bad type", invalid, "INVALID_FIELD", "webhook.event_types",
		changing(&pb.Webhook{WebhookId: "there", EventTypes: []string{"x"}}, "event_types")},
	{"update to a bad filter", invalid, "INVALID_FILTER", "",
		changing(&pb.Webhook{WebhookId: "there", Filter: "x"}, "filter")},
	{"update to too many at once", invalid, "INVALID_FIELD", "webhook.max_concurrency",
		changing(&pb.Webhook{WebhookId: "there", MaxConcurrency: 9}, "max_concurrency")},
	{"one good field and one bad", invalid, "INVALID_FIELD", "webhook.max_concurrency",
		changing(&pb.Webhook{WebhookId: "there", Url: hookURL + "/z", MaxConcurrency: 9}, "url", "max_concurrency")},
	{"overlap below zero", invalid, "INVALID_FIELD", "secret_overlap", rotating(durationpb.New(-time.Second))},
	{"overlap of two months", invalid, "INVALID_FIELD", "secret_overlap", rotating(durationpb.New(60 * 24 * time.Hour))},
	{"overlap that is none", invalid, "INVALID_FIELD", "secret_overlap",
		rotating(&durationpb.Duration{Seconds: 1, Nanos: -1})},

	{"get none", invalid, "INVALID_FIELD", "webhook_id", func(ctx context.Context, r *rig) error {
		return only(r.Admin.GetWebhook(ctx, &pb.GetWebhookRequest{}))
	}},
	{"get unknown", notFound, "WEBHOOK_NOT_FOUND", "webhook_id", func(ctx context.Context, r *rig) error {
		return only(r.Admin.GetWebhook(ctx, &pb.GetWebhookRequest{WebhookId: "no"}))
	}},
	{"delete none", invalid, "INVALID_FIELD", "webhook_id", func(ctx context.Context, r *rig) error {
		return only(r.Admin.DeleteWebhook(ctx, &pb.DeleteWebhookRequest{}))
	}},
	{"delete unknown", notFound, "WEBHOOK_NOT_FOUND", "webhook_id", func(ctx context.Context, r *rig) error {
		return only(r.Admin.DeleteWebhook(ctx, &pb.DeleteWebhookRequest{WebhookId: "no"}))
	}},
	{"test none", invalid, "INVALID_FIELD", "webhook_id", func(ctx context.Context, r *rig) error {
		return only(r.Admin.TestWebhook(ctx, &pb.TestWebhookRequest{}))
	}},
	{"test unknown", notFound, "WEBHOOK_NOT_FOUND", "webhook_id", func(ctx context.Context, r *rig) error {
		return only(r.Admin.TestWebhook(ctx, &pb.TestWebhookRequest{WebhookId: "no"}))
	}},
	{"redeliver none", invalid, "INVALID_FIELD", "delivery_id", func(ctx context.Context, r *rig) error {
		return only(r.Admin.RedeliverWebhook(ctx, &pb.RedeliverWebhookRequest{}))
	}},
	{"redeliver unknown", notFound, "DELIVERY_NOT_FOUND", "delivery_id", func(ctx context.Context, r *rig) error {
		return only(r.Admin.RedeliverWebhook(ctx, &pb.RedeliverWebhookRequest{DeliveryId: "no"}))
	}},
	{"webhooks by a bad token", invalid, "INVALID_PAGE_TOKEN", "page_token", func(ctx context.Context, r *rig) error {
		return only(r.Admin.ListWebhooks(ctx, &pb.ListWebhooksRequest{PageToken: "x"}))
	}},
	{"webhooks by a bad size", invalid, "INVALID_FIELD", "page_size", func(ctx context.Context, r *rig) error {
		return only(r.Admin.ListWebhooks(ctx, &pb.ListWebhooksRequest{PageSize: -1}))
	}},
	{"deliveries of an unknown state", invalid, "INVALID_FIELD", "state",
		deliveries(&pb.ListWebhookDeliveriesRequest{State: "lost"})},
	{"deliveries by a bad token", invalid, "INVALID_PAGE_TOKEN", "page_token",
		deliveries(&pb.ListWebhookDeliveriesRequest{PageToken: "x"})},
	{"deliveries by a bad size", invalid, "INVALID_FIELD", "page_size",
		deliveries(&pb.ListWebhookDeliveriesRequest{PageSize: -1})},
}

// Every refusal has its code, its reason and its field, and changes nothing.
func TestBadWebhookCalls(t *testing.T) {
	r := publictest.NewRig(t)
	before := hook(r, &pb.Webhook{WebhookId: "there", Url: hookURL})
	before.Secret = ""
	for _, c := range badWebhooks {
		t.Run(c.name, func(t *testing.T) { publictest.Wants(t, c.call(t.Context(), r), c.kind, c.reason, c.field) })
	}
	all, err := r.Admin.ListWebhooks(t.Context(), &pb.ListWebhooksRequest{})
	if err != nil || len(all.GetWebhooks()) != 1 || !proto.Equal(all.GetWebhooks()[0], before) {
		t.Errorf("refused calls changed something: %v %v, was %v", all, err, before)
	}
}

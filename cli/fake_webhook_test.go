package cli

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

var (
	someWebhook = &pb.Webhook{
		WebhookId: "failures", Url: "https://hooks.example.org/failures", EventTypes: []string{"operation.failed"},
		Filter:  "site=berlin",
		Enabled: true, State: "active", StateChangedAt: at(0), CreatedAt: at(0), UpdatedAt: at(0), MaxConcurrency: 2,
		PendingDeliveries: 3,
		Secrets: []*pb.WebhookSecret{{SecretId: "whs-2", CreatedAt: at(10)},
			{SecretId: "whs-1", CreatedAt: at(0), ExpiresAt: at(3600)}},
	}
	pausedWebhook = &pb.Webhook{
		WebhookId: "wh-1", Url: "https://hooks.example.org/\x1b[2J", State: "paused", StateReason: "FAILING",
		StateChangedAt: at(5), CreatedAt: at(0),
		UpdatedAt: at(5), MaxConcurrency: 4, FailingSince: at(1), FailedEvents: 10, DeadDeliveries: 10, HoldUntil: at(90),
	}
	deadDelivery = &pb.WebhookDelivery{
		DeliveryId: "dlv-2", WebhookId: "wh-1", EventId: "evt-2", EventType: "operation.failed", Subject: "op-1",
		MachineId: "machine-1", State: "dead",
		Attempts: 12, LastStatus: 500, LastError: "HTTP 500 Internal Server Error", CreatedAt: at(0), LastAttemptAt: at(30),
		FinishedAt: at(30),
	}
	waitingDelivery = &pb.WebhookDelivery{
		DeliveryId: "dlv-1", WebhookId: "failures", EventId: "evt-1", EventType: "machine.updated", Subject: "machine-1",
		MachineId: "machine-1",
		State:     "pending", Attempts: 1, LastError: "connection refused", CreatedAt: at(20), LastAttemptAt: at(50),
		NextAt: at(85),
	}
)

func (f *fakeServer) findWebhook(id string) (*pb.Webhook, error) {
	for _, w := range []*pb.Webhook{someWebhook, pausedWebhook} {
		if w.GetWebhookId() == id {
			return proto.CloneOf(w), nil
		}
	}
	return nil, refuse(codes.NotFound, pb.Reason_WEBHOOK_NOT_FOUND, "there is no webhook \""+id+"\"", nil)
}

func (f *fakeServer) CreateWebhook(_ context.Context, r *pb.CreateWebhookRequest) (*pb.Webhook, error) {
	switch r.GetWebhook().GetWebhookId() {
	case "failures":
		return someWebhook, nil
	case "wh-1":
		return nil, refuse(codes.AlreadyExists, pb.Reason_WEBHOOK_EXISTS, "webhook \"wh-1\" exists and is another one", nil)
	}
	out := proto.CloneOf(r.GetWebhook())
	if out.GetWebhookId() == "" {
		out.WebhookId = "wh-2"
	}
	out.State, out.Enabled, out.CreatedAt, out.StateChangedAt, out.MaxConcurrency = "active", true, at(0), at(0), 2
	out.Secrets = []*pb.WebhookSecret{{SecretId: "whs-1", CreatedAt: at(0)}}
	out.Secret = "whsec_c2VjcmV0"
	return out, nil
}

// ListWebhooks returns one webhook a page.
func (f *fakeServer) ListWebhooks(_ context.Context, r *pb.ListWebhooksRequest) (*pb.ListWebhooksResponse, error) {
	if r.GetPageToken() == "" {
		return &pb.ListWebhooksResponse{Webhooks: []*pb.Webhook{someWebhook}, NextPageToken: "2"}, nil
	}
	return &pb.ListWebhooksResponse{Webhooks: []*pb.Webhook{pausedWebhook}}, nil
}

func (f *fakeServer) GetWebhook(_ context.Context, r *pb.GetWebhookRequest) (*pb.Webhook, error) {
	return f.findWebhook(r.GetWebhookId())
}

func (f *fakeServer) UpdateWebhook(_ context.Context, r *pb.UpdateWebhookRequest) (*pb.Webhook, error) {
	w, err := f.findWebhook(r.GetWebhook().GetWebhookId())
	if err != nil {
		return nil, err
	}
	for _, path := range r.GetUpdateMask().GetPaths() {
		if path == "enabled" {
			w.State, w.StateReason = "active", ""
			if !r.GetWebhook().GetEnabled() {
				w.State, w.StateReason = "paused", "OPERATOR"
			}
		}
	}
	if r.GetRotateSecret() {
		w.Secret = "whsec_bmV3"
	}
	return w, nil
}

func (f *fakeServer) DeleteWebhook(_ context.Context, r *pb.DeleteWebhookRequest) (*pb.Webhook, error) {
	return f.findWebhook(r.GetWebhookId())
}

func (f *fakeServer) TestWebhook(_ context.Context, r *pb.TestWebhookRequest) (*pb.WebhookDelivery, error) {
	if _, err := f.findWebhook(r.GetWebhookId()); err != nil {
		return nil, err
	}
	return &pb.WebhookDelivery{DeliveryId: "dlv-9", WebhookId: r.GetWebhookId(), EventType: "ping", State: "pending",
		CreatedAt: at(60)}, nil
}

// ListWebhookDeliveries returns one delivery a page; one that is asked for by its id has ended.
func (f *fakeServer) ListWebhookDeliveries(
	_ context.Context, r *pb.ListWebhookDeliveriesRequest,
) (*pb.ListWebhookDeliveriesResponse, error) {
	switch {
	case r.GetDeliveryId() == "dlv-gone":
		return &pb.ListWebhookDeliveriesResponse{}, nil
	case f.pinged != nil && r.GetDeliveryId() != "":
		return &pb.ListWebhookDeliveriesResponse{Deliveries: []*pb.WebhookDelivery{f.pinged}}, nil
	case r.GetDeliveryId() != "":
		return &pb.ListWebhookDeliveriesResponse{Deliveries: []*pb.WebhookDelivery{{
			DeliveryId: r.GetDeliveryId(), WebhookId: "failures", EventType: "ping", State: "delivered", Attempts: 1,
			LastStatus: 204,
			CreatedAt:  at(60), LastAttemptAt: at(60), FinishedAt: at(60),
		}}}, nil
	case r.GetPageToken() == "":
		return &pb.ListWebhookDeliveriesResponse{Deliveries: []*pb.WebhookDelivery{waitingDelivery}, NextPageToken: "2"}, nil
	}
	return &pb.ListWebhookDeliveriesResponse{Deliveries: []*pb.WebhookDelivery{deadDelivery}}, nil
}

func (f *fakeServer) RedeliverWebhook(_ context.Context, r *pb.RedeliverWebhookRequest) (*pb.WebhookDelivery, error) {
	if r.GetDeliveryId() != "dlv-2" && r.GetDeliveryId() != "dlv-1" {
		return nil, refuse(codes.NotFound, pb.Reason_DELIVERY_NOT_FOUND, "there is no delivery \""+r.GetDeliveryId()+"\"",
			nil)
	}
	d := proto.CloneOf(deadDelivery)
	d.DeliveryId, d.State, d.Attempts, d.FinishedAt, d.NextAt = r.GetDeliveryId(), "pending", 0, nil, at(60)
	return d, nil
}

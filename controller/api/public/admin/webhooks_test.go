package admin_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/domain/machinefilter"
	webhookstore "github.com/ingot-metal/ingot/controller/store/webhook"
	"github.com/ingot-metal/ingot/controller/webhook"
)

func hook(r *rig, w *pb.Webhook) *pb.Webhook {
	r.T.Helper()
	out, err := r.Admin.CreateWebhook(r.T.Context(), &pb.CreateWebhookRequest{Webhook: w})
	if err != nil {
		r.T.Fatalf("create webhook: %v", err)
	}
	return out
}

// TestWebhookLife: the secret is shown when it is made and never again; everything else can be read back.
func TestWebhookLife(t *testing.T) {
	r := publictest.NewRig(t)
	w := &pb.Webhook{WebhookId: "failures", Url: hookURL, EventTypes: []string{"operation.failed", "machine.*"},
		Filter: "effective_state=MAINTENANCE,site=berlin"}
	made := hook(r, w)
	if _, err := standardwebhooks.NewWebhook(made.GetSecret()); err != nil {
		t.Errorf("the secret %q: %v", made.GetSecret(), err)
	}
	if !made.GetEnabled() || made.GetState() != webhook.Active || made.GetMaxConcurrency() != 2 ||
		made.GetFilter() != "effective_state=MAINTENANCE_IDLE,site=berlin" ||
		!slices.Equal(made.GetEventTypes(), w.GetEventTypes()) || len(made.GetSecrets()) != 1 || made.GetCreatedAt() == nil {
		t.Errorf("made: %v", made)
	}
	again := hook(r, w)
	if shown := made.GetSecret(); shown == "" || again.GetSecret() != "" {
		t.Errorf("a repeat shows %q", again.GetSecret())
	}
	made.Secret = ""
	if !proto.Equal(again, made) {
		t.Errorf("a repeat is another: %v, was %v", again, made)
	}
	change := func(w *pb.Webhook, paths ...string) *pb.Webhook {
		t.Helper()
		w.WebhookId = "failures"
		out, err := r.Admin.UpdateWebhook(t.Context(),
			&pb.UpdateWebhookRequest{Webhook: w, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	// What the mask does not name stays, whatever the message says.
	got := change(&pb.Webhook{Url: hookURL + "/new", Filter: "site=nowhere", MaxConcurrency: 4}, "url", "max_concurrency")
	if got.GetUrl() != hookURL+"/new" || got.GetMaxConcurrency() != 4 || got.GetFilter() != made.GetFilter() ||
		!got.GetEnabled() || got.GetSecret() != "" {
		t.Errorf("changed: %v", got)
	}
	if got := change(&pb.Webhook{}, "filter", "event_types", "max_concurrency"); got.GetFilter() != "" ||
		len(got.GetEventTypes()) != 0 || got.GetMaxConcurrency() != 2 {
		t.Errorf("emptied: %v", got)
	}
	for range 2 {
		if got := change(&pb.Webhook{}, "enabled"); got.GetEnabled() || got.GetState() != webhook.Paused ||
			got.GetStateReason() != webhook.ReasonOperator {
			t.Errorf("paused: %v", got)
		}
	}
	for range 2 {
		if got := change(&pb.Webhook{Enabled: true}, "enabled"); !got.GetEnabled() || got.GetState() != webhook.Active {
			t.Errorf("resumed: %v", got)
		}
	}
	gone, err := r.Admin.DeleteWebhook(t.Context(), &pb.DeleteWebhookRequest{WebhookId: "failures"})
	if err != nil || gone.GetUrl() != hookURL+"/new" {
		t.Errorf("deleted: %v %v", gone, err)
	}
	_, err = r.Admin.GetWebhook(t.Context(), &pb.GetWebhookRequest{WebhookId: "failures"})
	publictest.Wants(t, err, notFound, "WEBHOOK_NOT_FOUND", "webhook_id")
	r.Verbs("failures", "CREATE_WEBHOOK", "UPDATE_WEBHOOK", "UPDATE_WEBHOOK", "PAUSE_WEBHOOK", "RESUME_WEBHOOK",
		"DELETE_WEBHOOK")
}

// TestRotation: each gives another secret, and says until when the others sign. None signs longer than it was said
// before.
func TestRotation(t *testing.T) {
	r := publictest.NewRig(t)
	secrets := []string{hook(r, &pb.Webhook{WebhookId: "x", Url: hookURL}).GetSecret()}
	rotate := func(overlap *durationpb.Duration, left int, ends time.Duration) {
		t.Helper()
		w, err := r.Admin.UpdateWebhook(t.Context(), &pb.UpdateWebhookRequest{Webhook: &pb.Webhook{WebhookId: "x"},
			RotateSecret: true, SecretOverlap: overlap})
		if err != nil {
			t.Fatal(err)
		}
		if w.GetSecret() == "" || slices.Contains(secrets, w.GetSecret()) || len(w.GetSecrets()) != left ||
			w.GetSecrets()[0].GetExpiresAt() != nil {
			t.Errorf("rotated: %v", w)
		}
		secrets = append(secrets, w.GetSecret())
		for i, old := range w.GetSecrets()[1:] {
			in := time.Until(old.GetExpiresAt().AsTime())
			if i == 0 && in < ends-time.Minute || in > ends {
				t.Errorf("an old secret ends in %s, want %s", in, ends)
			}
		}
	}
	rotate(nil, 2, 24*time.Hour)
	rotate(durationpb.New(time.Hour), 3, time.Hour)
	rotate(durationpb.New(30*24*time.Hour), 4, 30*24*time.Hour)
}

// TestPagesOfWebhooks and of deliveries, narrowed by webhook and state: each once, in order.
func TestPagesOfWebhooks(t *testing.T) {
	r := publictest.NewRig(t)
	for _, id := range []string{"a", "b", "c"} {
		hook(r, &pb.Webhook{WebhookId: id, Url: hookURL})
		for range 2 {
			d, err := r.Admin.TestWebhook(t.Context(), &pb.TestWebhookRequest{WebhookId: id})
			if err != nil || d.GetState() != webhook.Pending || d.GetEventType() != webhook.Ping || d.GetSubject() != id {
				t.Fatalf("%v %v", d, err)
			}
		}
	}
	bury(r, "b")
	seen := ""
	publictest.Walk(t, func(token string) (string, error) {
		got, err := r.Admin.ListWebhooks(t.Context(), &pb.ListWebhooksRequest{PageSize: 2, PageToken: token})
		for _, w := range got.GetWebhooks() {
			seen += w.GetWebhookId()
		}
		return got.GetNextPageToken(), err
	})
	if seen != "abc" {
		t.Errorf("webhooks %q", seen)
	}
	for want, q := range map[string]*pb.ListWebhookDeliveriesRequest{
		"c c b b a a": {}, "b b": {WebhookId: "b"}, "b": {State: webhook.Dead}, "c c b a a": {State: webhook.Pending},
		"": {WebhookId: "a", State: webhook.Dead},
	} {
		var hooks []string
		ids := map[string]bool{}
		publictest.Walk(t, func(token string) (string, error) {
			q.PageSize, q.PageToken = 2, token
			got, err := r.Admin.ListWebhookDeliveries(t.Context(), q)
			for _, d := range got.GetDeliveries() {
				hooks = append(hooks, d.GetWebhookId())
				ids[d.GetDeliveryId()] = true
			}
			return got.GetNextPageToken(), err
		})
		if got := strings.Join(hooks, " "); got != want || len(ids) != len(hooks) {
			t.Errorf("%v: deliveries %q, want %q", q, got, want)
		}
	}
	first, err := r.Admin.ListWebhookDeliveries(t.Context(), &pb.ListWebhookDeliveriesRequest{PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Admin.ListWebhookDeliveries(t.Context(),
		&pb.ListWebhookDeliveriesRequest{WebhookId: "a", PageToken: first.GetNextPageToken()})
	publictest.Wants(t, err, invalid, "INVALID_PAGE_TOKEN", "page_token")
}

// bury gives up one delivery of a webhook, and sees it redelivered.
func bury(r *rig, id string) {
	r.T.Helper()
	all, err := r.Store.Webhooks.ListDeliveries(r.T.Context(), webhookstore.DeliveryFilter{WebhookID: id, Limit: 1})
	if err != nil {
		r.T.Fatal(err)
	}
	d, err := r.Store.Webhooks.LoadDelivery(r.T.Context(), all[0].GetDeliveryId(), time.Now())
	if err != nil {
		r.T.Fatal(err)
	}
	die := func() {
		r.T.Helper()
		_, err := r.Store.Webhooks.RecordAttempt(r.T.Context(), d, webhook.Judge(500, "", time.Now()),
			webhook.Verdict{State: webhook.Dead}, webhook.Schedule{}.Filled(), time.Now())
		if err != nil {
			r.T.Fatal(err)
		}
	}
	die()
	again, err := r.Admin.RedeliverWebhook(r.T.Context(), &pb.RedeliverWebhookRequest{DeliveryId: d.DeliveryID})
	if err != nil || again.GetState() != webhook.Pending || again.GetAttempts() != 0 || again.GetEventId() != d.EventID {
		r.T.Errorf("redelivered: %v %v", again, err)
	}
	// A try of the round before, which ends now, decides nothing any more.
	die()
	d.Round++
	die()
}

// TestFiltersOfWebhooksAreThoseOfLists: what a filter lets through is what ListMachines shows with it.
func TestFiltersOfWebhooksAreThoseOfLists(t *testing.T) {
	r := publictest.NewRig(t)
	for i, spec := range []*pb.MachineSpec{{Site: "berlin", Rack: "r1"}, {Site: "berlin", Rack: "r2", Group: "g"},
		{Provider: "fake", Region: "eu"}, {Rack: "r1"}} {
		m := publictest.NewMachine(i)
		m.Spec, m.Labels = spec, map[string]string{"env": []string{"prod", "dev"}[i%2]}
		r.Register(m)
	}
	r.Maintenance("m-001")
	r.Enter("m-002", "busy")
	r.Maintenance("m-003")
	if _, err := r.Admin.SetMachineFlag(t.Context(), &pb.SetMachineFlagRequest{MachineId: "m-003", Flag: "RMA",
		Value: true}); err != nil {
		t.Fatal(err)
	}
	all, err := r.Machines.ListMachines(t.Context(), &pb.ListMachinesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	filters := []string{"site=berlin", "rack=r1", "site=berlin,rack=r1", "group=g", "provider=fake", "region=eu",
		"machine_id=m-001", "labels.env=prod", "labels.none=x", "labels.env=dev,rack=r2",
		"rack!=r1", "rack=*", "rack!=*", "rack in (r1, r2),site=ber*", "labels.env not in (dev, x)", "labels.none!=x",
		"machine_id in (m-000, m-003)", "machine_id=m-00*,state!=BUSY", "phase not in (RMA, FACTORY_READY)",
		"phase in (RMA, MAINTENANCE, PROVISIONING)", "state not in (BUSY, BLOCKED)", "node_state!=discovered",
		"conditions.RMA!=true", `labels.env="prod"`, "image=*", "image!=sha256:ab*"}
	for _, phase := range slices.Sorted(maps.Keys(pb.MachineStatus_Phase_value)) {
		filters = append(filters, "phase="+phase)
	}
	for _, state := range slices.Sorted(maps.Keys(pb.MachineStatus_EffectiveState_value)) {
		filters = append(filters, "effective_state="+state, "effective_state="+state+",rack=r1")
	}
	for _, state := range slices.Sorted(maps.Keys(pb.NodeState_value)) {
		filters = append(filters, "node_state="+state)
	}
	for _, kind := range []string{"Reachable", "RMA", "Retired", "NeedsIntervention", "InCustomerCluster"} {
		filters = append(filters, "conditions."+kind+"=true", "conditions."+kind+"=false")
	}
	matched := 0
	for _, filter := range filters {
		listed, err := r.Machines.ListMachines(t.Context(), &pb.ListMachinesRequest{Filter: filter})
		w, werr := r.Admin.CreateWebhook(t.Context(),
			&pb.CreateWebhookRequest{Webhook: &pb.Webhook{Url: hookURL, Filter: filter}})
		if (err == nil) != (werr == nil) {
			t.Errorf("%s: the list says %v, the webhook %v", filter, err, werr)
		}
		if err != nil {
			continue // an enum's zero value is none
		}
		f := machinefilter.Parse(w.GetFilter())
		for _, m := range all.GetMachines() {
			shown := slices.ContainsFunc(listed.GetMachines(),
				func(l *pb.Machine) bool { return l.GetMachineId() == m.GetMachineId() })
			if f.Matches(m) != shown {
				t.Errorf("%s of %s: the webhook %v, the list %v", filter, m.GetMachineId(), f.Matches(m), shown)
			}
			if shown {
				matched++
			}
		}
	}
	if matched < 20 {
		t.Errorf("only %d pairs match", matched)
	}
}

// TestAddressesAsConfigured: what the configuration allows can be subscribed.
func TestAddressesAsConfigured(t *testing.T) {
	for url, allowed := range map[string]webhook.Policy{
		"http://127.0.0.1:9/x": {AllowLoopback: true}, "https://169.254.1.1/": {AllowLinkLocal: true},
		"https://10.0.0.1/": {},
	} {
		r := publictest.NewRig(t, func(c *service.Config) { c.WebhookPolicy = allowed })
		hook(r, &pb.Webhook{Url: url})
	}
	r := publictest.NewRig(t, func(c *service.Config) { c.WebhookPolicy = webhook.Policy{DenyPrivate: true} })
	publictest.Wants(
		t,
		creating(&pb.Webhook{Url: "https://10.0.0.1/"})(t.Context(), r),
		invalid,
		"WEBHOOK_URL_REFUSED",
		"webhook.url",
	)
}

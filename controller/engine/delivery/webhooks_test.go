package delivery_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/engine"
	"github.com/ingot-metal/ingot/controller/engine/delivery"
	"github.com/ingot-metal/ingot/controller/secret"
	"github.com/ingot-metal/ingot/controller/session"
	"github.com/ingot-metal/ingot/controller/store"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	webhookstore "github.com/ingot-metal/ingot/controller/store/webhook"
	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const patience = 30 * time.Second

// rig is an engine over a real database, with the webhooks that a test makes.
type rig struct {
	t     testing.TB
	store *store.Store
	box   *secret.Box
	sched webhook.Schedule
	limit time.Duration
	e     *engine.Engine
	log   *slog.Logger
	// points are passed by the engine that is started next; nil for none.
	points *failpoint.Scope
}

func newRig(t testing.TB) *rig {
	t.Helper()
	box, err := secret.New(bytes.Repeat([]byte{7}, secret.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	return &rig{
		t: t, store: storetest.New(t), box: box, sched: webhook.Schedule{Base: 20 * time.Millisecond, MaxAttempts: 3},
		limit: 2 * time.Second,
		log:   testkit.Logger(t),
	}
}

// run starts an engine and returns what stops it and waits.
func (r *rig) run() (stop func()) {
	r.t.Helper()
	e, err := engine.New(engine.Config{
		Store: r.store, Sessions: session.NewRegistry(), Clock: clock.Real(), Logger: r.log,
		ControllerID: ids.New(ids.Controller), Version: "v-test",
		Webhooks: &delivery.Config{
			Sender: webhook.NewSender(webhook.SenderConfig{
				Policy: webhook.Policy{AllowLoopback: true}, Timeout: r.limit, UserAgent: "ingot/test",
			}),
			Secrets: r.box, Source: "/test", Schedule: r.sched,
		},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.e = e
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	if r.points != nil {
		ctx = failpoint.With(ctx, r.points)
	}
	done := make(chan struct{})
	task.Background("engine", func() {
		defer close(done)
		if err := e.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			r.t.Errorf("run engine: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); <-done })
	r.t.Cleanup(stop)
	return stop
}

// subscribe makes a webhook and returns its id and its secret as the receiver has it.
func (r *rig) subscribe(url string, types ...string) (id, key string) {
	r.t.Helper()
	return r.subscribeFiltered(url, "", types...)
}

func (r *rig) subscribeFiltered(url, filter string, types ...string) (id, key string) {
	r.t.Helper()
	id = ids.New(ids.Webhook)
	plain := webhook.NewSecret()
	_, _, err := r.store.Webhooks.CreateWebhook(r.t.Context(),
		webhookstore.WebhookSpec{ID: id, URL: url, EventTypes: types, Filter: filter, MaxConcurrency: 2},
		webhookstore.SealedSecret{ID: "s-1", Sealed: r.box.SealWebhook(id, "s-1", plain)}, "tester", time.Now())
	if err != nil {
		r.t.Fatalf("create webhook: %v", err)
	}
	return id, plain.Shown()
}

func (r *rig) register(id string, labels map[string]string) {
	r.t.Helper()
	if _, err := r.store.Machines.Register(r.t.Context(), &pb.Machine{MachineId: id, Labels: labels}, "tester",
		time.Now()); err != nil {
		r.t.Fatalf("register: %v", err)
	}
}

// maintain brings a machine into maintenance and returns the operation.
func (r *rig) maintain(id string) string {
	r.t.Helper()
	op, err := r.e.Requests.Start(r.t.Context(), operationstore.StartRequest{MachineID: id, RequestID: ids.New("r"),
		Type: fleet.EnterMaintenance, Actor: "tester"})
	if err != nil {
		r.t.Fatalf("start: %v", err)
	}
	return op.GetOperationId()
}

func (r *rig) webhook(id string) *pb.Webhook {
	r.t.Helper()
	w, err := r.store.Webhooks.GetWebhook(r.t.Context(), id, time.Now())
	if err != nil {
		r.t.Fatalf("get webhook: %v", err)
	}
	return w
}

func (r *rig) deliveries(f webhookstore.DeliveryFilter) []*pb.WebhookDelivery {
	r.t.Helper()
	f.Limit = 10_000
	all, err := r.store.Webhooks.ListDeliveries(r.t.Context(), f)
	if err != nil {
		r.t.Fatalf("list deliveries: %v", err)
	}
	return all
}

// eventually waits for the only delivery of a webhook to be in a state.
func (r *rig) eventually(id, state string) *pb.WebhookDelivery {
	r.t.Helper()
	var last []*pb.WebhookDelivery
	testkit.Eventually(r.t, patience, func() bool {
		last = r.deliveries(webhookstore.DeliveryFilter{WebhookID: id})
		return len(last) == 1 && last[0].GetState() == state
	}, "no delivery is %s", state)
	return last[0]
}

// delivered waits for n deliveries of a webhook to have arrived.
func (r *rig) delivered(id string, n int) {
	r.t.Helper()
	testkit.Eventually(r.t, patience, func() bool {
		return len(r.deliveries(webhookstore.DeliveryFilter{WebhookID: id, State: webhook.Delivered})) == n
	}, "not %d have arrived", n)
}

// post is a request as a receiver got it.
type post struct {
	header http.Header
	body   []byte
}

func (p post) id() string { return p.header.Get(webhook.HeaderID) }

func (p post) kind(t testing.TB) string {
	var e struct{ Type string }
	if err := json.Unmarshal(p.body, &e); err != nil {
		t.Fatalf("parse %s: %v", p.body, err)
	}
	return e.Type
}

// receiver keeps what it gets, and answers as it is told.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	posts []post
	// answer may be nil: 200.
	answer func(n int, w http.ResponseWriter, r *http.Request)
}

func newReceiver(t testing.TB, answer func(n int, w http.ResponseWriter, r *http.Request)) *receiver {
	rec := &receiver{answer: answer}
	rec.Server = httptest.NewServer(rec)
	t.Cleanup(rec.Close)
	return rec
}

func (rec *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	rec.mu.Lock()
	rec.posts = append(rec.posts, post{r.Header.Clone(), body})
	n := len(rec.posts)
	rec.mu.Unlock()
	if rec.answer != nil {
		rec.answer(n, w, r)
	}
}

func (rec *receiver) got() []post {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return append([]post(nil), rec.posts...)
}

// kinds counts what came, by type; repeats of one id count once.
func (rec *receiver) kinds(t testing.TB) map[string]int {
	out, seen := map[string]int{}, map[string]bool{}
	for _, p := range rec.got() {
		if !seen[p.id()] {
			seen[p.id()] = true
			out[p.kind(t)]++
		}
	}
	return out
}

// TestEventsArrive: a receiver gets each event of a machine and of its operations, as a CloudEvent that the CloudEvents
// SDK accepts, under a signature that the library of Standard Webhooks accepts.
func TestEventsArrive(t *testing.T) {
	r := newRig(t)
	rec := newReceiver(t, nil)
	_, key := r.subscribe(rec.URL)
	r.run()
	r.register("m-1", map[string]string{"rack": "r1"})
	op := r.maintain("m-1")
	want := map[string]int{
		webhook.MachineRegistered: 1, webhook.OperationCreated: 1, webhook.OperationStarted: 1, webhook.OperationSucceeded: 1,
		webhook.MachinePhaseChanged: 1,
	}
	testkit.Eventually(t, patience, func() bool {
		have := rec.kinds(t)
		for kind, n := range want {
			if have[kind] != n {
				return false
			}
		}
		return have[webhook.MachineUpdated] > 0
	}, "events are missing")
	lib, err := standardwebhooks.NewWebhook(key)
	if err != nil {
		t.Fatalf("the library does not take the secret: %v", err)
	}
	for _, p := range rec.got() {
		if err := lib.Verify(p.body, p.header); err != nil {
			t.Errorf("the library does not accept the signature: %v", err)
		}
		if lib.Verify(append(p.body, ' '), p.header) == nil {
			t.Error("the library accepts another body")
		}
		checkCloudEvent(t, p, op)
	}
}

func checkCloudEvent(t *testing.T, p post, op string) {
	t.Helper()
	if got := p.header.Get("Content-Type"); got != webhook.ContentType {
		t.Errorf("content type %q", got)
	}
	ev := cloudevents.NewEvent()
	if err := json.Unmarshal(p.body, &ev); err != nil {
		t.Fatalf("the SDK does not read it: %v\n%s", err, p.body)
	}
	if err := ev.Validate(); err != nil {
		t.Errorf("the SDK finds it invalid: %v", err)
	}
	if ev.ID() != p.id() || ev.Source() != "/test" || ev.Time().IsZero() || ev.Extensions()["machineid"] != "m-1" {
		t.Errorf("attributes: %v", ev)
	}
	switch ev.Type() {
	case webhook.OperationCreated, webhook.OperationStarted, webhook.OperationSucceeded:
		var data pb.Operation
		if err := protojson.Unmarshal(ev.Data(), &data); err != nil || data.GetOperationId() != op || ev.Subject() != op {
			t.Errorf("%s: data %v, %v", ev.Type(), &data, err)
		}
	default:
		var data pb.Machine
		if err := protojson.Unmarshal(ev.Data(), &data); err != nil || data.GetMachineId() != "m-1" || ev.Subject() != "m-1" {
			t.Errorf("%s: data %v, %v", ev.Type(), &data, err)
		}
	}
	if ev.Type() == webhook.MachinePhaseChanged && (ev.Extensions()["fromvalue"] != "FACTORY_READY" ||
		ev.Extensions()["tovalue"] != "MAINTENANCE") {
		t.Errorf("phase changed from %v to %v", ev.Extensions()["fromvalue"], ev.Extensions()["tovalue"])
	}
}

// TestSecretsAreSealed: the database does not hold the secret in a form that can be read.
func TestSecretsAreSealed(t *testing.T) {
	r := newRig(t)
	_, key := r.subscribe("https://example.org/")
	raw, err := base64.StdEncoding.DecodeString(key[len("whsec_"):])
	if err != nil {
		t.Fatal(err)
	}
	dump := storetest.Dump(t, r.store, "webhooks", "webhook_secrets", "audit_log")
	for _, form := range []string{string(raw), key, key[len("whsec_"):]} {
		if bytes.Contains([]byte(dump), []byte(form)) {
			t.Error("the secret can be read in the database")
		}
	}
}

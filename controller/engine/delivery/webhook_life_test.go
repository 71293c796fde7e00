package delivery_test

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	webhookstore "github.com/ingot-metal/ingot/controller/store/webhook"
	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func (r *rig) change(id string, c webhookstore.WebhookChange) *pb.Webhook {
	r.t.Helper()
	w, err := r.store.Webhooks.UpdateWebhook(r.t.Context(), id, c, "tester", time.Now())
	if err != nil {
		r.t.Fatalf("update webhook: %v", err)
	}
	return w
}

func (r *rig) setActive(id string, active bool) *pb.Webhook {
	r.t.Helper()
	return r.change(id, webhookstore.WebhookChange{Active: &active})
}

// ping sends a ping and waits for its end.
func (r *rig) ping(id string) *pb.WebhookDelivery {
	r.t.Helper()
	d, err := r.store.Webhooks.PingWebhook(r.t.Context(), id, "/test", "tester", time.Now())
	if err != nil {
		r.t.Fatalf("ping: %v", err)
	}
	return r.ended(d.GetDeliveryId())
}

func (r *rig) ended(delivery string) *pb.WebhookDelivery {
	r.t.Helper()
	var d *pb.WebhookDelivery
	testkit.Eventually(r.t, patience, func() bool {
		d = r.deliveries(webhookstore.DeliveryFilter{DeliveryID: delivery})[0]
		return d.GetState() != webhook.Pending
	}, "delivery %s does not end", delivery)
	return d
}

// faulty is an answer of 500 until it is mended.
func faulty() (answer func(int, http.ResponseWriter, *http.Request), mended *atomic.Bool) {
	mended = &atomic.Bool{}
	return func(_ int, w http.ResponseWriter, _ *http.Request) {
		if !mended.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}, mended
}

// TestPausedWebhooksRest: what is pending waits and is sent when the webhook is resumed, under its id; what happened
// meanwhile is not.
func TestPausedWebhooksRest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.sched.Base = time.Hour
	answer, mended := faulty()
	rec, well := newReceiver(t, answer), newReceiver(t, nil)
	id, _ := r.subscribe(rec.URL, webhook.MachineRegistered)
	other, _ := r.subscribe(well.URL, webhook.MachineRegistered)
	r.run()
	r.register("m-1", nil)
	testkit.Eventually(t, patience, func() bool {
		all := r.deliveries(webhookstore.DeliveryFilter{WebhookID: id})
		return len(all) == 1 && all[0].GetAttempts() == 1
	}, "it is not tried")
	mended.Store(true)
	w := r.setActive(id, false)
	if w.GetEnabled() || w.GetState() != webhook.Paused || w.GetStateReason() != webhook.ReasonOperator ||
		w.GetPendingDeliveries() != 1 {
		t.Errorf("paused: %v", w)
	}
	r.register("m-2", nil)
	r.delivered(other, 2)
	if d := r.deliveries(webhookstore.DeliveryFilter{WebhookID: id}); len(d) != 1 || d[0].GetState() != webhook.Pending ||
		d[0].GetNextAt() != nil || len(rec.got()) != 1 {
		t.Errorf("while it rests: %v, %d requests", d, len(rec.got()))
	}
	if w := r.setActive(id, true); w.GetState() != webhook.Active || w.GetStateReason() != "" ||
		w.GetFailingSince() != nil {
		t.Errorf("resumed: %v", w)
	}
	r.delivered(id, 1)
	r.register("m-3", nil)
	r.delivered(id, 2)
	got := rec.got()
	if len(got) != 3 || got[0].id() != got[1].id() || bytes.Contains(got[2].body, []byte("m-2")) {
		t.Errorf("%d requests", len(got))
	}
	r.audited(id, "CREATE_WEBHOOK", "PAUSE_WEBHOOK", "RESUME_WEBHOOK")
}

// audited wants these verbs in the audit log of a webhook, in this order.
func (r *rig) audited(id string, want ...string) {
	r.t.Helper()
	rows, err := r.store.DB.Pool().
		Query(r.t.Context(), "SELECT verb FROM audit_log WHERE target_id = $1 ORDER BY audit_id",
			id)
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var verb string
		if err := rows.Scan(&verb); err != nil {
			r.t.Fatal(err)
		}
		got = append(got, verb)
	}
	if rows.Err() != nil || !slices.Equal(got, want) {
		r.t.Errorf("audit log of %s: %v, want %v (%v)", id, got, want, rows.Err())
	}
}

// TestAPausedWebhookCanBeTested before it is resumed: the ping arrives, and changes nothing else.
func TestAPausedWebhookCanBeTested(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	answer, mended := faulty()
	rec := newReceiver(t, answer)
	id, _ := r.subscribe(rec.URL, webhook.MachineRegistered)
	r.setActive(id, false)
	r.run()
	if d := r.ping(id); d.GetState() != webhook.Dead || d.GetAttempts() != 1 || d.GetLastStatus() != 500 ||
		d.GetEventType() != webhook.Ping {
		t.Errorf("a ping that is not taken: %v", d)
	}
	mended.Store(true)
	if d := r.ping(id); d.GetState() != webhook.Delivered || d.GetMachineId() != "" || d.GetSubject() != id {
		t.Errorf("a ping that is taken: %v", d)
	}
	if w := r.webhook(id); w.GetState() != webhook.Paused || w.GetFailingSince() != nil || w.GetFailedEvents() != 0 {
		t.Errorf("the webhook is %v", w)
	}
}

// TestGoneAndBack: 410 ends all that waits; an admin who resumes the webhook can send it again.
func TestGoneAndBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.sched.Base = time.Hour
	var status atomic.Int32
	status.Store(http.StatusInternalServerError)
	rec := newReceiver(t, func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) })
	id, _ := r.subscribe(rec.URL, webhook.MachineRegistered)
	r.run()
	r.register("m-1", nil)
	testkit.Eventually(t, patience, func() bool { return len(rec.got()) == 1 }, "it is not tried")
	status.Store(http.StatusGone)
	r.register("m-2", nil)
	testkit.Eventually(t, patience, func() bool { return r.webhook(id).GetState() == webhook.Disabled },
		"it is not disabled")
	dead := r.deliveries(webhookstore.DeliveryFilter{WebhookID: id, State: webhook.Dead})
	if w := r.webhook(id); len(dead) != 2 || w.GetStateReason() != webhook.ReasonGone || w.GetPendingDeliveries() != 0 {
		t.Fatalf("%v and %v", w, dead)
	}
	if w := r.setActive(id, false); w.GetState() != webhook.Disabled || w.GetStateReason() != webhook.ReasonGone {
		t.Errorf("pausing hides why it rests: %v", w)
	}
	status.Store(http.StatusOK)
	r.setActive(id, true)
	for _, d := range dead {
		if _, err := r.store.Webhooks.Redeliver(t.Context(), d.GetDeliveryId(), "tester", time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	r.delivered(id, 2)
	r.audited(id, "CREATE_WEBHOOK", "DISABLE_WEBHOOK", "RESUME_WEBHOOK", "REDELIVER_WEBHOOK", "REDELIVER_WEBHOOK")
}

// TestAFailingWebhookIsPaused after as many dead events, and as long, as the schedule says.
func TestAFailingWebhookIsPaused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.sched.PauseAfterEvents, r.sched.PauseAfter = 2, time.Millisecond
	answer, _ := faulty()
	rec := newReceiver(t, answer)
	id, _ := r.subscribe(rec.URL, webhook.MachineRegistered)
	r.run()
	r.register("m-1", nil)
	r.eventually(id, webhook.Dead)
	if w := r.webhook(id); w.GetState() != webhook.Active {
		t.Errorf("after one event: %v", w)
	}
	r.register("m-2", nil)
	testkit.Eventually(t, patience, func() bool { return r.webhook(id).GetState() == webhook.Paused }, "it is not paused")
	if w := r.webhook(id); w.GetStateReason() != webhook.ReasonFailing || w.GetFailedEvents() != 2 ||
		w.GetFailingSince() == nil {
		t.Errorf("paused: %v", w)
	}
}

// TestDeletedWebhooksAreLeftAlone, with all that waits for them; another one goes on.
func TestDeletedWebhooksAreLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.sched.Base = time.Hour
	answer, _ := faulty()
	rec, well := newReceiver(t, answer), newReceiver(t, nil)
	id, _ := r.subscribe(rec.URL, webhook.MachineRegistered)
	other, _ := r.subscribe(well.URL, webhook.MachineRegistered)
	r.run()
	r.register("m-1", nil)
	testkit.Eventually(t, patience, func() bool { return len(rec.got()) == 1 }, "it is not tried")
	if _, err := r.store.Webhooks.DeleteWebhook(t.Context(), id, "tester", time.Now()); err != nil {
		t.Fatal(err)
	}
	r.register("m-2", nil)
	r.delivered(other, 2)
	if d := r.deliveries(webhookstore.DeliveryFilter{WebhookID: id}); len(d) != 0 || len(rec.got()) != 1 {
		t.Errorf("%v, %d requests", d, len(rec.got()))
	}
	testkit.Eventually(t, patience, func() bool {
		var jobs int
		err := r.store.DB.Pool().QueryRow(t.Context(), "SELECT count(*) FROM river_job WHERE kind = 'webhook_deliver' AND "+
			"state NOT IN ('completed', 'discarded', 'cancelled')").Scan(&jobs)
		return err == nil && jobs == 0
	}, "jobs of a deleted webhook stay")
}

// TestWhatIsKept: a webhook that cannot keep up is paused, and what ended long ago goes.
func TestWhatIsKept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id, _ := r.subscribe("https://example.org/", webhook.MachineRegistered)
	quiet, _ := r.subscribe("https://example.org/", webhook.OperationFailed)
	for _, m := range []string{"m-1", "m-2", "m-3"} {
		r.register(m, nil)
	}
	out, err := r.store.Webhooks.FanOut(t.Context(), "/test", 500, time.Now())
	if err != nil || out.Deliveries != 3 {
		t.Fatalf("%+v %v", out, err)
	}
	limits := webhookstore.WebhookLimits{KeepDelivered: time.Hour, KeepDead: 2 * time.Hour, MaxPending: 4}
	tidy := func(now time.Time, want int) {
		t.Helper()
		if full, err := r.store.Webhooks.TidyWebhooks(t.Context(), limits, now); err != nil || len(full) != want {
			t.Errorf("paused %v, %v", full, err)
		}
	}
	tidy(time.Now(), 0)
	limits.MaxPending = 3
	tidy(time.Now(), 1)
	if w := r.webhook(id); w.GetState() != webhook.Paused || w.GetStateReason() != webhook.ReasonBacklog ||
		r.webhook(quiet).GetState() != webhook.Active {
		t.Errorf("%v", w)
	}
	all := r.deliveries(webhookstore.DeliveryFilter{WebhookID: id})
	for i, state := range []string{webhook.Delivered, webhook.Dead} {
		d, err := r.store.Webhooks.LoadDelivery(t.Context(), all[i].GetDeliveryId(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.store.Webhooks.RecordAttempt(t.Context(), d, webhook.Result{Status: 200},
			webhook.Verdict{State: state}, webhook.Schedule{}.Filled(), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{"pending delivered dead", "pending dead", "pending"} {
		tidy(time.Now().Add(time.Duration(i)*time.Hour+time.Minute), 0)
		var have []string
		for _, d := range r.deliveries(webhookstore.DeliveryFilter{WebhookID: id}) {
			have = append(have, d.GetState())
		}
		slices.Sort(have)
		slices.Reverse(have)
		if got := strings.Join(have, " "); got != want {
			t.Errorf("after %d hours: %s, want %s", i, got, want)
		}
	}
}

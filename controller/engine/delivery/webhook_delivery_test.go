package delivery_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	webhookstore "github.com/ingot-metal/ingot/controller/store/webhook"
	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// TestRedelivery: an event that was given up is sent again under its id, with as many tries as a new one; one that has
// arrived too. Pressed ten times at once it is one try.
func TestRedelivery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	answer, mended := faulty()
	hold := make(chan struct{})
	rec := newReceiver(t, func(n int, w http.ResponseWriter, q *http.Request) {
		if n == 4 {
			<-hold
		}
		answer(n, w, q)
	})
	id, _ := r.subscribe(rec.URL, webhook.MachineRegistered)
	r.run()
	r.register("m-1", nil)
	dead := r.eventually(id, webhook.Dead)
	if w := r.webhook(id); w.GetDeadDeliveries() != 1 || w.GetFailedEvents() != 1 || w.GetFailingSince() == nil {
		t.Errorf("the webhook is %v", w)
	}
	mended.Store(true)
	g, _ := task.New(t.Context())
	for range 10 {
		g.Go("redeliver", func(ctx context.Context) error {
			d, err := r.store.Webhooks.Redeliver(ctx, dead.GetDeliveryId(), "tester", time.Now())
			if err == nil && (d.GetState() != webhook.Pending || d.GetEventId() != dead.GetEventId()) {
				t.Errorf("redelivered: %v", d)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	close(hold)
	d := r.eventually(id, webhook.Delivered)
	if d.GetAttempts() != 1 || len(rec.got()) != 4 || d.GetLastError() != "" {
		t.Errorf("%v, %d requests", d, len(rec.got()))
	}
	if w := r.webhook(id); w.GetDeadDeliveries() != 0 || w.GetFailedEvents() != 0 || w.GetFailingSince() != nil {
		t.Errorf("the webhook is %v", w)
	}
	if _, err := r.store.Webhooks.Redeliver(t.Context(), d.GetDeliveryId(), "tester", time.Now()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, func() bool { return len(rec.got()) == 5 }, "what has arrived is not sent again")
	for _, p := range rec.got() {
		if p.id() != dead.GetEventId() {
			t.Errorf("event %s came as %s", dead.GetEventId(), p.id())
		}
	}
	r.audited(id, "CREATE_WEBHOOK", "REDELIVER_WEBHOOK", "REDELIVER_WEBHOOK")
}

// TestFiltersAndTypes: each webhook gets what it asks for and nothing else; an operation's event passes by its machine.
func TestFiltersAndTypes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	all, rack, failures := newReceiver(t, nil), newReceiver(t, nil), newReceiver(t, nil)
	everything, _ := r.subscribe(all.URL, "operation.*", webhook.MachineRegistered)
	filtered, _ := r.subscribeFiltered(rack.URL, "labels.rack=r1,labels.env=prod", "operation.succeeded",
		webhook.MachineRegistered)
	r.subscribe(failures.URL, webhook.OperationFailed, webhook.MachineDeleted)
	r.run()
	r.register("m-1", map[string]string{"rack": "r1", "env": "prod"})
	r.register("m-2", map[string]string{"rack": "r1", "env": "dev"})
	r.register("m-3", nil)
	for _, m := range []string{"m-1", "m-2", "m-3"} {
		r.maintain(m)
	}
	r.delivered(everything, 3+3*3)
	r.delivered(filtered, 2)
	if got := rack.kinds(t); got[webhook.MachineRegistered] != 1 || got[webhook.OperationSucceeded] != 1 || len(got) != 2 {
		t.Errorf("filtered: %v", got)
	}
	for _, p := range rack.got() {
		if !bytes.Contains(p.body, []byte(`"machineid":"m-1"`)) {
			t.Errorf("another machine's event: %s", p.body)
		}
	}
	if got := failures.got(); len(got) != 0 {
		t.Errorf("%d events that nobody asked for", len(got))
	}
}

// TestChangesReachWhatWaits: a new address gets what the old one would not take.
func TestChangesReachWhatWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.sched.MaxAttempts = 1000
	answer, _ := faulty()
	old, fresh := newReceiver(t, answer), newReceiver(t, nil)
	id, _ := r.subscribe(old.URL, webhook.MachineRegistered)
	r.run()
	r.register("m-1", nil)
	testkit.Eventually(t, patience, func() bool { return len(old.got()) > 0 }, "it is not tried")
	r.change(id, webhookstore.WebhookChange{URL: &fresh.URL})
	r.delivered(id, 1)
	if got := fresh.got(); len(got) != 1 || got[0].id() != old.got()[0].id() {
		t.Errorf("%d requests", len(got))
	}
}

// TestTwoControllersSendOnce: an event is turned into one delivery, and that is sent by one of them.
func TestTwoControllersSendOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rec := newReceiver(t, nil)
	id, _ := r.subscribe(rec.URL, webhook.MachineRegistered)
	r.run()
	r.run()
	const machines = 40
	for i := range machines {
		r.register(fmt.Sprintf("m-%02d", i), nil)
	}
	r.delivered(id, machines)
	if got, n := rec.kinds(t), len(rec.got()); got[webhook.MachineRegistered] != machines || n != machines {
		t.Errorf("%v in %d requests", got, n)
	}
}

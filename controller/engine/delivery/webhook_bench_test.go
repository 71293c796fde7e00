package delivery_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/store/storetest"
	webhookstore "github.com/ingot-metal/ingot/controller/store/webhook"
	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/ids"
)

// BenchmarkWebhooks is how many deliveries one controller makes of events and sends, to receivers that answer at once.
// The receivers and the database share the processors with it. Every webhook takes every event.
func BenchmarkWebhooks(b *testing.B) {
	for _, hooks := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("webhooks=%d", hooks), func(b *testing.B) { deliverAll(b, hooks) })
	}
}

func deliverAll(b *testing.B, hooks int) {
	r := newRig(b)
	r.log = slog.New(slog.DiscardHandler)
	r.register("m-1", map[string]string{"rack": "r42", "env": "prod"})
	var arrived atomic.Int64
	all := make(chan struct{})
	events := (b.N + hooks - 1) / hooks
	want := int64(events * hooks)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if arrived.Add(1) == want {
			close(all)
		}
	}))
	b.Cleanup(server.Close)
	for range hooks {
		r.subscribeWide(server.URL)
	}
	r.run()
	before := storetest.CPUTime(b, r.store)
	b.ResetTimer()
	_, err := r.store.DB.Pool().Exec(b.Context(), `INSERT INTO webhook_outbox (machine_id, kind, from_value, to_value)
		SELECT 'm-1', 'phase_changed', 'READY', 'MAINTENANCE' FROM generate_series(1, $1::int)`, events)
	if err != nil {
		b.Fatal(err)
	}
	select {
	case <-all:
	case <-time.After(5 * time.Minute):
		b.Fatalf("%d of %d have arrived", arrived.Load(), want)
	}
	used := storetest.CPUTime(b, r.store) - before
	b.ReportMetric(float64(want)/b.Elapsed().Seconds(), "deliveries/s")
	b.ReportMetric(float64(used.Microseconds())/float64(want), "cpu-µs/delivery")
}

// subscribeWide makes a webhook with as many requests at once as there may be.
func (r *rig) subscribeWide(url string) {
	r.t.Helper()
	id := ids.New(ids.Webhook)
	_, _, err := r.store.Webhooks.CreateWebhook(r.t.Context(), webhookstore.WebhookSpec{ID: id, URL: url,
		MaxConcurrency: 4}, webhookstore.SealedSecret{ID: "s", Sealed: r.box.SealWebhook(id, "s", webhook.NewSecret())},
		"tester", time.Now())
	if err != nil {
		r.t.Fatal(err)
	}
}

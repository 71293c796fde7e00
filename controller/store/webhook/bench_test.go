package webhook_test

import (
	"slices"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/store/storetest"
	webhookstore "github.com/ingot-metal/ingot/controller/store/webhook"
)

// BenchmarkSubscription is a transaction that changes a machine's phase: without a webhook, with one that takes events
// of operations alone, and with one that takes all. It also counts the events of machines that a reboot makes. Sending
// comes later, elsewhere.
func BenchmarkSubscription(b *testing.B) {
	s := storetest.New(b)
	agent := storetest.Live(b, s, "m-1")
	_, _, err := s.Webhooks.CreateWebhook(b.Context(), webhookstore.WebhookSpec{ID: "w", URL: "https://example.org/",
		MaxConcurrency: 2},
		webhookstore.SealedSecret{ID: "s", Sealed: []byte("x")}, "tester", storetest.Now())
	if err != nil {
		b.Fatal(err)
	}
	const reboots = 10
	for n := range reboots {
		if err := storetest.RebootOnce(b.Context(), s, agent, n+1); err != nil {
			b.Fatal(err)
		}
	}
	var events int
	if err := s.DB.Pool().QueryRow(b.Context(), "SELECT count(*) FROM webhook_outbox").Scan(&events); err != nil {
		b.Fatal(err)
	}
	kinds := []string{"none", "operations", "all"}
	set := map[string]string{
		"none":       "UPDATE webhooks SET state = 'paused', wants_machines = false",
		"operations": "UPDATE webhooks SET state = 'active', wants_machines = false",
		"all":        "UPDATE webhooks SET state = 'active', wants_machines = true",
	}
	// In short turns: tables grow and slow down while this runs, and other work comes and goes. Of the turns the median
	// counts.
	const turn = 100
	used := map[string][]time.Duration{}
	b.ResetTimer()
	for range b.N {
		for _, kind := range kinds {
			if err := storetest.ExecSQL(b, s, set[kind]); err != nil {
				b.Fatal(err)
			}
			used[kind] = append(used[kind], storetest.ProcessorTime(b, s, func() {
				for range turn {
					err := storetest.ExecSQL(b, s,
						`UPDATE machines SET version = version + 1, phase = CASE phase WHEN 'READY' THEN 'MAINTENANCE' ELSE 'READY' END
						WHERE machine_id = 'm-1'`)
					if err != nil {
						b.Fatal(err)
					}
				}
			}))
		}
	}
	for _, kind := range kinds {
		slices.Sort(used[kind])
		b.ReportMetric(float64(used[kind][b.N/2].Microseconds())/turn, "cpu-µs/"+kind)
	}
	b.ReportMetric(float64(events)/reboots, "events/reboot")
}

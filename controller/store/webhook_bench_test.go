package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// BenchmarkSubscription is a whole reboot at the store: without a webhook, with one that takes events of operations, and
// with one that takes all. It is what the transactions of the events cost; sending comes later, elsewhere.
func BenchmarkSubscription(b *testing.B) {
	s := storetest.New(b)
	const machines, turn = 4, 50
	agents := make([]enrolled, machines)
	for i := range agents {
		agents[i] = live(b, s, fmt.Sprintf("m-%d", i))
	}
	_, _, err := s.CreateWebhook(b.Context(), store.WebhookSpec{ID: "w", URL: "https://example.org/", MaxConcurrency: 2},
		store.SealedSecret{ID: "s", Sealed: []byte("x")}, "tester", now())
	if err != nil {
		b.Fatal(err)
	}
	kinds := []string{"none", "operations", "all"}
	set := map[string]string{
		"none":       "UPDATE webhooks SET state = 'paused', wants_machines = false",
		"operations": "UPDATE webhooks SET state = 'active', wants_machines = false",
		"all":        "UPDATE webhooks SET state = 'active', wants_machines = true",
	}
	// In turns: tables grow and slow down while this runs.
	used, n := map[string]time.Duration{}, 0
	b.ResetTimer()
	for range b.N {
		for _, kind := range kinds {
			if err := execSQL(b, s, set[kind]); err != nil {
				b.Fatal(err)
			}
			used[kind] += cpuOf(b, s, func() {
				first := n
				n += turn
				for _, err := range together(b, machines, func(ctx context.Context, i int) error { return reboots(ctx, s, agents[i], first, turn) }) {
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
	each := func(kind string) float64 { return float64(used[kind].Microseconds()) / float64(b.N*machines*turn) }
	for _, kind := range kinds {
		b.ReportMetric(each(kind), "cpu-µs/"+kind)
	}
	b.ReportMetric(100*(each("all")/each("none")-1), "%added")
}

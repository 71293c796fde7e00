package bmc_test

import (
	"context"
	"testing"

	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/provider"
)

// What one reading and one whole cycle cost, with a BMC that answers at once.
func BenchmarkBMC(b *testing.B) {
	c := newChassis(true)
	r, sim := startRedfish(b, c), startIPMI(b, c)
	p := newProvider(b, newSafe(password), nil)
	for _, tc := range []struct{ name, endpoint string }{{"redfish", r.Endpoint()}, {"ipmi", sim.Endpoint()}} {
		run := func(name string, fn func(context.Context, provider.Target) error) {
			b.Run(tc.name+"/"+name, func(b *testing.B) {
				for b.Loop() {
					if err := fn(b.Context(), target(tc.endpoint)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("read", func(ctx context.Context, t provider.Target) error { _, err := p.PowerState(ctx, t); return err })
		run("cycle", func(ctx context.Context, t provider.Target) error {
			return p.Reboot(ctx, t, cause("c"), boot.RebootForced)
		})
	}
}

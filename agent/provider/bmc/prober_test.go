package bmc_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	lab "github.com/ingot-metal/ingot/lab/bmc"
)

func TestProber(t *testing.T) {
	t.Parallel()
	c := newChassis(true)
	r, sim := startRedfish(t, c), startIPMI(t, newChassis(false))
	wrong := startRedfish(t, newChassis(true))
	s := newSafe(password)
	bad := newSafe("wrong-one")
	p := newProvider(t, s, func(cfg *bmc.Config) {
		cfg.Credentials = func(ctx context.Context, t provider.Target) (bmc.Credentials, error) {
			if t.CredentialsRef == "bad" {
				return bad.get(ctx, t)
			}
			return s.get(ctx, t)
		}
	})
	var mu sync.Mutex
	seen := map[string][]bmc.Observation{}
	prober := bmc.NewProber(bmc.ProberConfig{
		Provider: p, Clock: clock.Real(), Every: 50 * time.Millisecond,
		Report: func(o bmc.Observation) {
			mu.Lock()
			defer mu.Unlock()
			seen[o.MachineID] = append(seen[o.MachineID], o)
		},
	})
	last := func(id string) (bmc.Observation, int) {
		mu.Lock()
		defer mu.Unlock()
		all := seen[id]
		if len(all) == 0 {
			return bmc.Observation{}, 0
		}
		return all[len(all)-1], len(all)
	}
	machine := func(id, endpoint, ref string) provider.Target {
		return provider.Target{MachineID: id, BMCEndpoint: endpoint, CredentialsRef: ref}
	}
	prober.Replace([]provider.Target{
		machine("on", r.Addr(), "good"), machine("off", sim.Addr(), "good"), machine("parked", wrong.Endpoint(), "bad"),
		machine("typo", "telnet://x", "good"), machine("none", "", "good"),
	})
	ctx, cancel := context.WithCancel(t.Context())
	group, _ := task.New(ctx)
	group.Go("prober", prober.Run)
	testkit.Eventually(t, 20*time.Second, func() bool {
		_, a := last("on")
		_, b := last("off")
		_, c := last("parked")
		_, d := last("typo")
		return min(a, b, c, d) >= 5
	}, "not every BMC was looked at")
	for id, want := range map[string]bmc.Observation{
		"on":     {Reachable: true, Power: provider.PowerOn, Protocol: "redfish"},
		"off":    {Reachable: true, Power: provider.PowerOff, Protocol: "ipmi"},
		"parked": {Power: provider.PowerUnknown, Reason: "BMC_AUTH_FAILED"},
		"typo":   {Power: provider.PowerUnknown, Reason: "INVALID_FIELD"},
	} {
		got, _ := last(id)
		if got.Reachable != want.Reachable || got.Power != want.Power || got.Reason != want.Reason || want.Protocol != "" &&
			got.Protocol != want.Protocol {
			t.Errorf("%s: %+v, want %+v", id, got, want)
		}
	}
	if n := wrong.Counts().WrongPasswords; n != 1 {
		t.Errorf("the prober has tried a wrong password %d times", n)
	}
	if err := c.SetPower(t.Context(), lab.ForceOff); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() bool { o, _ := last("on"); return o.Power == provider.PowerOff },
		"a change was not seen")
	prober.Replace(nil)
	testkit.Eventually(t, 10*time.Second,
		func() bool { _, n := last("on"); return still(n, func() int { _, n := last("on"); return n }) },
		"it goes on without targets")
	cancel()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// still reports whether count stays at n for some rounds of the prober.
func still(n int, count func() int) bool {
	<-time.After(300 * time.Millisecond)
	return count() == n
}

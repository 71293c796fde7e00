package reconfig

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/rollback"
)

func TestDriftIsToldOnceAndWhenItIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.wantResult(r.execute(order(t, 1, "192.0.2.7/24")), succeeded, noReason)
		committed := *r.mustSave().Applied
		foreign := committed
		foreign.Interfaces = append([]network.Interface(nil), committed.Interfaces...)
		foreign.Interfaces[0].MTU = 9000

		var told []Drift
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.e.WatchDrift(ctx, time.Minute, func(_ context.Context, d Drift) error {
				told = append(told, d)
				return nil
			}, func(err error) { t.Error(err) })
		}()
		// world sets what is there, and lets ten minutes pass.
		world := func(c network.Config, want int) {
			t.Helper()
			if err := r.host.Host.ApplyNetwork(t.Context(), effect.Cause{}, c); err != nil {
				t.Fatal(err)
			}
			<-time.After(10 * time.Minute)
			synctest.Wait()
			if len(told) != want {
				t.Fatalf("told %d times, want %d: %+v", len(told), want, told)
			}
		}
		world(committed, 0)
		world(foreign, 1)
		world(committed, 2)
		r.host.set(rollback.GuardPending)
		world(foreign, 2) // a change that waits for its proof is none
		cancel()
		<-done
		report := told[0].Report("m-1")
		if report.GetKind() != DriftKind || !strings.Contains(report.GetFields()["diff"], "+  \"mtu\": 9000\n") ||
			told[1].Diff != "" {
			t.Errorf("reports %v, then %+v", report, told[1])
		}
		if err := r.host.Close(); err != nil {
			t.Error(err)
		}
	})
}

func (r *rig) mustSave() network.SavedNetwork {
	r.t.Helper()
	s, err := r.host.SaveNetwork(r.t.Context(), network.Config{})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

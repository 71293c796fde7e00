package reconfig

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/rollback"
)

func TestDriftIsWhatSomebodyElseHasChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		wants := func(name string) Drift {
			t.Helper()
			d, err := r.e.Drift(t.Context())
			if err != nil || name != "" && d.State() != name {
				t.Fatalf("drift %+v of state %q, %v, want %q", d, d.State(), err, name)
			}
			return d
		}
		if d := wants(""); d.State() != "" {
			t.Errorf("a host that was never configured: %+v", d)
		}
		r.wantResult(r.execute(order(t, 1, "192.0.2.7/24")), succeeded, noReason)
		committed := *r.mustSave().Applied
		foreign := committed
		foreign.Interfaces = append([]network.Interface(nil), committed.Interfaces...)
		foreign.Interfaces[0].MTU = 9000
		world := func(c network.Config) {
			t.Helper()
			if err := r.host.Host.ApplyNetwork(t.Context(), effect.Cause{}, c); err != nil {
				t.Fatal(err)
			}
		}
		none := wants("none")
		world(foreign)
		changed := wants("")
		if changed.State() != changed.Digest() || changed.Diff == "" {
			t.Errorf("changed by hand: %+v of state %q", changed, changed.State())
		}
		world(committed)
		wants("none")
		r.host.set(rollback.GuardPending)
		world(foreign)
		wants("none") // a change that waits for its proof is none
		report := changed.Report("m-1")
		if report.GetKind() != DriftKind || !strings.Contains(report.GetFields()["diff"], "+  \"mtu\": 9000\n") {
			t.Errorf("reports %v", report)
		}
		if report := none.Report("m-1"); report.GetFields()["diff"] != "" || report.GetFields()["generation"] != "1" {
			t.Errorf("without a drift it reports %v", report)
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

package reconfig

import (
	"slices"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/host/effect"
)

// drifts has another program set the MTU of eth0.
func (r *rig) drifts(mtu int) {
	r.t.Helper()
	foreign := *r.mustSave().Applied
	foreign.Interfaces = slices.Clone(foreign.Interfaces)
	foreign.Interfaces[0].MTU = mtu
	if err := r.host.Host.ApplyNetwork(r.t.Context(), effect.Cause{CommandID: "somebody"}, foreign); err != nil {
		r.t.Fatal(err)
	}
}

// accepting is an order of eth0's next address that accepts a drift.
func accepting(t *testing.T, generation int64, digest string) *fleetv1.CommandSpec {
	t.Helper()
	return orderOf(t, generation, &baremetalv1.NetReconfig{
		AcceptedDrift: digest,
		Interfaces:    []*baremetalv1.NetworkInterface{{Name: "eth0", Addresses: []string{"192.0.2.8/24"}}},
	})
}

func (r *rig) refusedDrift(spec *fleetv1.CommandSpec) (digest string) {
	r.t.Helper()
	_, settled, err := r.e.Prepare(r.t.Context(), spec)
	if err != nil || settled == nil {
		r.t.Fatalf("prepare: %v, %v", settled, err)
	}
	r.wantResult(*settled, fleetv1.CommandResult_REFUSED, baremetalv1.Reason_CONFIG_DRIFT)
	digest = settled.Evidence["drift_digest"]
	if !strings.Contains(settled.Message, "accepted_drift "+digest+" overwrites it") {
		r.t.Errorf("the message does not name %s: %s", digest, settled.Message)
	}
	return digest
}

// TestADriftIsAcceptedByItsDigest, and no other one, whenever that comes.
func TestADriftIsAcceptedByItsDigest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wantResult(r.execute(order(t, 1, "192.0.2.7/24")), succeeded, noReason)
	r.drifts(9000)
	seen := r.refusedDrift(order(t, 2, "192.0.2.8/24"))
	if d, err := r.e.Drift(t.Context()); err != nil || d.Report("m-1").GetFields()["digest"] != seen {
		t.Errorf("reported with the digest %q, refused with %s (%v)", d.Report("m-1").GetFields()["digest"], seen, err)
	}
	r.drifts(1400)
	other := r.refusedDrift(accepting(t, 2, seen))
	if other == seen {
		t.Fatal("two differences have one digest")
	}
	// It changes again, between the decision and the change.
	job := r.prepare(accepting(t, 2, other))
	r.drifts(9000)
	r.host.log = nil
	got, err := r.e.Execute(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	r.wantResult(got, failed, baremetalv1.Reason_CONFIG_DRIFT)
	if got.Evidence["drift_digest"] != seen || r.mustSave().Applied.Interfaces[0].MTU != 9000 {
		t.Errorf("evidence %v, MTU %d", got.Evidence, r.mustSave().Applied.Interfaces[0].MTU)
	}
	r.wantLog()
	r.wantResult(r.execute(accepting(t, 3, seen)), succeeded, noReason)
	if now := r.mustSave().Applied.Interfaces[0]; now.MTU != 0 || r.address() != "192.0.2.8/24" {
		t.Errorf("afterwards: %+v", now)
	}
}

// TestDriftBeforeAnOrderBegins: an order that accepts nothing does not overwrite what came after it was taken.
func TestDriftBeforeAnOrderBegins(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wantResult(r.execute(order(t, 1, "192.0.2.7/24")), succeeded, noReason)
	job := r.prepare(order(t, 2, "192.0.2.8/24"))
	r.drifts(9000)
	got, err := r.e.Execute(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	r.wantResult(got, failed, baremetalv1.Reason_CONFIG_DRIFT)
	if r.mustSave().Applied.Interfaces[0].MTU != 9000 {
		t.Error("overwritten")
	}
}

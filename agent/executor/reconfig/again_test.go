package reconfig

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/rollback"
	"github.com/ingot-metal/ingot/internal/clock"
	keys "github.com/ingot-metal/ingot/internal/evidence"
)

// named is an order that sets the host name alone.
func named(t *testing.T, generation int64, name string) *fleetv1.CommandSpec {
	t.Helper()
	return orderOf(t, generation, &baremetalv1.NetReconfig{Hostname: name})
}

// settled is what Prepare ends a command with.
func (r *rig) settled(spec *fleetv1.CommandSpec) executor.Result {
	r.t.Helper()
	_, settled, err := r.e.Prepare(r.t.Context(), spec)
	if err != nil || settled == nil {
		r.t.Fatalf("%+v, %v", settled, err)
	}
	return *settled
}

// TestAGenerationThatIsCommitted is not applied again: its own content is a success, another one and an older one are
// refused, and foreign changes are reported.
func TestAGenerationThatIsCommitted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	spec := whole(t, 2, "two")
	done := r.execute(spec)
	r.wantResult(done, succeeded, noReason)
	if done.Evidence["firewall_digest"] == "" || done.Evidence["network_digest"] == "" {
		t.Errorf("evidence %v", done.Evidence)
	}
	if r.docs["reconfig.m-1"] == nil {
		t.Errorf("remembered %q", r.docs)
	}
	got := r.settled(spec)
	r.wantResult(got, succeeded, noReason)
	if got.Evidence["no_op"] != "true" || got.Evidence[keys.ConfigDigest] != done.Evidence[keys.ConfigDigest] ||
		got.Evidence["hostname"] != "two" {
		t.Errorf("evidence %v", got.Evidence)
	}
	r.wantResult(r.settled(named(t, 2, "other")), refused, baremetalv1.Reason_INVALID_FIELD)
	r.wantResult(r.settled(named(t, 1, "one")), refused, baremetalv1.Reason_INVALID_FIELD)
	if err := r.host.SetHostname(t.Context(), effect.Cause{}, "other"); err != nil {
		t.Fatal(err)
	}
	got = r.settled(spec)
	r.wantResult(got, failed, baremetalv1.Reason_CONFIG_DRIFT)
	if !strings.Contains(got.Evidence["drift"], "+hostname other") {
		t.Errorf("evidence %v", got.Evidence)
	}
	spec = named(t, 3, "three")
	spec.GetReconfig().Config = []byte{0xff}
	r.wantResult(r.settled(spec), refused, baremetalv1.Reason_INVALID_FIELD)
}

// TestANameAlone does not change the network, which stays committed; no new connection is needed, and it is proved all
// the same.
func TestANameAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wantResult(r.execute(order(t, 1, "192.0.2.7/24")), succeeded, noReason)
	r.moves = 0
	r.wantResult(r.execute(named(t, 2, "two")), succeeded, noReason)
	if r.moves != 0 || r.host.record.Hostname == "" || r.host.record.SetsFirewall || r.host.record.Network != nil {
		t.Errorf("told %d times to reconnect, guard %+v", r.moves, r.host.record)
	}
	foreign := network.Config{Interfaces: []network.Interface{{Name: "eth0", MTU: 9000}}}
	if err := r.host.Host.ApplyNetwork(t.Context(), effect.Cause{}, foreign); err != nil {
		t.Fatal(err)
	}
	if d, err := r.e.Drift(t.Context()); err != nil || d.Generation != 2 || !strings.Contains(d.Diff, "mtu") {
		t.Errorf("drift %+v, %v", d, err)
	}
	h := newPlainRig(t, "")
	h.prove = func(context.Context) error { return errBroken }
	h.wantResult(h.execute(named(t, 1, "one")), failed, rolledBack)
}

// TestTheGuardKnowsTheWayBack: what the order sets, as it was before, until the time to confirm is up.
func TestTheGuardKnowsTheWayBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	before, err := r.host.Hostname(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	spec := whole(t, 1, "one")
	spec.GetReconfig().ConfirmTimeoutMs = 0 // a minute
	r.wantResult(r.execute(spec), succeeded, noReason)
	g := r.host.record
	if left := g.Deadline - clock.Boottime(); left <= 30*time.Second || left > time.Minute {
		t.Errorf("the guard stands for another %s", left)
	}
	if g.Hostname != before || !g.SetsFirewall || g.Firewall != nil || g.Network == nil ||
		g.CommandID != spec.GetCommandId() || g.MachineID != "m-1" {
		t.Errorf("guard %+v", g)
	}
	r.wantResult(r.execute(order(t, 2, "192.0.2.8/24")), succeeded, noReason)
	if g := r.host.record; g.Hostname != "" || g.SetsFirewall {
		t.Errorf("guard %+v", g)
	}
	r.e.cfg.Moved = nil // it need not be there
	r.wantResult(r.execute(order(t, 3, "192.0.2.9/24")), succeeded, noReason)
}

// TestWhatChangesAfterTheCommit is said, and what cannot be read then is left to the next life.
func TestWhatChangesAfterTheCommit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.moved = func() {
		if err := r.host.RemoveFirewall(t.Context(), effect.Cause{}); err != nil {
			t.Error(err)
		}
	}
	got := r.execute(whole(t, 1, "one"))
	r.wantResult(got, failed, baremetalv1.Reason_EVIDENCE_MISSING)
	if got.Evidence["generation"] != "1" || !strings.Contains(got.Message, "firewall none") {
		t.Errorf("%q, evidence %v", got.Message, got.Evidence)
	}
	r = newRig(t)
	r.moved = func() { r.host.fails["Network"] = errBroken }
	if got, err := r.e.Execute(t.Context(), r.prepare(order(t, 1, "192.0.2.7/24"))); !errors.Is(err, errBroken) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestOneOfTwoCommandsIsCommitted: the other, which was prepared before, is not taken for it after a restart.
func TestOneOfTwoCommandsIsCommitted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first, other, later := order(t, 1, "192.0.2.7/24"), order(t, 1, "192.0.2.8/24"), order(t, 2, "192.0.2.7/24")
	later.CommandId = "c-later"
	jobs := []executor.Job{r.prepare(first), r.prepare(other), r.prepare(later)}
	if got, err := r.e.Execute(t.Context(), jobs[0]); err != nil || got.Outcome != succeeded {
		t.Fatal(got, err)
	}
	r.host.log = nil
	r.wantResult(r.resume(jobs[0]), succeeded, noReason)
	r.wantResult(r.resume(jobs[1]), failed, rolledBack)
	r.wantResult(r.resume(jobs[2]), failed, rolledBack)
	r.wantLog() // nothing is remembered once more
}

// TestADamagedIntent is no reason to change anything.
func TestADamagedIntent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	job := r.prepare(order(t, 1, "192.0.2.7/24"))
	job.Intent = json.RawMessage(`{"generation":`)
	if got, err := r.e.Execute(t.Context(), job); err == nil {
		t.Errorf("executed as %+v", got)
	}
	if v, err := r.e.Resume(t.Context(), job); err == nil {
		t.Errorf("resumed with %+v", v.Settled)
	}
	r.wantLog()
}

// TestStopsAroundAChange: a cancel before the change ends it with nothing changed. An agent that stops rolls back if it
// still can; otherwise the next start of the agent does.
func TestStopsAroundAChange(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(executor.ErrCanceled)
	got, err := r.e.Execute(canceled, r.prepare(order(t, 1, "192.0.2.7/24")))
	if err != nil {
		t.Fatal(err)
	}
	r.wantResult(got, fleetv1.CommandResult_CANCELED, baremetalv1.Reason_CANCELED_BY_REQUEST)
	r.wantLog()

	stopping, stop := context.WithCancelCause(t.Context())
	r.prove = func(context.Context) error {
		stop(executor.ErrShutdown)
		return errBroken
	}
	job := r.prepare(order(t, 1, "192.0.2.7/24"))
	if got, err = r.e.Execute(stopping, job); err != nil {
		t.Fatal(err)
	}
	r.wantResult(got, failed, rolledBack)
	r.host.record.State = rollback.GuardPending
	r.host.fails["RollBackGuard"] = errBroken
	if v, err := r.e.Resume(stopping, job); !errors.Is(err, executor.ErrInterrupted) {
		t.Errorf("resumed with %+v, %v", v.Settled, err)
	}
	r.host.fails["Guarded"] = errBroken
	if got, err := r.e.undo(t.Context(), job, intent{}, errBroken); err != nil || got.Outcome != unknown {
		t.Errorf("with a guard that cannot be read: %+v, %v", got, err)
	}
}

// TestARefusalThatCannotBeTakenBack has an open end.
func TestARefusalThatCannotBeTakenBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	job := r.prepare(order(t, 1, "192.0.2.7/24"))
	r.host.fails["ApplyNetwork"], r.host.fails["RollBackGuard"] = &effect.Refusal{Kind: effect.ErrUnsupported}, errBroken
	if got, err := r.e.Execute(t.Context(), job); !errors.Is(err, errBroken) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestWhatMustBeReadBeforeAChange: an order over a drift, which needs no comparison, still needs the way back.
func TestWhatMustBeReadBeforeAChange(t *testing.T) {
	t.Parallel()
	for _, read := range []string{"Hostname", "SaveNetwork", "support"} {
		r := newRig(t)
		spec := orderOf(t, 1, &baremetalv1.NetReconfig{
			AcceptDrift: true, Interfaces: []*baremetalv1.NetworkInterface{{Name: "eth0", Addresses: []string{"192.0.2.8/24"}}},
		})
		r.host.fails[read] = errBroken
		r.host.support = r.host.fails["support"]
		if in, settled, err := r.e.Prepare(t.Context(), spec); !errors.Is(err, errBroken) {
			t.Errorf("%s: %+v, %+v, %v", read, in, settled, err)
		}
	}
}

// TestTheWaysToTheControllers: each new address on the way to one is tried once; a way that is not known is no reason
// to prove less.
func TestTheWaysToTheControllers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	unknownWay, one, same := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.2:1"),
		netip.MustParseAddrPort("127.0.0.3:1")
	from := netip.MustParseAddr("127.0.0.9")
	r.e.cfg.Controllers = func(context.Context) []netip.AddrPort { return []netip.AddrPort{unknownWay, one, same} }
	r.host.sources = map[netip.Addr]netip.Addr{one.Addr(): from, same.Addr(): from}
	r.host.fails["NetworkSource"] = errBroken
	got := r.execute(order(t, 1, "192.0.2.7/24"))
	r.wantResult(got, succeeded, noReason)
	if got.Evidence["proven_from"] != from.String() {
		t.Errorf("evidence %v", got.Evidence)
	}
	proofs := 0
	r.prove = func(context.Context) error {
		proofs++
		return errBroken
	}
	got = r.execute(order(t, 2, "192.0.2.8/24"))
	r.wantResult(got, failed, rolledBack)
	if proofs != 1 || strings.Count(got.Message, "from 127.0.0.9: "+errBroken.Error()) != 1 ||
		!strings.Contains(got.Message, "no new contact") {
		t.Errorf("%d proofs: %q", proofs, got.Message)
	}
}

package reconfig

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/internal/clock"
)

// plain is a simulated host without a watchdog, which writes down what changes it. A change may come later than it is
// accepted.
type plain struct {
	*sim.Host
	log   []string
	fails map[string]error
}

func (p *plain) change(what string, e effect.Cause) error {
	p.log = append(p.log, what+" by "+e.CommandID)
	return p.fails[what]
}

func (p *plain) SetHostname(ctx context.Context, e effect.Cause, name string) error {
	if err := p.change("hostname "+name, e); err != nil {
		return err
	}
	return p.Host.SetHostname(ctx, e, name)
}

func (p *plain) ApplyFirewall(ctx context.Context, e effect.Cause, f firewall.Policy) error {
	what := "firewall"
	if f.OverwriteDrift {
		what += " over all"
	}
	if err := p.change(what, e); err != nil {
		return err
	}
	return p.Host.ApplyFirewall(ctx, e, f)
}

func (p *plain) RemoveFirewall(ctx context.Context, e effect.Cause) error {
	if err := p.change("no firewall", e); err != nil {
		return err
	}
	return p.Host.RemoveFirewall(ctx, e)
}

func (p *plain) RestoreNetwork(ctx context.Context, e effect.Cause, s network.SavedNetwork) error {
	if err := p.change("network back", e); err != nil {
		return err
	}
	return p.Host.RestoreNetwork(ctx, e, s)
}

func (p *plain) Network(
	ctx context.Context, c network.Config, before *network.SavedNetwork,
) (network.State, error) {
	s, err := p.Host.Network(ctx, c, before)
	return s, errors.Join(err, p.fails["Network"])
}

type plainRig struct {
	*rig
	host *plain
}

func newPlainRig(t *testing.T, script string) *plainRig {
	t.Helper()
	r := newScriptedRig(t, script)
	out := &plainRig{rig: r, host: &plain{Host: r.host.Host, fails: r.host.fails}}
	r.e = New(Config{
		Host: out.host, Docs: memory{docs: r.docs, log: &r.host.log, fails: r.host.fails}, Clock: clock.Real(),
		TargetID:    "m-1",
		Prove:       func(ctx context.Context) error { return r.prove(ctx) },
		Controllers: func(context.Context) []netip.AddrPort { return nil },
	})
	return out
}

// TestAHostWithoutAWatchdogGoesBack itself: to what was there before, for what the order has set and nothing else.
func TestAHostWithoutAWatchdogGoesBack(t *testing.T) {
	t.Parallel()
	r := newPlainRig(t, "")
	before, err := r.host.Hostname(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	works := r.prove
	broken := func(context.Context) error { return errBroken }
	first := whole(t, 1, "one")
	by := " by " + first.GetCommandId()
	r.prove = broken
	r.wantResult(r.execute(first), failed, rolledBack)
	r.did("hostname one"+by, "firewall"+by, "network back"+by+"-rollback", "hostname "+before+by+"-rollback",
		"no firewall"+by+"-rollback")

	r.prove = works
	r.wantResult(r.execute(first), succeeded, noReason)
	committed, err := r.host.Firewall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.host.log, r.prove = nil, broken
	second := orderOf(t, 2, &baremetalv1.NetReconfig{Firewall: &baremetalv1.FirewallPolicy{DefaultInput: "accept"}})
	by = " by " + second.GetCommandId()
	r.wantResult(r.execute(second), failed, rolledBack)
	r.did("firewall"+by, "firewall over all"+by+"-rollback")
	if now, err := r.host.Firewall(t.Context()); err != nil || now.Digest != committed.Digest {
		t.Errorf("firewall %+v, %v, want %+v", now, err, committed)
	}
	third := order(t, 3, "192.0.2.8/24")
	r.wantResult(r.execute(third), failed, rolledBack)
	r.did("network back by " + third.GetCommandId() + "-rollback")
	if r.address() != "192.0.2.7/24" {
		t.Errorf("address %q", r.address())
	}
	// it may have been accepted before the restart
	r.wantResult(r.resume(r.prepare(third)), unknown, baremetalv1.Reason_EVIDENCE_MISSING)
}

// did compares the changes of the host since the last call.
func (r *plainRig) did(want ...string) {
	r.t.Helper()
	if !slices.Equal(r.host.log, want) {
		r.t.Errorf("done\n%s\nwant\n%s", strings.Join(r.host.log, "\n"), strings.Join(want, "\n"))
	}
	r.host.log = nil
}

// TestAWayBackThatFails: the state of the host is unknown.
func TestAWayBackThatFails(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"network back", "hostname ", "no firewall"} {
		r := newPlainRig(t, "")
		before, err := r.host.Hostname(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if what == "hostname " {
			what += before
		}
		r.host.fails[what] = errBroken
		r.prove = func(context.Context) error { return errBroken }
		got := r.execute(whole(t, 1, "one"))
		r.wantResult(got, unknown, baremetalv1.Reason_OUTCOME_UNKNOWN)
		if !strings.Contains(got.Message, "restore") {
			t.Errorf("%s: %q", what, got.Message)
		}
	}
}

// TestAChangeThatCannotBeSeen may still come, where changes come later.
func TestAChangeThatCannotBeSeen(t *testing.T) {
	t.Parallel()
	r := newPlainRig(t, "")
	job := r.prepare(order(t, 1, "192.0.2.7/24"))
	r.host.fails["Network"] = errBroken
	got, err := r.e.Execute(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	r.wantResult(got, unknown, baremetalv1.Reason_EVIDENCE_MISSING)
	r = newPlainRig(t, "firewall:late=1h")
	r.prove = func(context.Context) error { return errBroken }
	r.wantResult(r.execute(whole(t, 1, "one")), unknown, baremetalv1.Reason_EVIDENCE_MISSING)
}

// TestRestoreAtStart restores committed settings that are gone, and nothing else.
func TestRestoreAtStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	restores := func(want error, log ...string) {
		t.Helper()
		r.host.log = nil
		if err := r.e.Restore(t.Context()); !errors.Is(err, want) {
			t.Errorf("restored: %v, want %v", err, want)
		}
		r.wantLog(log...)
	}
	present := func(want bool) {
		t.Helper()
		if s, err := r.host.Host.Firewall(t.Context()); err != nil || s.Present != want {
			t.Errorf("firewall %+v, %v", s, err)
		}
	}
	r.host.fails["Firewall"], r.host.fails["NetworkForgotten"], r.host.forgot = errBroken, errBroken, true
	restores(nil) // nothing is committed
	delete(r.host.fails, "Firewall")
	delete(r.host.fails, "NetworkForgotten")
	r.wantResult(r.execute(whole(t, 1, "one")), succeeded, noReason)
	r.host.fails["ApplyFirewall"] = errBroken
	r.host.forgot = false
	restores(nil) // all is there
	if err := r.host.RemoveFirewall(t.Context(), effect.Cause{}); err != nil {
		t.Fatal(err)
	}
	restores(errBroken)
	present(false)
	delete(r.host.fails, "ApplyFirewall")
	restores(nil)
	present(true)
	r.host.forgot = true
	restores(nil, "apply")
	r.host.fails["NetworkForgotten"] = errBroken
	restores(errBroken)
	delete(r.host.fails, "NetworkForgotten")
	r.host.fails["ApplyNetwork"] = errBroken
	restores(errBroken, "apply")

	r = newRig(t)
	r.host.forgot = true
	r.wantResult(r.execute(named(t, 1, "one")), succeeded, noReason)
	restores(nil)
	present(false)
	p := newPlainRig(t, "")
	p.wantResult(p.execute(whole(t, 1, "one")), succeeded, noReason)
	p.did("hostname one by "+whole(t, 1, "one").GetCommandId(), "firewall by "+whole(t, 1, "one").GetCommandId())
	if err := p.e.Restore(t.Context()); err != nil {
		t.Error(err)
	}
	p.did()
}

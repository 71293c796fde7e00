package reconfig

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/executortest"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/rollback"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/transport"
	"github.com/ingot-metal/ingot/internal/clock"
)

const (
	succeeded  = fleetv1.CommandResult_SUCCEEDED
	failed     = fleetv1.CommandResult_FAILED
	refused    = fleetv1.CommandResult_REFUSED
	rolledBack = baremetalv1.Reason_CONFIG_ROLLED_BACK
	noReason   = baremetalv1.Reason_REASON_UNSPECIFIED
)

func TestTheGuardStandsBeforeTheChangeAndTheCommitBeforeTheMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wantResult(r.execute(order(t, 1, "192.0.2.7/24")), succeeded, noReason)
	r.wantLog("guard", "apply", "commit", "remember")
	if r.address() != "192.0.2.7/24" || r.moves != 1 {
		t.Errorf("address %s, told %d times to reconnect", r.address(), r.moves)
	}
}

func TestWithoutProofTheWatchdogIsToldToGoBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wantResult(r.execute(order(t, 1, "192.0.2.7/24")), succeeded, noReason)
	r.host.log, r.moves = nil, 0
	r.prove = func(context.Context) error { return errors.New("nobody answers") }
	began := time.Now()
	r.wantResult(r.execute(order(t, 2, "192.0.2.8/24")), failed, rolledBack)
	r.wantLog("guard", "apply", "rollback")
	if r.address() != "192.0.2.7/24" || r.moves != 0 {
		t.Errorf("address %s, told %d times to reconnect", r.address(), r.moves)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("a limit of 1 s took %s", took)
	}
}

func TestAProofThatHangsEndsAtTheDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.prove = func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	began := time.Now()
	r.wantResult(r.execute(order(t, 1, "192.0.2.7/24")), failed, rolledBack)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("a limit of 1 s took %s", took)
	}
}

func TestADeadlineBeforeTheCommitWins(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.host.tooLate = true
	r.wantResult(r.execute(order(t, 1, "192.0.2.7/24")), failed, rolledBack)
	r.wantLog("guard", "apply", "commit", "rollback")
	if now, err := r.e.committed(t.Context()); err != nil || now.Generation != 0 || r.address() != "" {
		t.Errorf("generation %d is remembered, the address is %q (%v)", now.Generation, r.address(), err)
	}
}

// What an agent finds that was killed, by how far it had come.
func TestResume(t *testing.T) {
	t.Parallel()
	spec := order(t, 1, "192.0.2.7/24")
	change := func(r *rig) {
		r.t.Helper()
		saved, err := r.host.SaveNetwork(t.Context(), network.Config{})
		if err != nil {
			t.Fatal(err)
		}
		_ = r.host.Guard(t.Context(), rollback.Guard{CommandID: spec.GetCommandId(), Network: &saved})
		c := network.Config{
			Interfaces: []network.Interface{{Name: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.7/24")}}}}
		if err := r.host.ApplyNetwork(t.Context(), effect.Cause{}, c); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		before  func(*rig)
		outcome fleetv1.CommandResult_Outcome
		reason  baremetalv1.Reason
		address string
	}{
		"before the guard": {func(*rig) {}, failed, rolledBack, ""},
		"before the proof": {change, failed, rolledBack, ""},
		"the watchdog was there first": {func(r *rig) {
			change(r)
			_ = r.host.RollBackGuard(t.Context(),
				spec.GetCommandId())
		}, failed, rolledBack, ""},
		"after the commit, with no memory": {func(r *rig) { change(r); r.host.record.State = rollback.GuardCommitted },
			succeeded,
			noReason, "192.0.2.7/24"},
		"a guard of another command stays": {func(r *rig) {
			r.host.record = &rollback.Guard{CommandID: "other", State: rollback.GuardCommitted}
		}, failed, rolledBack, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			job := r.prepare(spec)
			c.before(r)
			r.wantResult(r.resume(job), c.outcome, c.reason)
			if r.address() != c.address {
				t.Errorf("address %q, want %q", r.address(), c.address)
			}
			now, err := r.e.committed(t.Context())
			if err != nil || (now.Generation == 1) != (c.outcome == succeeded) {
				t.Errorf("remembered: %+v (%v)", now, err)
			}
		})
	}
}

// The connection that proves the new address comes from it.
func TestTheProofComesFromTheNewAddress(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // no connection is accepted any more
	r.host.source = netip.MustParseAddr("127.0.0.9")
	r.prove = func(ctx context.Context) error {
		c, err := transport.NetDialer()(ctx, l.Addr().String())
		if err != nil {
			return err
		}
		return c.Close()
	}
	got := r.execute(order(t, 1, "192.0.2.7/24"))
	r.wantResult(got, succeeded, noReason)
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // it was never used
	if from := netip.MustParseAddrPort(c.RemoteAddr().String()).Addr().String(); from != "127.0.0.9" ||
		got.Evidence["proven_from"] != from {
		t.Errorf("the controller saw %s, the evidence says %s", from, got.Evidence["proven_from"])
	}
}

func TestAHostThatCannotSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.host.support = &effect.Refusal{Kind: effect.ErrNotWired, Reason: effect.ReasonNetworkNotWired, Detail: "no networkd"}
	_, settled, err := r.e.Prepare(t.Context(), order(t, 1, "192.0.2.7/24"))
	if err != nil || settled == nil {
		t.Fatalf("prepared: %v, %v", settled, err)
	}
	r.wantResult(*settled, refused, baremetalv1.Reason_NETWORK_RECONFIG_NOT_WIRED)
}

func TestBadOrdersAreRefused(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]*fleetv1.CommandSpec{
		"no prefix length": order(t, 1, "192.0.2.7"),
		"generation 0":     order(t, 0, "192.0.2.7/24"),
		"multicast":        order(t, 1, "224.0.0.1/4"),
	} {
		_, settled, err := newRig(t).e.Prepare(t.Context(), spec)
		if err != nil || settled == nil || settled.Reason != baremetalv1.Reason_INVALID_FIELD ||
			strings.Contains(settled.Message, "committed") {
			t.Errorf("%s: %v, %v", name, settled, err)
		}
	}
}

// late is a host that accepts a new name and takes it when it likes, and whose firewall does not get as far as that.
type late struct {
	*sim.Host
	cancel func()
}

func (l late) ApplyFirewall(ctx context.Context, _ effect.Cause, _ firewall.Policy) error {
	l.cancel()
	return ctx.Err()
}

// What was accepted and does not show may still come after a cancel in the middle: it is not reported as rolled back.
func TestACancelBeforeALateChangeIsNoEnd(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]fleetv1.CommandResult_Outcome{
		"hostname:late=1h": fleetv1.CommandResult_UNKNOWN, "": fleetv1.CommandResult_CANCELED,
	} {
		h, err := sim.New(sim.Config{Dir: t.TempDir(), MachineID: "m-1", NoSync: true, Script: script})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.Close() }) // nothing is owed to it
		ctx, cancel := context.WithCancelCause(t.Context())
		r := &rig{t: t, host: &guarded{}}
		r.e = New(Config{
			Host: late{h, func() { cancel(executor.ErrCanceled) }}, Docs: memory{docs: map[string][]byte{}, log: &r.host.log},
			Clock:    clock.Real(),
			TargetID: "m-1", Controllers: func(context.Context) []netip.AddrPort { return nil },
		})
		config, err := proto.Marshal(&baremetalv1.NetReconfig{Hostname: "new",
			Firewall: &baremetalv1.FirewallPolicy{DefaultInput: "drop"}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.e.Execute(ctx,
			r.prepare(&fleetv1.CommandSpec{CommandId: "c-1", TargetId: "m-1", Action: &fleetv1.CommandSpec_Reconfig{
				Reconfig: &fleetv1.ReconfigAction{Config: config, ConfirmTimeoutMs: 200, Generation: 1},
			}}))
		if err != nil || got.Outcome != want {
			t.Errorf("%q: %v, %v", script, got, err)
		}
	}
}

func TestKilledAtEachEffect(t *testing.T) {
	t.Parallel()
	executortest.Run(t, Declaration, func(t *testing.T) executortest.World {
		r := newRig(t)
		return executortest.World{
			Spec: order(t, 1, "10.0.0.2/24"), Executor: func() executor.Executor { return r.e },
			Effects: func() (n int) {
				for _, entry := range r.host.log {
					if entry == "apply" {
						n++
					}
				}
				return n
			},
		}
	})
}

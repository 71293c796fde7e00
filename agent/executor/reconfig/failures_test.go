package reconfig

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/rollback"
	keys "github.com/ingot-metal/ingot/internal/evidence"
)

const unknown = fleetv1.CommandResult_UNKNOWN

var errBroken = errors.New("input/output error")

// whole sets everything that an order can.
func whole(t *testing.T, generation int64, name string) *fleetv1.CommandSpec {
	t.Helper()
	return orderOf(t, generation, &baremetalv1.NetReconfig{
		Hostname: name, Firewall: &baremetalv1.FirewallPolicy{DefaultInput: "drop"},
		Interfaces: []*baremetalv1.NetworkInterface{{Name: "eth0", Addresses: []string{"192.0.2.7/24"}}},
	})
}

// TestWhatAnOrderLeavesOpenStaysCommitted: a later generation keeps the name and the policy of the one before.
func TestWhatAnOrderLeavesOpenStaysCommitted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	spec := whole(t, 1, "one")
	got := r.execute(spec)
	r.wantResult(got, succeeded, noReason)
	if got.Evidence["generation"] != "1" || got.Evidence[keys.ConfigDigest] != digestOf(spec.GetReconfig().GetConfig()) ||
		!strings.HasPrefix(got.Evidence[keys.ConfigDigest], "sha256:") || got.Evidence["hostname"] != "one" {
		t.Errorf("evidence %v", got.Evidence)
	}
	r.wantResult(r.execute(order(t, 2, "192.0.2.8/24")), succeeded, noReason)
	if err := r.host.SetHostname(t.Context(), effect.Cause{}, "other"); err != nil {
		t.Fatal(err)
	}
	if err := r.host.RemoveFirewall(t.Context(), effect.Cause{}); err != nil {
		t.Fatal(err)
	}
	d, err := r.e.Drift(t.Context())
	for _, line := range []string{"-hostname one\n", "+hostname other\n", "-firewall generation 1 ", "+firewall none\n",
		"rule by rule\n"} {
		if !strings.Contains(d.Diff, line) {
			t.Errorf("drift %q, %v lacks %q", d.Diff, err, line)
		}
	}
	_, settled, err := r.e.Prepare(t.Context(), order(t, 3, "192.0.2.9/24"))
	if err != nil || settled == nil || settled.Outcome != refused || settled.Reason != baremetalv1.Reason_CONFIG_DRIFT ||
		settled.Evidence["drift"] != d.Diff {
		t.Errorf("over a drift: %+v, %v", settled, err)
	}
}

// TestNothingIsSaidOfAHostThatCannotBeRead: an error of any read ends each call that needs it.
func TestNothingIsSaidOfAHostThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, read := range []string{"Hostname", "Firewall", "FirewallDiff", "Network", "Guarded", "memory"} {
		r := newRig(t)
		first := whole(t, 1, "one")
		job := r.prepare(first)
		if got, err := r.e.Execute(t.Context(), job); err != nil || got.Outcome != succeeded {
			t.Fatal(got, err)
		}
		if read == "FirewallDiff" { // it is asked about a difference only
			if err := r.host.RemoveFirewall(t.Context(), effect.Cause{}); err != nil {
				t.Fatal(err)
			}
		}
		next := r.prepareOver(order(t, 2, "192.0.2.8/24"))
		r.host.fails[read] = errBroken
		if read == "memory" {
			r.docs[r.e.key()] = []byte(`{"generation":1,"digest":3}`) // damaged after its beginning
		}
		if d, err := r.e.Drift(t.Context()); err == nil {
			t.Errorf("%s: drift %+v", read, d)
		}
		if v, err := r.e.Resume(t.Context(), next); (read == "Guarded" || read == "memory") && err == nil {
			t.Errorf("%s: resumed with %+v", read, v.Settled)
		}
		if v, err := r.e.Resume(t.Context(), job); read != "Guarded" && err == nil {
			t.Errorf("%s: a committed one resumed with %+v", read, v.Settled)
		}
		for _, spec := range []*fleetv1.CommandSpec{first, order(t, 2, "192.0.2.8/24")} {
			if in, settled, err := r.e.Prepare(t.Context(), spec); read != "Guarded" && err == nil {
				t.Errorf("%s: prepared %+v, %+v", read, in, settled)
			}
		}
		if err := r.e.Restore(t.Context()); (read == "Firewall" || read == "memory") && err == nil {
			t.Errorf("%s: restored", read)
		}
	}
}

// prepareOver is prepare of an order that overwrites foreign changes.
func (r *rig) prepareOver(spec *fleetv1.CommandSpec) executor.Job {
	r.t.Helper()
	return r.prepare(orderOf(r.t, spec.GetReconfig().GetGeneration(), &baremetalv1.NetReconfig{
		AcceptDrift: true, Interfaces: []*baremetalv1.NetworkInterface{{Name: "eth0", Addresses: []string{"192.0.2.8/24"}}},
	}))
}

// TestHowAChangeEnds when a call of the host fails on the way.
func TestHowAChangeEnds(t *testing.T) {
	t.Parallel()
	refusal := &effect.Refusal{Kind: effect.ErrUnsupported, Reason: effect.ReasonNoPrivilege}
	card := order(t, 1, "192.0.2.7/24")
	for name, c := range map[string]struct {
		spec    *fleetv1.CommandSpec
		script  string
		call    string
		err     error
		proof   error
		outcome fleetv1.CommandResult_Outcome
		reason  baremetalv1.Reason
		log     string
	}{
		"no guard": {card, "", "Guard", errBroken, nil, failed, baremetalv1.Reason_EXECUTION_FAILED, "guard"},
		"refused with nothing changed": {card, "", "ApplyNetwork", refusal, nil, failed,
			baremetalv1.Reason_CAPABILITY_MISSING,
			"guard apply rollback"},
		"refused after another change": {whole(t, 1, "one"), "", "ApplyNetwork", refusal, nil, failed, rolledBack,
			"guard apply rollback"},
		"name not read":      {whole(t, 1, "one"), "", "Hostname", errBroken, nil, failed, rolledBack, "guard rollback"},
		"name not set":       {whole(t, 1, "one"), "", "SetHostname", errBroken, nil, failed, rolledBack, "guard rollback"},
		"policy not applied": {whole(t, 1, "one"), "", "ApplyFirewall", errBroken, nil, failed, rolledBack, "guard rollback"},
		"not wired": {card, "", "ApplyNetwork", &effect.Refusal{Kind: effect.ErrNotWired}, nil, failed,
			baremetalv1.Reason_NETWORK_RECONFIG_NOT_WIRED, "guard apply rollback"},
		"failed":         {card, "", "ApplyNetwork", errBroken, nil, failed, rolledBack, "guard apply rollback"},
		"not read back":  {card, "", "Network", errBroken, nil, failed, rolledBack, "guard apply rollback"},
		"not as ordered": {card, "network:lie@1", "", nil, nil, failed, rolledBack, "guard apply rollback"},
		"no way known, and no proof": {card, "", "NetworkSource", errBroken, errBroken, failed, rolledBack,
			"guard apply rollback"},
		"no way known, and a proof": {card, "", "NetworkSource", errBroken, nil, succeeded, noReason,
			"guard apply commit remember"},
		"not rolled back": {card, "", "RollBackGuard", errBroken, errBroken, unknown, baremetalv1.Reason_OUTCOME_UNKNOWN,
			"guard apply"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newScriptedRig(t, c.script)
			r.prove = func(context.Context) error { return c.proof }
			job := r.prepare(c.spec)
			r.host.fails[c.call] = c.err
			got, err := r.e.Execute(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			r.wantResult(got, c.outcome, c.reason)
			r.wantLog(strings.Fields(c.log)...)
			if (c.outcome == failed && c.call != "ApplyNetwork" || c.err == errBroken && c.outcome == failed) && !got.Retryable {
				t.Errorf("%s cannot be tried again", got.Message)
			}
		})
	}
}

// TestAChangeThatMayStillCome is not called rolled back: the outcome is unknown.
func TestAChangeThatMayStillCome(t *testing.T) {
	t.Parallel()
	r := newScriptedRig(t, "network:never@1")
	r.host.slow = true
	r.wantResult(r.execute(order(t, 1, "192.0.2.7/24")), unknown, baremetalv1.Reason_EVIDENCE_MISSING)
}

// TestWhoEndsTheWaitForAProof: a cancel ends it at once, and a stop that cannot go back leaves it to the next life.
func TestWhoEndsTheWaitForAProof(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{executor.ErrCanceled, executor.ErrShutdown} {
		r := newRig(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		r.prove = func(context.Context) error {
			cancel(cause)
			return errBroken
		}
		spec := order(t, 1, "192.0.2.7/24")
		spec.GetReconfig().ConfirmTimeoutMs = 60_000
		job := r.prepare(spec)
		if errors.Is(cause, executor.ErrShutdown) {
			r.host.fails["RollBackGuard"] = errBroken
		}
		began := time.Now()
		got, err := r.e.Execute(ctx, job)
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("%v: it took %s", cause, took)
		}
		if errors.Is(cause, executor.ErrShutdown) {
			if !errors.Is(err, executor.ErrInterrupted) {
				t.Errorf("%v: %+v, %v", cause, got, err)
			}
			continue
		}
		r.wantResult(got, fleetv1.CommandResult_CANCELED, baremetalv1.Reason_CANCELED_BY_REQUEST)
	}
}

// TestACommitThatIsNotRemembered is no success yet: the next life finishes it.
func TestACommitThatIsNotRemembered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	job := r.prepare(order(t, 1, "192.0.2.7/24"))
	r.host.fails["PutJSON"] = errBroken
	if got, err := r.e.Execute(t.Context(), job); err == nil {
		t.Errorf("ended as %+v", got)
	}
	if v, err := r.e.Resume(t.Context(), job); err == nil {
		t.Errorf("resumed with %+v", v.Settled)
	}
	delete(r.host.fails, "PutJSON")
	r.wantResult(r.resume(job), succeeded, noReason)
	if r.address() != "192.0.2.7/24" {
		t.Errorf("address %q", r.address())
	}
}

// TestAChangeThatAnOperatorKeepsHasAnOpenEnd: it was neither proven nor rolled back.
func TestAChangeThatAnOperatorKeepsHasAnOpenEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.prove = func(context.Context) error { return errBroken }
	r.host.fails["RollBackGuard"] = rollback.ErrGuardAbandoned
	got := r.execute(order(t, 1, "192.0.2.7/24"))
	if got.Outcome != unknown || !strings.Contains(got.Message, "an operator on the host has kept it") {
		t.Errorf("%+v", got)
	}
}

package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/agenttest"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

func reconfigSpec(t *testing.T, generation int64, name string) *fleetv1.CommandSpec {
	t.Helper()
	config, err := proto.Marshal(&baremetalv1.NetReconfig{
		Hostname: name, Firewall: &baremetalv1.FirewallPolicy{
			DefaultInput: "drop",
			Allow:        []*baremetalv1.FirewallRule{{Protocol: "tcp", PortFrom: 22, RatePerSecond: 5}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &fleetv1.CommandSpec{TimeoutMs: 20000, Action: &fleetv1.CommandSpec_Reconfig{
		Reconfig: &fleetv1.ReconfigAction{Config: config, ConfirmTimeoutMs: 2000, Generation: generation},
	}}
}

// kinds of commands, with the one kind of effect that each may have once.
var kinds = map[string]struct {
	spec   func(*testing.T) *fleetv1.CommandSpec
	effect sim.Kind
}{
	"reboot":   {func(*testing.T) *fleetv1.CommandSpec { return rebootSpec() }, sim.KindReboot},
	"netboot":  {func(*testing.T) *fleetv1.CommandSpec { return netbootSpec() }, sim.KindBootNext},
	"repave":   {func(*testing.T) *fleetv1.CommandSpec { return repaveSpec() }, sim.KindRepave},
	"reconfig": {func(t *testing.T) *fleetv1.CommandSpec { return reconfigSpec(t, 1, "crashed") }, sim.KindFirewall},
}

// agentFailpoints are all that a command can pass.
func agentFailpoints() []string {
	var out []string
	for _, name := range failpoint.Names() {
		if strings.HasPrefix(name, "agent.") && !strings.Contains(name, "enroll") && !strings.Contains(name, "rotate") {
			out = append(out, name)
		}
	}
	return out
}

// TestACrashAnywhereLeavesAtMostOneEffect crashes at every failpoint of every kind of command, starts again, and
// counts what happened to the world.
func TestACrashAnywhereLeavesAtMostOneEffect(t *testing.T) {
	t.Parallel()
	for kind, k := range kinds {
		for _, name := range agentFailpoints() {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, agenttest.Hooks{}, "")
				r.fp.Set(name, failpoint.Error().At(1))
				r.start()
				id := r.c.Order(k.spec(t))
				crashed := r.endOrAnswer(id)
				if crashed {
					r.start()
				}
				got := r.c.WaitResult(id)
				r.judge(t, name, got, r.effects(id, k.effect))
			})
		}
	}
}

// endOrAnswer waits until the agent has crashed (true), or answered without passing the failpoint.
func (r *rig) endOrAnswer(id string) bool {
	r.t.Helper()
	var ended error
	var crashed bool
	r.c.Wait("a crash or an answer", func() bool {
		select {
		case ended = <-r.ended:
			crashed = true
		default:
		}
		return crashed || len(r.c.Results(id)) > 0
	})
	if crashed && !errors.Is(ended, failpoint.ErrInjected) {
		r.t.Fatalf("the agent ended with %v", ended)
	}
	return crashed
}

func (r *rig) judge(t *testing.T, name string, got *fleetv1.CommandResult, effects int) {
	t.Helper()
	if effects > 1 {
		t.Fatalf("%d effects after a crash at %s", effects, name)
	}
	switch got.GetOutcome() {
	case fleetv1.CommandResult_SUCCEEDED:
		if effects != 1 {
			t.Fatalf("SUCCEEDED with %d effects", effects)
		}
	case fleetv1.CommandResult_REFUSED, fleetv1.CommandResult_CANCELED:
		t.Fatalf("got %v: %s", got.GetOutcome(), got.GetMessage())
	}
}

func TestWhatACrashMeansForEachKind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, at string
		want     fleetv1.CommandResult_Outcome
		reason   string
		effects  int
	}{
		{"reboot", "agent.after-received", fleetv1.CommandResult_SUCCEEDED, "", 1},
		{"reboot", "agent.after-grant", fleetv1.CommandResult_SUCCEEDED, "", 1},
		// The record cannot tell whether the call was made.
		{"reboot", "agent.after-intent", fleetv1.CommandResult_UNKNOWN, "OUTCOME_UNKNOWN", 0},
		{"reboot", "agent.after-effect", fleetv1.CommandResult_SUCCEEDED, "", 1},
		// The firmware shows that nothing was set, so the command goes on.
		{"netboot", "agent.after-intent", fleetv1.CommandResult_SUCCEEDED, "", 1},
		{"netboot", "agent.after-effect", fleetv1.CommandResult_SUCCEEDED, "", 1},
		{"repave", "agent.after-intent", fleetv1.CommandResult_FAILED, "EXECUTION_FAILED", 0},
		{"repave", "agent.after-effect", fleetv1.CommandResult_SUCCEEDED, "", 1},
		{"reconfig", "agent.after-effect", fleetv1.CommandResult_FAILED, "CONFIG_ROLLED_BACK", 1},
		{"reconfig", "agent.reconfig-before-commit", fleetv1.CommandResult_FAILED, "CONFIG_ROLLED_BACK", 1},
		{"reconfig", "agent.reconfig-after-commit", fleetv1.CommandResult_SUCCEEDED, "", 1},
		{"repave", "agent.before-result-stored", fleetv1.CommandResult_SUCCEEDED, "", 1},
		{"repave", "agent.after-result-stored", fleetv1.CommandResult_SUCCEEDED, "", 1},
		{"netboot", "agent.before-result-sent", fleetv1.CommandResult_SUCCEEDED, "", 1},
	} {
		t.Run(c.kind+"/"+c.at, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, agenttest.Hooks{}, "")
			r.fp.Set(c.at, failpoint.Error().At(1))
			r.start()
			id := r.c.Order(kinds[c.kind].spec(t))
			if r.endOrAnswer(id) {
				r.start()
			}
			wantOutcome(t, r.c.WaitResult(id), c.want, c.reason)
			if n := r.effects(id, kinds[c.kind].effect); n != c.effects {
				t.Fatalf("%d effects, want %d", n, c.effects)
			}
		})
	}
}

func TestTheMachineRebootsInTheMiddleOfAnything(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"agent.after-received", "agent.after-grant", "agent.after-intent",
		"agent.before-result-stored", "agent.after-result-stored"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, agenttest.Hooks{}, "")
			outside := r.world.Machine(r.c.MachineID)
			done := make(chan struct{})
			r.fp.Set(name, failpoint.Call(rebootFromOutside(outside, done)).At(1))
			r.start()
			id := r.c.Order(netbootSpec())
			<-done
			got := r.c.WaitResult(id)
			r.judge(t, name, got, r.effects(id, sim.KindBootNext))
			if got.GetOutcome() == fleetv1.CommandResult_FAILED {
				t.Fatalf("got %v %s", got.GetOutcome(), got.GetMessage())
			}
		})
	}
}

func TestReconfigProvesItselfOrRollsBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{}, "")
	r.start()
	first := r.c.WaitResult(r.c.Order(reconfigSpec(t, 1, "one")))
	wantOutcome(t, first, fleetv1.CommandResult_SUCCEEDED, "")
	if first.GetEvidence()["hostname"] != "one" || first.GetEvidence()["config_digest"] == "" {
		t.Fatalf("evidence %v", first.GetEvidence())
	}
	again := r.c.Order(reconfigSpec(t, 1, "one"))
	if got := r.c.WaitResult(again); got.GetEvidence()["no_op"] != "true" || r.effects(again) != 0 {
		t.Fatalf("the same generation again: %v, %d effects", got, r.effects(again))
	}
	wantOutcome(t, r.c.WaitResult(r.c.Order(reconfigSpec(t, 1, "other"))), fleetv1.CommandResult_REFUSED, "INVALID_FIELD")

	// With the second generation new connections to the controller stop working, and old ones go on.
	r.blockNew.Store(true)
	failed := r.c.Order(reconfigSpec(t, 2, "two"))
	wantOutcome(t, r.c.WaitResult(failed), fleetv1.CommandResult_FAILED, "CONFIG_ROLLED_BACK")
	st, err := r.world.State(r.c.MachineID)
	if err != nil {
		t.Fatal(err)
	}
	if st.Hostname != "one" || st.Firewall.Generation != 1 {
		t.Fatalf("host name %s, firewall generation %d after the rollback", st.Hostname, st.Firewall.Generation)
	}
	r.blockNew.Store(false)

	// A reboot takes the firewall with it; the committed one comes back.
	wantOutcome(t, r.c.WaitResult(r.c.Order(rebootSpec())), fleetv1.CommandResult_SUCCEEDED, "")
	if st, err = r.world.State(r.c.MachineID); err != nil || st.Firewall.Generation != 1 {
		t.Fatalf("firewall generation %d after a reboot (%v)", st.Firewall.Generation, err)
	}
}

func TestAStopDuringConfirmationRollsBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{}, "")
	r.start()
	r.c.WaitSessions(1)
	r.blockNew.Store(true)
	spec := reconfigSpec(t, 1, "halfway")
	spec.GetReconfig().ConfirmTimeoutMs = int32(time.Minute.Milliseconds())
	id := r.c.Order(spec)
	r.c.Wait("the change", func() bool { return r.effects(id, sim.KindFirewall) == 1 })
	r.stop()
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	st, err := r.world.State(r.c.MachineID)
	if err != nil || st.Firewall.Present || st.Hostname == "halfway" {
		t.Fatalf("host name %s, firewall present %v (%v)", st.Hostname, st.Firewall.Present, err)
	}
	r.blockNew.Store(false)
	r.start()
	wantOutcome(t, r.c.WaitResult(id), fleetv1.CommandResult_FAILED, "CONFIG_ROLLED_BACK")
}

// TestACopyOfTheMemoryFromBeforeTheStart restores a copy in the same boot, when the command has had its effect and its
// result is unsent. The controller grants the second request too: the copy truthfully reports that it asked before.
func TestACopyOfTheMemoryFromBeforeTheStart(t *testing.T) {
	t.Parallel()
	for kind, k := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, agenttest.Hooks{}, "")
			r.worldWith(sim.WorldConfig{Delay: time.Second}) // the copy is put back before a reboot has come about
			copied := filepath.Join(t.TempDir(), "state")
			var once sync.Once
			r.onFailpoint("agent.after-grant", func() {
				once.Do(func() {
					if err := os.CopyFS(copied, os.DirFS(r.cfg.StateDir)); err != nil {
						t.Error(err)
					}
				})
			})
			r.fp.Set("agent.after-effect", failpoint.Error().At(1))
			r.start()
			id := r.c.Order(k.spec(t))
			if !r.endOrAnswer(id) {
				t.Fatalf("answered without a crash: %v", r.c.Results(id))
			}
			r.cfg.StateDir = copied
			if err := os.Chmod(filepath.Join(copied, "credentials.pem"), 0o600); err != nil {
				t.Fatal(err)
			}
			r.start()
			wantOutcome(t, r.c.WaitResult(id), fleetv1.CommandResult_UNKNOWN, "AGENT_STATE_ROLLED_BACK")
			r.c.Wait("the effect", func() bool { return r.effects(id, k.effect) > 0 })
			if n := r.effects(id, k.effect); n != 1 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

package agent_test

import (
	"crypto/sha256"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/agenttest"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/pki"
)

func netbootSpec() *fleetv1.CommandSpec {
	return &fleetv1.CommandSpec{TimeoutMs: 5000,
		Action: &fleetv1.CommandSpec_Netboot{Netboot: &fleetv1.NetbootAction{Mode: "PXE"}}}
}

func repaveSpec() *fleetv1.CommandSpec {
	return &fleetv1.CommandSpec{
		TimeoutMs: 20000, Action: &fleetv1.CommandSpec_Repave{Repave: &fleetv1.RepaveAction{ImageRef: "debian-12"}},
	}
}

func TestARepeatedCommandIsAnsweredAndNotDoneAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{}, "")
	r.start()
	id := r.c.Order(rebootSpec())
	first := r.c.WaitResult(id)
	n := len(r.c.Results(id))
	r.c.Redeliver(id)
	// A command that is made while a session opens may be sent twice, so that a second result alone is no proof of the
	// repeat.
	r.c.Wait("an ack of a command that is done", func() bool { return slices.Contains(r.c.Acks(id), state.Done) })
	r.c.Wait("the stored result", func() bool { return len(r.c.Results(id)) > n })
	for _, got := range r.c.Results(id) {
		if !proto.Equal(got, first) {
			t.Errorf("a repeat was answered with %v, not %v", got, first)
		}
	}
	if n := r.effects(id); n != 1 {
		t.Errorf("%d effects", n)
	}
}

func TestARepeatWhileItWaitsIsAcknowledgedWithItsState(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{
		Grant: func(*agenttest.Session, *fleetv1.GrantRequest) *fleetv1.ControllerMessage { return nil },
	}, "")
	r.start()
	r.c.WaitSessions(1)
	id := r.c.Order(rebootSpec())
	r.c.Wait("an ask", func() bool { return len(r.c.Asks()) > 0 })
	r.c.Redeliver(id)
	r.c.Wait("a second ack", func() bool { return len(r.c.Acks(id)) >= 2 })
	if a := r.c.Acks(id); a[1] != state.Received || r.effects(id) != 0 {
		t.Fatalf("acks %v, %d effects", a, r.effects(id))
	}
}

func TestAResultIsSentUntilItIsAcknowledged(t *testing.T) {
	t.Parallel()
	var deaf atomic.Bool
	deaf.Store(true)
	r := newRig(t,
		agenttest.Hooks{Result: func(_ *agenttest.Session, res *fleetv1.CommandResult) *fleetv1.ControllerMessage {
			if deaf.Load() {
				return nil
			}
			return agenttest.AckMessage(res.GetCommandId(), true)
		}}, "")
	var settled atomic.Bool
	r.onFailpoint("agent.after-result-ack", func() { settled.Store(true) })
	r.start()
	id := r.c.Order(netbootSpec())
	r.c.Wait("three repeats", func() bool { return len(r.c.Results(id)) >= 3 })
	sessions := r.c.Sessions()
	r.c.Session().Break()
	r.c.WaitSessions(sessions + 1)
	n := len(r.c.Results(id))
	deaf.Store(false)
	r.c.Wait("a repeat in the next session", func() bool { return len(r.c.Results(id)) > n && settled.Load() })
	r.restart() // a settled command is no longer held
	if held := r.c.WaitSessions(sessions + 2).Hello.GetHeld(); len(held) != 0 {
		t.Fatalf("still holds %v", held)
	}
	if r.effects(id) != 1 {
		t.Fatalf("%d effects", r.effects(id))
	}
}

func TestALostGrantIsAskedForAgainUnderAHigherNumber(t *testing.T) {
	t.Parallel()
	var c *agenttest.Controller
	var asks atomic.Int32
	hooks := agenttest.Hooks{Grant: func(_ *agenttest.Session, g *fleetv1.GrantRequest) *fleetv1.ControllerMessage {
		if asks.Add(1) == 1 {
			return nil
		}
		return agenttest.GrantMessage(c.Sign(g, nil))
	}}
	c = agenttest.New(t, hooks)
	r := newRigOn(t, c, "")
	r.start()
	id := c.Order(netbootSpec())
	wantOutcome(t, c.WaitResult(id), fleetv1.CommandResult_SUCCEEDED, "")
	list := c.Asks()
	if len(list) < 2 || list[1].GetSeq() <= list[0].GetSeq() ||
		!slices.Equal(list[1].GetEarlier(), []uint64{list[0].GetSeq()}) ||
		string(list[0].GetNonce()) == string(list[1].GetNonce()) {
		t.Fatalf("asks %v", list)
	}
	if len(list[0].GetNonce()) != 16 {
		t.Fatalf("nonce of %d bytes", len(list[0].GetNonce()))
	}
}

func TestAGrantOlderThanTheWindowStartsNothing(t *testing.T) {
	t.Parallel()
	var offset atomic.Int64
	var c *agenttest.Controller
	var asks atomic.Int32
	hooks := agenttest.Hooks{Grant: func(_ *agenttest.Session, g *fleetv1.GrantRequest) *fleetv1.ControllerMessage {
		if asks.Add(1) == 1 {
			offset.Add(int64(31 * time.Second)) // the answer is on its way for this long
		}
		return agenttest.GrantMessage(c.Sign(g, nil))
	}}
	c = agenttest.New(t, hooks)
	r := newRigOn(t, c, "")
	r.cfg.Boottime = func() time.Duration { return clock.Boottime() + time.Duration(offset.Load()) }
	r.start()
	id := c.Order(netbootSpec())
	wantOutcome(t, c.WaitResult(id), fleetv1.CommandResult_SUCCEEDED, "")
	if n := asks.Load(); n != 2 || r.effects(id) != 1 {
		t.Fatalf("%d asks, %d effects; the late grant was used or the next one not", n, r.effects(id))
	}
}

func TestTheWindowIsLookedAtAgainAfterTheIntentIsDurable(t *testing.T) {
	t.Parallel()
	var offset atomic.Int64
	r := newRig(t, agenttest.Hooks{}, "")
	r.cfg.Boottime = func() time.Duration { return clock.Boottime() + time.Duration(offset.Load()) }
	var once sync.Once
	r.onFailpoint("agent.after-intent", func() {
		once.Do(func() { offset.Add(int64(31 * time.Second)) }) // a disk that took that long
	})
	r.start()
	id := r.c.Order(netbootSpec())
	wantOutcome(t, r.c.WaitResult(id), fleetv1.CommandResult_SUCCEEDED, "")
	if len(r.c.Asks()) != 2 || r.effects(id) != 1 {
		t.Fatalf("%d asks, %d effects", len(r.c.Asks()), r.effects(id))
	}
}

// TestLeaveThatHasGrownOldDestroysNothing: time passes between the start of a repave and its first write. The agent
// asks again, and the second answer holds, though the first answer was yes.
func TestLeaveThatHasGrownOldDestroysNothing(t *testing.T) {
	t.Parallel()
	type hook = func(c *agenttest.Controller, g *fleetv1.GrantRequest) *fleetv1.ControllerMessage
	yes := func(c *agenttest.Controller, g *fleetv1.GrantRequest) *fleetv1.ControllerMessage {
		return agenttest.GrantMessage(c.Sign(g, nil))
	}
	for name, again := range map[string]struct {
		answer  hook
		expires time.Duration
		outcome fleetv1.CommandResult_Outcome
		reason  string
		effects int
	}{
		"yes": {yes, time.Hour, fleetv1.CommandResult_SUCCEEDED, "", 1},
		"no": {func(_ *agenttest.Controller, g *fleetv1.GrantRequest) *fleetv1.ControllerMessage {
			return agenttest.RefusedMessage(g, "BUDGET_REQUIRED", true, 0)
		}, time.Hour, fleetv1.CommandResult_FAILED, "GRANT_REFUSED", 0},
		// The clock of the command goes on as well, so that eight seconds are left.
		"nobody answers": {func(*agenttest.Controller, *fleetv1.GrantRequest) *fleetv1.ControllerMessage { return nil },
			39 * time.Second, fleetv1.CommandResult_FAILED, "COMMAND_EXPIRED", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var offset atomic.Int64
			var c *agenttest.Controller
			var asks atomic.Int32
			c = agenttest.New(t,
				agenttest.Hooks{Grant: func(_ *agenttest.Session, g *fleetv1.GrantRequest) *fleetv1.ControllerMessage {
					if asks.Add(1) == 1 {
						return yes(c, g)
					}
					return again.answer(c, g)
				}})
			r := newRigOn(t, c, "")
			r.cfg.Boottime = func() time.Duration { return clock.Boottime() + time.Duration(offset.Load()) }
			r.onFailpoint("wire.command-again", func() { offset.Add(int64(31 * time.Second)) }) // it is passed after the start
			r.start()
			spec := repaveSpec()
			spec.ExpiresAt = timestamppb.New(time.Now().Add(again.expires))
			id := c.Order(spec)
			wantOutcome(t, c.WaitResult(id), again.outcome, again.reason)
			if n := asks.Load(); n < 2 || r.effects(id) != again.effects {
				t.Fatalf("%d asks, %d effects", n, r.effects(id))
			}
		})
	}
}

func TestWorthlessGrantsStartNothing(t *testing.T) {
	t.Parallel()
	other := make([]byte, 32)
	spoil := map[string]func(c *agenttest.Controller, g *fleetv1.GrantRequest) *fleetv1.Grant{
		"nonce": func(c *agenttest.Controller, g *fleetv1.GrantRequest) *fleetv1.Grant {
			return c.Sign(g, func(cl *pki.GrantClaims) { cl.Nonce = make([]byte, 16) })
		},
		"digest": func(c *agenttest.Controller, g *fleetv1.GrantRequest) *fleetv1.Grant {
			return c.Sign(g, func(cl *pki.GrantClaims) { cl.Digest = other })
		},
		"target": func(c *agenttest.Controller, g *fleetv1.GrantRequest) *fleetv1.Grant {
			return c.Sign(g, func(cl *pki.GrantClaims) { cl.TargetID = ids.New(ids.Machine) })
		},
		"agent": func(c *agenttest.Controller, g *fleetv1.GrantRequest) *fleetv1.Grant {
			return c.Sign(g, func(cl *pki.GrantClaims) { cl.AgentID = ids.New(ids.Agent) })
		},
		"state": func(c *agenttest.Controller, g *fleetv1.GrantRequest) *fleetv1.Grant {
			return c.Sign(g, func(cl *pki.GrantClaims) { cl.StateID = ids.New(ids.State) })
		},
		"number": func(c *agenttest.Controller, g *fleetv1.GrantRequest) *fleetv1.Grant {
			return c.Sign(g, func(cl *pki.GrantClaims) { cl.Seq += 7 })
		},
		"signature": func(c *agenttest.Controller, g *fleetv1.GrantRequest) *fleetv1.Grant {
			signed := c.Sign(g, nil)
			signed.Signature[0] ^= 1
			return signed
		},
		"digest not signed": func(c *agenttest.Controller, g *fleetv1.GrantRequest) *fleetv1.Grant {
			signed := c.Sign(g, nil)
			signed.Digest = other
			return signed
		},
		"key": func(_ *agenttest.Controller, g *fleetv1.GrantRequest) *fleetv1.Grant {
			stranger := agenttest.New(t, agenttest.Hooks{})
			return stranger.Sign(g, func(cl *pki.GrantClaims) { cl.TargetID = "m-x" })
		},
	}
	for name, bad := range spoil {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c *agenttest.Controller
			var asks atomic.Int32
			hooks := agenttest.Hooks{Grant: func(_ *agenttest.Session, g *fleetv1.GrantRequest) *fleetv1.ControllerMessage {
				if asks.Add(1) == 1 {
					return agenttest.GrantMessage(bad(c, g))
				}
				return nil
			}}
			c = agenttest.New(t, hooks)
			r := newRigOn(t, c, "")
			r.start()
			id := c.Order(netbootSpec())
			c.Wait("the next ask", func() bool { return asks.Load() >= 2 })
			if r.effects(id) != 0 || len(c.Results(id)) != 0 {
				t.Fatalf("%d effects, results %v", r.effects(id), c.Results(id))
			}
		})
	}
}

func TestRefusedGrants(t *testing.T) {
	t.Parallel()
	var c *agenttest.Controller
	var asks atomic.Int32
	hooks := agenttest.Hooks{Grant: func(_ *agenttest.Session, g *fleetv1.GrantRequest) *fleetv1.ControllerMessage {
		if asks.Add(1) == 1 {
			return agenttest.RefusedMessage(g, "CONTROLLER_LEASE_LOST", false, 100*time.Millisecond)
		}
		return agenttest.RefusedMessage(g, "OPERATION_FINISHED", true, 0)
	}}
	c = agenttest.New(t, hooks)
	r := newRigOn(t, c, "")
	r.start()
	id := c.Order(netbootSpec())
	wantOutcome(t, c.WaitResult(id), fleetv1.CommandResult_REFUSED, "GRANT_REFUSED")
	if asks.Load() != 2 || r.effects(id) != 0 {
		t.Fatalf("%d asks, %d effects", asks.Load(), r.effects(id))
	}
}

func TestCancelBeforeStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{
		Grant: func(*agenttest.Session, *fleetv1.GrantRequest) *fleetv1.ControllerMessage { return nil },
	}, "")
	r.start()
	r.c.WaitSessions(1)
	first, second := r.c.Order(rebootSpec()), r.c.Order(rebootSpec())
	r.c.Wait("an ask", func() bool { return len(r.c.Asks()) > 0 && len(r.c.Acks(second)) > 0 })
	r.c.Cancel(second) // queued behind the first
	wantOutcome(t, r.c.WaitResult(second), fleetv1.CommandResult_CANCELED, "CANCELED_BY_REQUEST")
	r.c.Cancel(first) // waiting for its grant
	wantOutcome(t, r.c.WaitResult(first), fleetv1.CommandResult_CANCELED, "CANCELED_BY_REQUEST")
	if r.effects(first)+r.effects(second) != 0 {
		t.Fatal("a canceled command had an effect")
	}
}

func TestCancelAfterStartStopsAtASafePoint(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{}, "")
	r.worldWith(sim.WorldConfig{RepaveTime: time.Minute})
	r.start()
	id := r.c.Order(repaveSpec())
	r.c.Wait("the write", func() bool { return r.effects(id) == 1 })
	r.c.Cancel(id)
	got := r.c.WaitResult(id)
	wantOutcome(t, got, fleetv1.CommandResult_CANCELED, "CANCELED_BY_REQUEST")
	if got.GetEvidence()["image_digest"] != "" {
		t.Fatalf("evidence %v", got.GetEvidence())
	}
}

func TestRepaveAndWhatALyingMachineGets(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{}, "repave:late=1h@2,repave:fail-before@3")
	r.start()
	good := r.c.Order(repaveSpec())
	got := r.c.WaitResult(good)
	wantOutcome(t, got, fleetv1.CommandResult_SUCCEEDED, "")
	if got.GetEvidence()["image_digest"] == "" {
		t.Fatalf("evidence %v", got.GetEvidence())
	}
	wantOutcome(t, r.c.WaitResult(r.c.Order(repaveSpec())), fleetv1.CommandResult_UNKNOWN, "EVIDENCE_MISSING")
	wantOutcome(t, r.c.WaitResult(r.c.Order(repaveSpec())), fleetv1.CommandResult_FAILED, "EXECUTION_FAILED")
}

func TestAMachineThatNeverRebootsIsUnknown(t *testing.T) {
	t.Parallel()
	for script, timeout := range map[string]int32{
		"reboot:never": 300, "reboot:lie": 60000, "reboot:fail-before": 60000,
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, agenttest.Hooks{}, script)
			r.start()
			spec := rebootSpec()
			spec.TimeoutMs = timeout
			id := r.c.Order(spec)
			wantOutcome(t, r.c.WaitResult(id), fleetv1.CommandResult_UNKNOWN, "OUTCOME_UNKNOWN")
			if r.effects(id) != 0 {
				t.Fatalf("%d effects", r.effects(id))
			}
		})
	}
}

func TestRefusedBeforeAnythingIsAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{}, "")
	r.start()
	r.c.WaitSessions(1)
	expired := netbootSpec()
	expired.ExpiresAt = timestamppb.New(time.Now().Add(-time.Second))
	wantOutcome(t, r.c.WaitResult(r.c.Order(expired)), fleetv1.CommandResult_REFUSED, "COMMAND_EXPIRED")
	stray := netbootSpec()
	stray.TargetId = ids.New(ids.Machine)
	wantOutcome(t, r.c.WaitResult(r.c.Order(stray)), fleetv1.CommandResult_REFUSED, "INVALID_FIELD")
	bmc := rebootSpec()
	bmc.GetReboot().Mode = "bmc"
	wantOutcome(t, r.c.WaitResult(r.c.Order(bmc)), fleetv1.CommandResult_REFUSED, "CAPABILITY_MISSING")
	body := []byte("not what was digested")
	sum := sha256.Sum256([]byte("x"))
	spoiled := &fleetv1.Command{CommandId: ids.New(ids.Command), Spec: body, Digest: sum[:]}
	r.c.OrderRaw(spoiled)
	wantOutcome(t, r.c.WaitResult(spoiled.GetCommandId()), fleetv1.CommandResult_REFUSED, "INVALID_FIELD")
}

func TestALockedAgentRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{}, "")
	r.start()
	r.c.WaitSessions(1)
	other, err := state.Open(t.Context(), state.Config{Dir: r.cfg.StateDir}) // as another process would
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Lock(t.Context(), "disk swap"); err != nil {
		t.Fatal(err)
	}
	id := r.c.Order(rebootSpec())
	got := r.c.WaitResult(id)
	wantOutcome(t, got, fleetv1.CommandResult_REFUSED, "AGENT_LOCKED")
	if err := other.Lock(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, r.c.WaitResult(r.c.Order(rebootSpec())), fleetv1.CommandResult_SUCCEEDED, "")
	if r.effects(id) != 0 {
		t.Fatal("a refused command had an effect")
	}
}

func TestARolledBackMemoryGivesItselfUp(t *testing.T) {
	t.Parallel()
	var hold atomic.Bool
	hold.Store(true)
	var c *agenttest.Controller
	hooks := agenttest.Hooks{Grant: func(_ *agenttest.Session, g *fleetv1.GrantRequest) *fleetv1.ControllerMessage {
		if hold.Load() {
			return nil
		}
		return agenttest.GrantMessage(c.Sign(g, nil))
	}}
	c = agenttest.New(t, hooks)
	r := newRigOn(t, c, "")
	r.start()
	id := c.Order(netbootSpec())
	c.Wait("an ask", func() bool { return len(c.Asks()) > 0 })
	before := c.Session().Hello.GetStateId()
	r.stop()
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(r.cfg.StateDir)); err != nil {
		t.Fatal(err)
	}
	hold.Store(false)
	r.start()
	wantOutcome(t, c.WaitResult(id), fleetv1.CommandResult_SUCCEEDED, "")
	original := c.Session()
	r.stop()
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	<-original.Ended() // the original repeats its result until it has read the answer
	if err := os.Chmod(copied+"/credentials.pem", 0o600); err != nil {
		t.Fatal(err)
	}
	r.cfg.StateDir = copied
	n := len(c.Results(id))
	r.start()
	c.Wait("the copy's result", func() bool { return len(c.Results(id)) > n })
	got := c.Results(id)[n]
	wantOutcome(t, got, fleetv1.CommandResult_UNKNOWN, "AGENT_STATE_ROLLED_BACK")
	after := c.Session().Hello.GetStateId()
	if after == before || got.GetStateId() != before || r.effects(id) != 1 {
		t.Fatalf("state ids %s, %s, result under %s, %d effects", before, after, got.GetStateId(), r.effects(id))
	}
	wantOutcome(t, c.WaitResult(c.Order(rebootSpec())), fleetv1.CommandResult_SUCCEEDED, "")
}

package agent_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	enrollv1 "github.com/ingot-metal/ingot/api/enroll/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/agenttest"
	"github.com/ingot-metal/ingot/agent/enroll"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/provider/fake"
	"github.com/ingot-metal/ingot/agent/session"
	"github.com/ingot-metal/ingot/agent/site"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/pki"
)

func TestALostEnrolmentAnswerLocksNobodyOut(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	r := newRig(t, agenttest.Hooks{Enroll: func(*enrollv1.EnrollRequest) (lose, err error) {
		switch calls.Add(1) {
		case 1:
			return nil, status.Error(codes.Unavailable, "not now")
		case 2:
			return status.Error(codes.Unavailable, "lost on the way"), nil
		}
		return nil, nil
	}}, "")
	r.start()
	hello := r.c.WaitSessions(1).Hello
	if calls.Load() != 3 || r.c.Certificates() != 1 || !hello.GetSimulated() || hello.GetStateId() == "" {
		t.Fatalf("%d calls, %d certificates, hello %v", calls.Load(), r.c.Certificates(), hello)
	}
	r.c.Wait("a heartbeat", func() bool { return r.c.Heartbeats() > 1 })
}

func TestEnrolmentSurvivesACrash(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"agent.after-enroll-key", "agent.after-enroll-answer"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, agenttest.Hooks{}, "")
			r.fp.Set(name, failpoint.Error().At(1))
			r.start()
			if err := r.end(); !errors.Is(err, failpoint.ErrInjected) {
				t.Fatalf("ended with %v", err)
			}
			r.start()
			r.c.WaitSessions(1)
			if n := r.c.Certificates(); n != 1 {
				t.Fatalf("%d certificates for one token", n)
			}
		})
	}
}

func TestARefusedEnrolmentIsFinal(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{Enroll: func(*enrollv1.EnrollRequest) (lose, err error) {
		return nil, status.Error(codes.FailedPrecondition, "another region")
	}}, "")
	r.start()
	if err := r.end(); !errors.Is(err, enroll.ErrRefused) {
		t.Fatalf("ended with %v", err)
	}
	stranger := agenttest.New(t, agenttest.Hooks{})
	mixed, err := pki.ParseBundle(r.c.Bundle())
	if err != nil {
		t.Fatal(err)
	}
	mixed.Addresses = []string{stranger.EnrolAddr} // a server with another CA
	if r.cfg.Bundle, err = mixed.Encode(); err != nil {
		t.Fatal(err)
	}
	r.start()
	if err := r.end(); !errors.Is(err, enroll.ErrRefused) || !errors.Is(err, pki.ErrPin) {
		t.Fatalf("ended with %v", err)
	}
	r.cfg.Bundle = ""
	r.start()
	if err := r.end(); !errors.Is(err, agent.ErrNoToken) {
		t.Fatalf("ended with %v", err)
	}
}

// due makes the first certificate due for rotation, and later ones not.
func due(n int) (notBefore, notAfter time.Time) {
	now := time.Now()
	if n == 1 {
		return now.Add(-2*time.Hour - 6*24*time.Hour), now.Add(24 * time.Hour)
	}
	return now.Add(-2 * time.Hour), now.Add(7 * 24 * time.Hour)
}

func TestACertificateIsRotatedWhenItIsDue(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{Certificate: due}, "")
	r.start()
	second := r.c.WaitSessions(2)
	if r.c.Certificates() != 2 || time.Until(second.Leaf.NotAfter) < 48*time.Hour {
		t.Fatalf("%d certificates, the session's ends %s", r.c.Certificates(), second.Leaf.NotAfter)
	}
	r.restart()
	third := r.c.WaitSessions(3)
	if !third.Leaf.Equal(second.Leaf) {
		t.Fatal("the rotated certificate was not kept")
	}
	r.c.Wait("the rotation to be over", func() bool {
		_, found, err := state.Dir(r.cfg.StateDir).Next()
		return !found && err == nil
	})
}

func TestRotationSurvivesACrash(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"agent.rotate-after-key", "agent.rotate-after-next-durable"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, agenttest.Hooks{Certificate: due}, "")
			r.fp.Set(name, failpoint.Error().At(1))
			r.start()
			if err := r.end(); !errors.Is(err, failpoint.ErrInjected) {
				t.Fatalf("ended with %v", err)
			}
			r.start()
			r.c.Wait("a session on the next certificate", func() bool {
				return time.Until(r.c.Session().Leaf.NotAfter) > 48*time.Hour
			})
		})
	}
}

func TestALostRotationAnswerLeavesOneThatWorks(t *testing.T) {
	t.Parallel()
	r := newRig(t,
		agenttest.Hooks{Certificate: due, Rotate: func() error { return status.Error(codes.Unavailable, "lost") }}, "")
	r.start()
	r.c.Wait("a rotation", func() bool { return r.c.Certificates() == 2 })
	r.restart()
	r.c.WaitSessions(2)
	wantOutcome(t, r.c.WaitResult(r.c.Order(netbootSpec())), fleetv1.CommandResult_SUCCEEDED, "")
}

func TestAMachineThatWasOffPastItsExpiryComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{Certificate: func(n int) (time.Time, time.Time) {
		if n == 1 {
			return time.Now().Add(-72 * time.Hour), time.Now().Add(-time.Hour)
		}
		return due(n)
	}}, "")
	r.start()
	r.c.WaitSessions(1)
	if r.c.Reenrolments() != 1 {
		t.Fatalf("%d re-enrolments", r.c.Reenrolments())
	}
	r.restart()
	r.c.WaitSessions(2)
	if r.c.Reenrolments() != 1 {
		t.Fatal("the new certificate was not kept")
	}
}

func TestAClockThatIsBehindBreaksNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{}, "")
	r.cfg.Clock = slowClock{Clock: clock.Real(), behind: 20 * 365 * 24 * time.Hour}
	r.start()
	r.c.WaitSessions(1)
	r.restart()
	r.c.WaitSessions(2)
	wantOutcome(t, r.c.WaitResult(r.c.Order(netbootSpec())), fleetv1.CommandResult_SUCCEEDED, "")
}

type slowClock struct {
	clock.Clock
	behind time.Duration
}

func (s slowClock) Now() time.Time { return s.Clock.Now().Add(-s.behind) }

func TestASupersededAgentConfirmsAndStops(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{}, "")
	r.start()
	s := r.c.WaitSessions(1)
	s.Send(&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Superseded{
		Superseded: &fleetv1.Superseded{ByEpoch: s.Welcome.GetEpoch()}, // itself: nonsense, ignored
	}})
	wantOutcome(t, r.c.WaitResult(r.c.Order(netbootSpec())), fleetv1.CommandResult_SUCCEEDED, "")
	s.Send(&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Superseded{
		Superseded: &fleetv1.Superseded{ByEpoch: s.Welcome.GetEpoch() + 1},
	}})
	r.c.Wait("the confirmation", func() bool { return s.Confirmed() != nil })
	if got := s.Confirmed(); got.GetBootId() != s.Hello.GetBootId() || got.GetHardwareFingerprint() == "" {
		t.Fatalf("confirmed with %v", got)
	}
	if err := r.end(); !errors.Is(err, session.ErrSuperseded) {
		t.Fatalf("ended with %v", err)
	}
	if r.c.Sessions() != 1 {
		t.Fatalf("%d sessions", r.c.Sessions())
	}
}

func TestAReplacedEventStreamIsNoReasonToComeBack(t *testing.T) {
	t.Parallel()
	replaced := failure.Aborted("SESSION_SUPERSEDED", "a newer session of this agent has taken over")
	for _, told := range []bool{true, false} {
		t.Run(fmt.Sprintf("told=%v", told), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, agenttest.Hooks{}, "")
			r.start()
			s := r.c.WaitSessions(1)
			r.c.Wait("the event stream", func() bool { return r.c.Heartbeats() > 0 })
			s.EndEvents(failure.ToStatus(replaced).Err())
			if told {
				s.Send(&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Superseded{
					Superseded: &fleetv1.Superseded{ByEpoch: s.Welcome.GetEpoch() + 1},
				}})
				r.c.Wait("the confirmation", func() bool { return s.Confirmed() != nil })
			}
			if err := r.end(); !errors.Is(err, session.ErrSuperseded) || r.c.Sessions() != 1 {
				t.Fatalf("ended with %v after %d sessions", err, r.c.Sessions())
			}
		})
	}
}

func TestADrainedAgentReconnects(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{}, "")
	r.start()
	r.c.WaitSessions(1).Send(
		&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Drain{Drain: &fleetv1.Drain{SpreadMs: 50}}})
	r.c.WaitSessions(2)
}

func TestEventsAreReplayedUntilTheyAreAcknowledged(t *testing.T) {
	t.Parallel()
	var deaf atomic.Bool
	deaf.Store(true)
	r := newRig(t, agenttest.Hooks{EventAck: func(e *fleetv1.Event) uint64 {
		if deaf.Load() {
			return 0
		}
		return e.GetSeq()
	}}, "")
	r.start()
	inventory := func() (seqs []uint64) {
		for _, e := range r.c.Events() {
			if e.GetInventory() != nil {
				seqs = append(seqs, e.GetSeq())
			}
		}
		return seqs
	}
	r.c.Wait("the inventory", func() bool { return len(inventory()) == 1 })
	r.restart()
	r.c.Wait("the inventory again", func() bool { return len(inventory()) == 2 })
	if s := inventory(); s[0] != s[1] {
		t.Fatalf("the same inventory came as %v", s)
	}
	deaf.Store(false)
	sessions := r.c.Sessions()
	r.restart()
	r.c.WaitSessions(sessions + 1)
	r.c.Wait("the last of it", func() bool { return len(inventory()) == 3 })
	n := r.c.Heartbeats()
	r.c.Wait("a heartbeat of an empty buffer", func() bool { return r.c.Heartbeats() > n+1 })
	r.restart()
	r.c.WaitSessions(sessions + 2)
	n = r.c.Heartbeats()
	r.c.Wait("more heartbeats", func() bool { return r.c.Heartbeats() > n+1 })
	if got := inventory(); len(got) != 3 {
		t.Fatalf("an acknowledged event came again: %v", got)
	}
}

// siteRig is a site agent with the fake provider.
func siteRig(t *testing.T, hooks agenttest.Hooks, cfg sim.WorldConfig) *rig {
	t.Helper()
	c := agenttest.New(t, hooks)
	c.Role = agent.RoleSite
	r := newRigOn(t, c, "")
	cfg.Dir = r.dir
	p, err := fake.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	own, err := sim.OpenWorld(sim.WorldConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	r.world, r.cfg.Role, r.cfg.Providers = p.World(), agent.RoleSite, site.Providers{p.Name(): p}
	r.cfg.Host = agent.SimulatedHost(own, "site-machine", time.Second)
	return r
}

func TestASiteAgentWorksForOtherMachines(t *testing.T) {
	t.Parallel()
	r := siteRig(t, agenttest.Hooks{}, sim.WorldConfig{Delay: 20 * time.Millisecond})
	r.start()
	hello := r.c.WaitSessions(1).Hello
	if fmt.Sprint(hello.GetCapabilities()) != "[inspect netboot power provider:fake reboot reconfig repave]" ||
		!hello.GetSimulated() {
		t.Fatalf("hello %v", hello)
	}
	target := ids.New(ids.Machine)
	for _, kind := range []string{"netboot", "repave", "reboot", "reconfig"} {
		spec := kinds[kind].spec(t)
		spec.TargetId, spec.Provider = target, "fake"
		id := r.c.Order(spec)
		got := r.c.WaitResult(id)
		wantOutcome(t, got, fleetv1.CommandResult_SUCCEEDED, "")
		if r.effects(id, kinds[kind].effect) != 1 || !got.GetSimulated() {
			t.Fatalf("%s: %d effects", kind, r.effects(id))
		}
	}
	unknown := rebootSpec()
	unknown.TargetId, unknown.Provider = target, "maas"
	wantOutcome(t, r.c.WaitResult(r.c.Order(unknown)), fleetv1.CommandResult_REFUSED, "CAPABILITY_MISSING")
}

func TestSerialPerTargetParallelAcrossTargets(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string]int{}
	var c *agenttest.Controller
	hooks := agenttest.Hooks{Grant: func(_ *agenttest.Session, g *fleetv1.GrantRequest) *fleetv1.ControllerMessage {
		mu.Lock()
		asked[g.GetCommandId()]++
		mu.Unlock()
		return nil
	}}
	r := siteRig(t, hooks, sim.WorldConfig{})
	c = r.c
	r.start()
	c.WaitSessions(1)
	order := func(target string) string {
		spec := rebootSpec()
		spec.TargetId, spec.Provider = target, "fake"
		return c.Order(spec)
	}
	a1, a2, b1 := order("m-a"), order("m-a"), order("m-b")
	c.Wait("both targets", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return asked[a1] > 0 && asked[b1] > 0
	})
	mu.Lock()
	if asked[a2] != 0 {
		t.Error("two commands for one target at once")
	}
	mu.Unlock()
	c.Cancel(a1)
	c.Wait("the next in line", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return asked[a2] > 0
	})
}

func TestASiteAgentsCrashMidwayThroughARepave(t *testing.T) {
	t.Parallel()
	r := siteRig(t, agenttest.Hooks{}, sim.WorldConfig{RepaveTime: time.Minute})
	r.start()
	spec := repaveSpec()
	spec.TargetId, spec.Provider, spec.TimeoutMs = ids.New(ids.Machine), "fake", int32(time.Hour.Milliseconds())
	id := r.c.Order(spec)
	r.c.Wait("the write", func() bool { return r.effects(id, sim.KindRepave) == 1 })
	r.restart()
	got := r.c.WaitResult(id)
	wantOutcome(t, got, fleetv1.CommandResult_FAILED, "EXECUTION_FAILED")
	if !got.GetRetryable() || r.effects(id, sim.KindRepave) != 1 {
		t.Fatalf("retryable %v, %d effects", got.GetRetryable(), r.effects(id))
	}
}

func TestTwoProcessesOnOneDirectory(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{}, "")
	r.start()
	r.c.WaitSessions(1)
	if err := agent.New(r.cfg).Run(t.Context()); !errors.Is(err, state.ErrInUse) {
		t.Fatalf("the second ended with %v", err)
	}
}

func TestInMemoryStateSurvivesASimulatedReboot(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{}, "")
	r.cfg.InMemory, r.cfg.NoInventory, r.cfg.Quiet = true, true, true
	r.start()
	id := r.c.Order(rebootSpec())
	wantOutcome(t, r.c.WaitResult(id), fleetv1.CommandResult_SUCCEEDED, "")
	if r.effects(id) != 1 {
		t.Fatalf("%d effects", r.effects(id))
	}
}

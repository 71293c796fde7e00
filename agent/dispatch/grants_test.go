package dispatch_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/dispatch"
	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func (l *link) handle(m *fleetv1.ControllerMessage) { _ = l.d.Handle(l.ctx, m) }

func (l *link) give(g *fleetv1.Grant) {
	l.handle(&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Grant{Grant: g}})
}

func (l *link) refuse(g *fleetv1.GrantRequest, reason string, final bool) {
	l.handle(
		&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_GrantRefused{GrantRefused: &fleetv1.GrantRefused{
			CommandId: g.GetCommandId(), Nonce: g.GetNonce(), Reason: reason, Message: "no", Final: final, RetryAfterMs: 1,
		}}})
}

func (l *link) cancel(id string) {
	l.handle(
		&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Cancel{Cancel: &fleetv1.CancelCommand{CommandId: id}}})
}

// TestAWorthlessGrantStartsNothing: a grant for something else, or with another signer, is ignored.
func TestAWorthlessGrantStartsNothing(t *testing.T) {
	t.Parallel()
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(l *link, g *fleetv1.Grant){
		"another target": func(_ *link, g *fleetv1.Grant) { g.TargetId = "n" },
		"another digest": func(_ *link, g *fleetv1.Grant) { g.Digest = make([]byte, 32) },
		"another nonce":  func(_ *link, g *fleetv1.Grant) { g.Nonce = make([]byte, 16) },
		"another time":   func(_ *link, g *fleetv1.Grant) { g.IssuedAtUnixMs++ },
		"no signature":   func(_ *link, g *fleetv1.Grant) { g.Signature = nil },
		"a stranger's signature": func(_ *link, g *fleetv1.Grant) {
			g.Signature = ed25519.Sign(stranger, g.GetDigest())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exec := &scriptedExecutor{}
			r := start(t, memory(t), exec, nil)
			var asks atomic.Int32
			r.l.answer = func(g *fleetv1.GrantRequest) {
				grant := r.l.granting(g)
				if asks.Add(1) == 1 {
					spoil(r.l, grant)
				} else if exec.ran.Load() != 0 {
					t.Error("started by a worthless grant")
				}
				r.l.give(grant)
			}
			id := r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})
			want(t, r.l.result(t, id), fleetv1.CommandResult_SUCCEEDED, "")
			if exec.ran.Load() != 1 || asks.Load() != 2 {
				t.Errorf("executed %d times after %d asks", exec.ran.Load(), asks.Load())
			}
		})
	}
}

// TestOnlyTheKeysOfTheNewestWelcomeCount: a key that a controller has given up signs no grants any more.
func TestOnlyTheKeysOfTheNewestWelcomeCount(t *testing.T) {
	t.Parallel()
	exec := &scriptedExecutor{}
	r := start(t, memory(t), exec, nil)
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	old := r.l.key
	r.d.Detach()
	r.d.Attach(r.l, &fleetv1.Welcome{GrantKeys: [][]byte{pub}})
	var asks atomic.Int32
	r.l.answer = func(g *fleetv1.GrantRequest) {
		by := &link{key: old}
		if asks.Add(1) > 1 {
			by.key = key
			if exec.ran.Load() != 0 {
				t.Error("started by a key that was given up")
			}
		}
		r.l.give(by.granting(g))
	}
	want(t, r.l.result(t, r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})), fleetv1.CommandResult_SUCCEEDED, "")
	if exec.ran.Load() != 1 || asks.Load() != 2 {
		t.Errorf("executed %d times after %d asks", exec.ran.Load(), asks.Load())
	}
}

// TestARefusalEndsTheCommandIfItIsFinal: after a final refusal the command is never executed; after another one the
// grant is asked for again.
func TestARefusalEndsTheCommandIfItIsFinal(t *testing.T) {
	t.Parallel()
	exec := &scriptedExecutor{}
	r := start(t, memory(t), exec, nil)
	r.l.answer = func(g *fleetv1.GrantRequest) { r.l.refuse(g, "FLEET_FROZEN", true) }
	got := r.l.result(t, r.order(&fleetv1.CommandSpec{TimeoutMs: 60000}))
	want(t, got, fleetv1.CommandResult_REFUSED, "GRANT_REFUSED")
	if !strings.Contains(got.GetMessage(), "FLEET_FROZEN") || exec.ran.Load() != 0 || r.l.asks() != 1 {
		t.Errorf("%q, executed %d times, %d asks", got.GetMessage(), exec.ran.Load(), r.l.asks())
	}

	r = start(t, memory(t), exec, nil)
	var asks atomic.Int32
	r.l.answer = func(g *fleetv1.GrantRequest) {
		if asks.Add(1) == 1 {
			r.l.refuse(g, "DATABASE_UNAVAILABLE", false)
			return
		}
		r.l.grant(g)
	}
	want(t, r.l.result(t, r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})), fleetv1.CommandResult_SUCCEEDED, "")
	if exec.ran.Load() != 1 || r.l.asks() != 2 {
		t.Errorf("executed %d times after %d asks", exec.ran.Load(), r.l.asks())
	}
}

// TestAnAgentThatIsAnOldCopyEnds: the controller knows of asks that this memory does not; nothing may be done by it.
func TestAnAgentThatIsAnOldCopyEnds(t *testing.T) {
	t.Parallel()
	exec := &scriptedExecutor{}
	r := start(t, memory(t), exec, nil)
	r.dies = state.ErrRolledBack
	r.l.answer = func(g *fleetv1.GrantRequest) { r.l.refuse(g, "AGENT_STATE_ROLLED_BACK", true) }
	r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})
	<-r.ended
	if exec.ran.Load() != 0 {
		t.Error("executed by an old copy")
	}
}

// TestACancelBeforeTheEffect: whenever it comes, nothing is executed, and the result is canceled.
func TestACancelBeforeTheEffect(t *testing.T) {
	t.Parallel()
	t.Run("instead of a grant", func(t *testing.T) {
		t.Parallel()
		exec := &scriptedExecutor{}
		r := start(t, memory(t), exec, func(c *dispatch.Config) { c.GrantWait = time.Hour })
		r.l.answer = func(g *fleetv1.GrantRequest) { r.l.cancel(g.GetCommandId()) }
		want(t, r.l.result(t, r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})), fleetv1.CommandResult_CANCELED,
			"CANCELED_BY_REQUEST")
		if exec.ran.Load() != 0 {
			t.Error("executed")
		}
	})
	t.Run("after the grant", func(t *testing.T) {
		t.Parallel()
		exec := &scriptedExecutor{}
		r := start(t, memory(t), exec, nil)
		id := make(chan string, 1)
		exec.prepare = func() (*executor.Result, error) {
			r.l.cancel(<-id)
			return nil, nil
		}
		ordered := r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})
		id <- ordered
		want(t, r.l.result(t, ordered), fleetv1.CommandResult_CANCELED, "CANCELED_BY_REQUEST")
		if exec.ran.Load() != 0 {
			t.Error("executed")
		}
	})
	t.Run("behind another command of its target", func(t *testing.T) {
		t.Parallel()
		free := make(chan struct{})
		exec := &scriptedExecutor{execute: func(context.Context, executor.Job) (executor.Result, error) {
			<-free
			return executor.Succeeded(nil), nil
		}}
		r := start(t, memory(t), exec, nil)
		first := r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})
		second := r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})
		r.l.cancel(second)
		want(t, r.l.result(t, second), fleetv1.CommandResult_CANCELED, "CANCELED_BY_REQUEST")
		close(free)
		want(t, r.l.result(t, first), fleetv1.CommandResult_SUCCEEDED, "")
		if exec.ran.Load() != 1 {
			t.Errorf("executed %d times", exec.ran.Load())
		}
	})
}

// TestAMalformedCommandIsRefused: what contradicts itself is answered, and never executed.
func TestAMalformedCommandIsRefused(t *testing.T) {
	t.Parallel()
	exec := &scriptedExecutor{}
	r := start(t, memory(t), exec, nil)
	send := func(id string, spec *fleetv1.CommandSpec, digest func([]byte) []byte) {
		t.Helper()
		body, err := proto.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		r.l.handle(&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Command{
			Command: &fleetv1.Command{CommandId: id, Spec: body, Digest: digest(body)},
		}})
		want(t, r.l.result(t, id), fleetv1.CommandResult_REFUSED, "INVALID_FIELD")
	}
	right := func(b []byte) []byte { sum := sha256.Sum256(b); return sum[:] }
	reboot := &fleetv1.CommandSpec_Reboot{Reboot: &fleetv1.RebootAction{}}
	send("c-1", &fleetv1.CommandSpec{CommandId: "c-1", TargetId: "m", Action: reboot},
		func([]byte) []byte { return make([]byte, 32) })
	send("c-2", &fleetv1.CommandSpec{CommandId: "c-9", TargetId: "m", Action: reboot}, right)
	send("c-3", &fleetv1.CommandSpec{CommandId: "c-3", Action: reboot}, right)
	send("c-4", &fleetv1.CommandSpec{CommandId: "c-4", TargetId: "m"}, right)
	if exec.ran.Load() != 0 || r.l.asks() != 0 {
		t.Errorf("executed %d times after %d asks", exec.ran.Load(), r.l.asks())
	}
}

// TestAnAgentWhoseMemoryIsDamagedEnds: a result that cannot be read is not forgotten in silence.
func TestAnAgentWhoseMemoryIsDamagedEnds(t *testing.T) {
	t.Parallel()
	store := memory(t)
	if _, _, err := store.Receive(t.Context(), state.Command{ID: "c", TargetID: "m", BootID: "b",
		ReceivedAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if err := store.Finish(t.Context(), "c", []byte{0xff}, time.Now()); err != nil {
		t.Fatal(err)
	}
	d := dispatch.New(dispatch.Config{Store: store, AgentID: "a", BootID: "b", Log: slog.New(slog.DiscardHandler),
		Clock: clock.Real(), Boottime: clock.Boottime})
	if err := d.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "stored result") {
		t.Errorf("it ends with %v", err)
	}
}

func (r *rig) results(id string) (n int) {
	for _, m := range r.messages() {
		if m.GetResult().GetCommandId() == id {
			n++
		}
	}
	return n
}

func (l *link) ack(id string, settled bool) {
	l.handle(
		&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_ResultAck{ResultAck: &fleetv1.ResultAck{CommandId: id,
			Settled: settled}}})
}

// TestAResultIsSentUntilItIsSettled: again and again; once in each session after it was acknowledged; never after it is
// settled.
func TestAResultIsSentUntilItIsSettled(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake(time.Now())
	r := start(t, memory(t), &scriptedExecutor{}, func(c *dispatch.Config) { c.Clock, c.ResendEvery = fake, time.Minute })
	id := r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})
	r.l.result(t, id)
	tick := func(n int) {
		t.Helper()
		testkit.Eventually(t, 30*time.Second, func() bool {
			if r.results(id) == n {
				return true
			}
			fake.Advance(time.Minute)
			return false
		}, "no further result")
	}
	tick(2)
	sent := r.results(id)
	r.l.ack(id, false)
	other := r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})
	r.l.result(t, other)
	testkit.Eventually(t, 30*time.Second, func() bool {
		fake.Advance(time.Minute)
		return r.results(other) > 2
	}, "the other result is not sent again")
	if n := r.results(id); n != sent {
		t.Errorf("sent %d times, and %d before it was acknowledged", n, sent)
	}
	r.d.Detach()
	r.d.Attach(r.l, &fleetv1.Welcome{})
	if n := r.results(id); n != sent+1 {
		t.Errorf("sent %d times in the next session", n-sent)
	}
	before := r.results(other)
	testkit.Eventually(t, 30*time.Second, func() bool {
		fake.Advance(time.Minute)
		return r.results(other) > before+2
	}, "the other result is not sent again")
	if n := r.results(id); n < sent+2 {
		t.Errorf("sent %d times in the next session, in which nobody has acknowledged it", n-sent)
	}
	r.l.ack(id, true)
	r.l.ack(other, true)
	sent = r.results(id)
	r.d.Detach()
	r.d.Attach(r.l, &fleetv1.Welcome{})
	if n := r.results(id); n != sent {
		t.Error("sent after it was settled")
	}
}

// TestWhatACommandSaysIsBuffered: its lines and its output are events of the operation.
func TestWhatACommandSaysIsBuffered(t *testing.T) {
	t.Parallel()
	store := memory(t)
	exec := &scriptedExecutor{execute: func(_ context.Context, job executor.Job) (executor.Result, error) {
		job.Logf("line %d", 1)
		job.Output("stdout", []byte("output"))
		return executor.Succeeded(nil), nil
	}}
	r := start(t, store, exec, nil)
	id := r.order(&fleetv1.CommandSpec{TimeoutMs: 60000, OperationId: "op"})
	r.l.result(t, id)
	events, err := store.Events(t.Context(), 0, 10, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range events {
		if l := e.GetLog(); l.GetCommandId() == id && l.GetOperationId() == "op" {
			got[l.GetStream()] += string(l.GetData())
		}
	}
	if got["agent"] != "line 1\n" || got["stdout"] != "output" {
		t.Errorf("buffered %q", got)
	}
}

// TestEveryActionButTheHarmlessNeedsAGrant walks the actions of the protocol by their descriptor. A command cannot
// leave its grant out by its own flag, and an action that is added needs a grant until it is declared harmless.
func TestEveryActionButTheHarmlessNeedsAGrant(t *testing.T) {
	t.Parallel()
	harmless := map[protoreflect.Name]bool{"preflight": true}
	actions := (&fleetv1.CommandSpec{}).ProtoReflect().Descriptor().Oneofs().ByName("action").Fields()
	if actions.Len() < 15 {
		t.Fatalf("the protocol has %d actions", actions.Len())
	}
	for i := range actions.Len() {
		action := actions.Get(i)
		for _, flag := range []bool{false, true} {
			spec := &fleetv1.CommandSpec{TimeoutMs: 60000, NeedsGrant: flag}
			m := spec.ProtoReflect()
			m.Set(action, m.NewField(action))
			r := start(t, memory(t), &scriptedExecutor{}, nil)
			want(t, r.l.result(t, r.order(spec)), fleetv1.CommandResult_SUCCEEDED, "")
			if asked, needs := r.l.asks() > 0, flag || !harmless[action.Name()]; asked != needs {
				t.Errorf("%s with needs_grant %t: asked for a grant %t, want %t", action.Name(), flag, asked, needs)
			}
		}
	}
}

// TestWithoutDeclarationsEveryCommandNeedsAGrant, as one does whose declaration is missing.
func TestWithoutDeclarationsEveryCommandNeedsAGrant(t *testing.T) {
	t.Parallel()
	r := start(t, memory(t), &scriptedExecutor{}, func(c *dispatch.Config) { c.Harm = nil })
	spec := &fleetv1.CommandSpec{
		TimeoutMs: 60000,
		Action:    &fleetv1.CommandSpec_Preflight{Preflight: &fleetv1.RepaveAction{}},
	}
	want(t, r.l.result(t, r.order(spec)), fleetv1.CommandResult_SUCCEEDED, "")
	if r.l.asks() == 0 {
		t.Error("started without a grant")
	}
}

// TestAGrantThatAnswersAnEarlierAskCounts: a controller that needs longer for each answer than the agent waits before
// it asks again still gets its commands started.
func TestAGrantThatAnswersAnEarlierAskCounts(t *testing.T) {
	t.Parallel()
	exec := &scriptedExecutor{}
	r := start(t, memory(t), exec, func(c *dispatch.Config) { c.GrantWait = 10 * time.Millisecond })
	var mu sync.Mutex
	var earlier *fleetv1.GrantRequest
	r.l.answer = func(g *fleetv1.GrantRequest) {
		mu.Lock()
		defer mu.Unlock()
		if earlier != nil { // each answer is sent when the next ask has come
			r.l.grant(earlier)
		}
		earlier = g
	}
	want(t, r.l.result(t, r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})), fleetv1.CommandResult_SUCCEEDED, "")
	if exec.ran.Load() != 1 || r.l.asks() < 2 {
		t.Errorf("executed %d times after %d asks", exec.ran.Load(), r.l.asks())
	}
}

// TestAnEarlierAskIsAnsweredInTimeOrByAGrantOnly: a grant whose ask is older than the window by the boot-time clock
// starts nothing. The refusal of an earlier ask does not end the command.
func TestAnEarlierAskIsAnsweredInTimeOrByAGrantOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		age  time.Duration // of the first ask when the second is sent
		late func(l *link, first *fleetv1.GrantRequest)
	}{
		"grant after the window": {dispatch.GrantWindow + 1, (*link).grant},
		"final refusal": {0, func(l *link, first *fleetv1.GrantRequest) {
			l.refuse(first, "FLEET_FROZEN", true)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exec := &scriptedExecutor{}
			boottime := &atomic.Int64{}
			waits := make(chan time.Time)
			r := start(t, memory(t), exec, func(cfg *dispatch.Config) {
				cfg.GrantWait, cfg.Clock = time.Hour, stepped{clock.Real(), waits}
				cfg.Boottime = func() time.Duration { return time.Duration(boottime.Load()) }
			})
			var asks []*fleetv1.GrantRequest
			r.l.answer = func(g *fleetv1.GrantRequest) {
				if asks = append(asks, g); len(asks) == 1 {
					boottime.Store(int64(c.age))
					waits <- time.Time{} // the agent asks again
					return
				}
				c.late(r.l, asks[0])
				if exec.ran.Load() != 0 {
					t.Error("started by a grant that is too old")
				}
				r.l.grant(g)
			}
			want(t, r.l.result(t, r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})), fleetv1.CommandResult_SUCCEEDED, "")
			if n := r.l.asks(); exec.ran.Load() != 1 || n != 2 {
				t.Errorf("executed %d times after %d asks", exec.ran.Load(), n)
			}
		})
	}
}

// stepped is a clock whose waits of an hour end when the test sends on a channel.
type stepped struct {
	clock.Clock
	ends <-chan time.Time
}

func (c stepped) After(d time.Duration) <-chan time.Time {
	if d == time.Hour {
		return c.ends
	}
	return c.Clock.After(d)
}

// TestWhatChangesNothingNeedsNoGrant, unless the controller asks for one; a command that changes the machine always
// needs one.
func TestWhatChangesNothingNeedsNoGrant(t *testing.T) {
	t.Parallel()
	for _, needs := range []bool{false, true} {
		r := start(t, memory(t), &scriptedExecutor{}, nil)
		look := &fleetv1.CommandSpec_Preflight{Preflight: &fleetv1.RepaveAction{}}
		want(t, r.l.result(t, r.order(&fleetv1.CommandSpec{TimeoutMs: 60000, Action: look, NeedsGrant: needs})),
			fleetv1.CommandResult_SUCCEEDED, "")
		if asked := r.l.asks() > 0; asked != needs {
			t.Errorf("needs a grant %t, asked %t", needs, asked)
		}
	}
}

package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/dispatch"
	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func (l *link) acks(id string) (states []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.sent {
		if a := m.GetAck(); a.GetCommandId() == id {
			states = append(states, a.GetState())
		}
	}
	return states
}

// TestACommandThatComesAgain is acknowledged with where it stands, or answered with its result, and is executed once,
// even if its content has changed.
func TestACommandThatComesAgain(t *testing.T) {
	t.Parallel()
	begun, free := make(chan struct{}), make(chan struct{})
	exec := &scriptedExecutor{execute: func(context.Context, executor.Job) (executor.Result, error) {
		close(begun)
		<-free
		return executor.Succeeded(nil), nil
	}}
	r := start(t, memory(t), exec, func(c *dispatch.Config) { c.ResendEvery = time.Hour })
	m := r.message(&fleetv1.CommandSpec{TimeoutMs: 60000})
	id := m.GetCommand().GetCommandId()
	r.l.handle(m)
	<-begun
	r.l.handle(m)
	close(free)
	want(t, r.l.result(t, id), fleetv1.CommandResult_SUCCEEDED, "")
	r.l.handle(m)
	m.GetCommand().Digest = make([]byte, 32)
	r.l.handle(m)
	if got := r.l.acks(id); !slices.Equal(got, []string{state.Received, state.Started, state.Done, state.Done}) ||
		r.results(id) != 3 {
		t.Errorf("acknowledged as %v, %d results", got, r.results(id))
	}
	if exec.ran.Load() != 1 {
		t.Errorf("executed %d times", exec.ran.Load())
	}
}

// TestProgressIsToldOnceASecond, and when it is complete; without a session it is buffered.
func TestProgressIsToldOnceASecond(t *testing.T) {
	t.Parallel()
	fake, store := clock.NewFake(time.Now()), memory(t)
	var r *rig
	exec := &scriptedExecutor{execute: func(_ context.Context, job executor.Job) (executor.Result, error) {
		job.Progress(10, "told")
		job.Progress(20, "too soon")
		fake.Advance(time.Second)
		job.Progress(30, "told")
		job.Progress(99, "too soon")
		job.Progress(100, "told")
		r.d.Detach()
		job.Progress(100, "buffered")
		return executor.Succeeded(nil), nil
	}}
	r = start(t, store, exec, func(c *dispatch.Config) { c.Clock, c.ResendEvery = fake, time.Hour })
	id := r.order(&fleetv1.CommandSpec{TimeoutMs: 60000, OperationId: "op"})
	testkit.Eventually(t, 30*time.Second, func() bool {
		c, _, err := store.Command(t.Context(), id)
		return err == nil &&
			c.State == state.Done
	}, "not done")
	var told []string
	for _, m := range r.messages() {
		if p := m.GetProgress(); p != nil {
			told = append(told, fmt.Sprintf("%d %s", p.GetPercent(), p.GetMessage()))
		}
	}
	if !slices.Equal(told, []string{"10 told", "30 told", "100 told"}) {
		t.Errorf("told %q", told)
	}
	events, err := store.Events(t.Context(), 0, 10, time.Now())
	if err != nil || len(events) != 1 {
		t.Fatalf("buffered %v, %v", events, err)
	}
	if p := events[0].GetProgress(); p.GetCommandId() != id || p.GetOperationId() != "op" || p.GetPercent() != 100 ||
		p.GetMessage() != "buffered" {
		t.Errorf("buffered %v", p)
	}
}

// TestACommandThatNobodyHereExecutes is refused for the reason of that; one that was begun before has an unknown end.
func TestACommandThatNobodyHereExecutes(t *testing.T) {
	t.Parallel()
	nobody := func(c *dispatch.Config) {
		c.Resolve = func(*fleetv1.CommandSpec) (executor.Executor, *executor.Result) {
			r := executor.Refused(baremetalv1.Reason_CAPABILITY_MISSING, "no such device")
			return nil, &r
		}
	}
	r := start(t, memory(t), nil, nobody)
	want(t, r.l.result(t, r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})), fleetv1.CommandResult_REFUSED,
		"CAPABILITY_MISSING")
	if r.l.asks() != 0 {
		t.Errorf("%d asks", r.l.asks())
	}
	store, id := interrupted(t)
	got := start(t, store, nil, nobody).l.result(t, id)
	want(t, got, fleetv1.CommandResult_UNKNOWN, "OUTCOME_UNKNOWN")
	if !strings.Contains(got.GetMessage(), "no such device") {
		t.Errorf("%q", got.GetMessage())
	}
}

// fragile is a memory that fails at times.
type fragile struct {
	*state.Store
	start, evict func(n int32) error
	starts       atomic.Int32
	evicts       atomic.Int32
}

func (f *fragile) Start(ctx context.Context, id string, intent, grant []byte, now time.Time) error {
	if n := f.starts.Add(1); f.start != nil {
		if err := f.start(n); err != nil {
			return err
		}
	}
	return f.Store.Start(ctx, id, intent, grant, now)
}

func (f *fragile) Evict(ctx context.Context, now time.Time) (int64, error) {
	if n := f.evicts.Add(1); f.evict != nil {
		if err := f.evict(n); err != nil {
			return 0, err
		}
	}
	return f.Store.Evict(ctx, now)
}

// TestNothingBeginsBeforeItsIntentIsDurable: with a full disk it waits and asks again; with a broken one the agent
// ends.
func TestNothingBeginsBeforeItsIntentIsDurable(t *testing.T) {
	t.Parallel()
	store := &fragile{Store: memory(t), start: func(n int32) error {
		if n == 1 {
			return fmt.Errorf("start: %w", state.ErrStorageFull)
		}
		return nil
	}}
	exec := &scriptedExecutor{execute: func(_ context.Context, job executor.Job) (executor.Result, error) {
		if c, _, err := store.Command(t.Context(), job.Spec.GetCommandId()); err != nil || c.State != state.Started {
			t.Errorf("executed as %s, %v", c.State, err)
		}
		return executor.Succeeded(nil), nil
	}}
	with := func(c *dispatch.Config) { c.Store = store }
	r := start(t, store.Store, exec, with)
	want(t, r.l.result(t, r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})), fleetv1.CommandResult_SUCCEEDED, "")
	if exec.ran.Load() != 1 || r.l.asks() != 2 {
		t.Errorf("executed %d times after %d asks", exec.ran.Load(), r.l.asks())
	}
	broken := errors.New("input/output error")
	store = &fragile{Store: memory(t), start: func(int32) error { return broken }}
	r = start(t, store.Store, exec, with)
	r.dies = broken
	r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})
	<-r.ended
	if exec.ran.Load() != 1 {
		t.Error("executed without an intent")
	}
}

// TestEveryDayHasItsEviction; the agent ends when its memory is broken, at the start and later.
func TestEveryDayHasItsEviction(t *testing.T) {
	t.Parallel()
	broken := errors.New("input/output error")
	for _, day := range []int32{1, 3} {
		fake := clock.NewFake(time.Now())
		store := &fragile{Store: memory(t), evict: func(n int32) error {
			if n == day {
				return broken
			}
			return nil
		}}
		r := startDying(t, store, broken, fake)
		if day == 1 {
			<-r.ended
			continue
		}
		if err := fake.BlockUntil(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		fake.Advance(24 * time.Hour)
		testkit.Eventually(t, 30*time.Second, func() bool { return store.evicts.Load() == 2 }, "no eviction after a day")
		fake.Advance(24 * time.Hour)
		select {
		case <-r.ended:
		case <-time.After(30 * time.Second):
			t.Error("it lives on with a memory that is broken")
		}
	}
}

func startDying(t *testing.T, store *fragile, dies error, fake *clock.Fake) *rig {
	t.Helper()
	return startAloneWith(t, store.Store, &scriptedExecutor{},
		func(c *dispatch.Config) { c.Store, c.Clock, c.ResendEvery = store, fake, 48*time.Hour }, dies)
}

// TestWithoutASession a command is canceled, and expires by the time that the last one has told.
func TestWithoutASession(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	for name, c := range map[string]struct {
		ends    func(r *rig, id string, fake *clock.Fake, passed *atomic.Int64)
		outcome fleetv1.CommandResult_Outcome
		reason  string
	}{
		"canceled": {func(r *rig, id string, _ *clock.Fake, _ *atomic.Int64) { r.l.cancel(id) },
			fleetv1.CommandResult_CANCELED, "CANCELED_BY_REQUEST"},
		"expired": {func(_ *rig, _ string, fake *clock.Fake, passed *atomic.Int64) {
			passed.Store(int64(time.Minute))
			fake.Advance(10 * time.Second)
		}, fleetv1.CommandResult_REFUSED, "COMMAND_EXPIRED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var passed atomic.Int64
			fake, store, exec := clock.NewFake(begin), memory(t), &scriptedExecutor{}
			r := startAlone(t, store, exec, func(cfg *dispatch.Config) {
				cfg.Clock, cfg.ResendEvery = fake, time.Hour
				cfg.Boottime = func() time.Duration { return time.Duration(passed.Load()) }
			})
			r.d.Attach(r.l, &fleetv1.Welcome{GrantKeys: r.keys, ControllerTime: timestamppb.New(begin)})
			r.d.Detach()
			id := r.order(&fleetv1.CommandSpec{TimeoutMs: 60000, ExpiresAt: timestamppb.New(begin.Add(time.Minute))})
			if err := fake.BlockUntil(t.Context(), 3); err != nil { // two tickers and the look at its expiry
				t.Fatal(err)
			}
			c.ends(r, id, fake, &passed)
			testkit.Eventually(t, 30*time.Second, func() bool {
				c, _, err := store.Command(t.Context(), id)
				return err == nil && c.State == state.Done
			}, "it waits on")
			r.attach()
			want(t, r.l.result(t, id), c.outcome, c.reason)
			if exec.ran.Load() != 0 || r.l.asks() != 0 {
				t.Errorf("executed %d times after %d asks", exec.ran.Load(), r.l.asks())
			}
		})
	}
}

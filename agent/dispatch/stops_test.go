package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/dispatch"
	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

// preparing is an executor with a way of its own to prepare.
type preparing struct {
	scriptedExecutor
	prepared func(ctx context.Context) (any, error)
}

func (e *preparing) Prepare(ctx context.Context, _ *fleetv1.CommandSpec) (any, *executor.Result, error) {
	intent, err := e.prepared(ctx)
	return intent, nil, err
}

// An agent that stops while it prepares has begun nothing and reports nothing: the next process begins anew.
func TestAStopAmidThePreparationIsNoFailure(t *testing.T) {
	t.Parallel()
	store, begun := memory(t), make(chan struct{})
	r := start(t, store, &preparing{prepared: func(ctx context.Context) (any, error) {
		close(begun)
		<-ctx.Done()
		return nil, ctx.Err()
	}}, nil)
	id := r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})
	<-begun
	r.end()
	c, _, err := store.Command(t.Context(), id)
	if err != nil || c.State != state.Received || r.results(id) != 0 {
		t.Errorf("it is %s after %d results, %v", c.State, r.results(id), err)
	}
}

// An intent that cannot be kept is a bug of the executor. The agent ends before anything is begun.
func TestAnIntentThatCannotBeKeptEndsTheAgent(t *testing.T) {
	t.Parallel()
	exec := &preparing{prepared: func(context.Context) (any, error) { return unkeepable{}, nil }}
	d := startAloneWith(t, memory(t), exec, nil, errDisk)
	d.attach()
	d.order(&fleetv1.CommandSpec{TimeoutMs: 60000})
	<-d.ended
	if exec.ran.Load() != 0 {
		t.Error("executed without an intent")
	}
}

// unkeepable cannot be encoded.
type unkeepable struct{}

func (unkeepable) MarshalJSON() ([]byte, error) { return nil, errDisk }

// What an executor is handed is what was made durable.
func TestAnExecutorIsHandedItsIntent(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	exec := &scriptedExecutor{execute: func(_ context.Context, job executor.Job) (executor.Result, error) {
		if job.StartedAt.Before(begin) || string(job.Intent) != `{"about":"to"}` {
			t.Errorf("started at %v with %s", job.StartedAt, job.Intent)
		}
		return executor.Result{}, nil
	}}
	r := start(t, memory(t), exec, nil)
	got := r.l.result(t, r.order(&fleetv1.CommandSpec{TimeoutMs: 60000}))
	want(t, got, fleetv1.CommandResult_UNKNOWN, "OUTCOME_UNKNOWN")
	if !strings.Contains(got.GetMessage(), "no outcome") {
		t.Errorf("%q", got.GetMessage())
	}
}

// A command that waits for room on the disk ends with the agent, without a result.
func TestAStopAmidAFullDisk(t *testing.T) {
	t.Parallel()
	inner, waits := memory(t), make(chan struct{}, 10)
	store := &fragile{Store: inner, start: func(int32) error {
		waits <- struct{}{}
		return fmt.Errorf("start: %w", state.ErrStorageFull)
	}}
	r := start(t, inner, &scriptedExecutor{}, func(c *dispatch.Config) {
		c.Store, c.Clock, c.ResendEvery = store, clock.NewFake(time.Now()), time.Hour
	})
	id := r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})
	<-waits
	r.end()
	if c, _, err := inner.Command(t.Context(), id); err != nil || c.State != state.Received {
		t.Errorf("it is %s, %v", c.State, err)
	}
}

// A process that dies while it reads the world returns no result: the next one reads it.
func TestADeathAmidAResume(t *testing.T) {
	t.Parallel()
	store, id := interrupted(t)
	exec := &scriptedExecutor{resume: func(context.Context, executor.Job) (executor.Verdict, error) {
		return executor.Verdict{}, fmt.Errorf("read: %w", failpoint.ErrInjected)
	}}
	r := startAloneWith(t, store, exec, nil, failpoint.ErrInjected)
	<-r.ended
	if c, _, err := store.Command(t.Context(), id); err != nil || c.State != state.Started {
		t.Errorf("it is %s, %v", c.State, err)
	}
}

// A command that was interrupted has the rest of its time, not all of it again.
func TestAResumeHasTheRestOfItsTime(t *testing.T) {
	t.Parallel()
	store, id := interrupted(t) // of a minute
	fake := clock.NewFake(time.Now().Add(50 * time.Second))
	exec := &scriptedExecutor{resume: func(ctx context.Context, _ executor.Job) (executor.Verdict, error) {
		<-ctx.Done()
		return executor.Verdict{}, context.Cause(ctx)
	}}
	r := start(t, store, exec, func(c *dispatch.Config) { c.Clock, c.ResendEvery = fake, time.Hour })
	if err := fake.BlockUntil(t.Context(), 3); err != nil { // two tickers and the limit
		t.Fatal(err)
	}
	fake.Advance(11 * time.Second)
	want(t, r.l.result(t, id), fleetv1.CommandResult_UNKNOWN, "OUTCOME_UNKNOWN")
}

// Commands, and acknowledgements, that come in one message are taken in together, each for itself.
func TestWhatComesTogetherIsTakenTogether(t *testing.T) {
	t.Parallel()
	store := memory(t)
	r := start(t, store, &scriptedExecutor{}, nil)
	first, second := r.message(&fleetv1.CommandSpec{TimeoutMs: 60000}), r.message(&fleetv1.CommandSpec{TimeoutMs: 60000})
	if err := r.d.Handle(t.Context(), first, second); err != nil {
		t.Fatal(err)
	}
	var acks []*fleetv1.ControllerMessage
	for _, m := range []*fleetv1.ControllerMessage{first, second} {
		id := m.GetCommand().GetCommandId()
		want(t, r.l.result(t, id), fleetv1.CommandResult_SUCCEEDED, "")
		acks = append(acks, &fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_ResultAck{
			ResultAck: &fleetv1.ResultAck{CommandId: id, Settled: true}}})
	}
	if err := r.d.Handle(t.Context(), acks...); err != nil {
		t.Fatal(err)
	}
	if left, err := store.Unsettled(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("unsettled: %v, %v", left, err)
	}
}

// Of commands that come together and cannot be stored, the error is of them all, and the agent must not live on.
func TestAFailureAmongSeveralIsAFailure(t *testing.T) {
	t.Parallel()
	inner := memory(t)
	store := &failing{Store: inner, calls: map[string]int{}, method: "Receive", nth: 2, err: errDisk}
	r := start(t, inner, &scriptedExecutor{}, func(c *dispatch.Config) { c.Store = store })
	err := r.d.Handle(t.Context(), r.message(&fleetv1.CommandSpec{}), r.message(&fleetv1.CommandSpec{}))
	if !errors.Is(err, errDisk) {
		t.Errorf("got %v", err)
	}
}

// An ask names the numbers of the asks for the same command before, and of no other.
func TestAnAskNamesTheAsksBefore(t *testing.T) {
	t.Parallel()
	r := startAlone(t, memory(t), &scriptedExecutor{}, func(c *dispatch.Config) { c.GrantWait = 30 * time.Millisecond })
	asks := make(chan *fleetv1.GrantRequest, 100)
	r.l.answer = func(g *fleetv1.GrantRequest) { asks <- g } // nothing comes back
	r.attach()
	for _, target := range []string{"m", "n"} {
		r.order(&fleetv1.CommandSpec{TimeoutMs: 60000, TargetId: target})
	}
	before := map[string][]uint64{}
	for range 6 {
		g := <-asks
		slices.Sort(g.GetEarlier())
		if got := g.GetEarlier(); !slices.Equal(got, before[g.GetCommandId()]) {
			t.Errorf("ask %d of %s names %v before it, not %v", g.GetSeq(), g.GetCommandId(), got, before[g.GetCommandId()])
		}
		before[g.GetCommandId()] = append(before[g.GetCommandId()], g.GetSeq())
	}
}

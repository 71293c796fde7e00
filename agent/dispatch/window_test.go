package dispatch_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/dispatch"
	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// booted is a boot-time clock that a test sets. It starts with the boot, so that an ask without a time would look new.
type booted struct{ atomic.Int64 }

func (b *booted) now() time.Duration { return time.Duration(b.Load()) }

// A machine sleeps through the window of a grant, before the intent or after it. The command is not begun, and is asked
// for again.
func TestAGrantThatWasSleptOverStartsNothing(t *testing.T) {
	t.Parallel()
	var boot booted
	slept := false
	exec := &preparing{prepared: func(context.Context) (any, error) {
		if !slept {
			slept = true
			boot.Add(int64(dispatch.GrantWindow + time.Millisecond))
		}
		return map[string]string{}, nil
	}}
	r := start(t, memory(t), exec, func(c *dispatch.Config) { c.Boottime = boot.now })
	want(t, r.l.result(t, r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})), fleetv1.CommandResult_SUCCEEDED, "")
	if exec.ran.Load() != 1 || r.l.asks() != 2 {
		t.Errorf("executed %d times after %d asks", exec.ran.Load(), r.l.asks())
	}
}

// An executor that is about to destroy data has a grant that is new, or is given a reason to stop.
func TestLeaveIsRenewed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sleeps, refused bool
		asks            int
		outcome         fleetv1.CommandResult_Outcome
	}{
		"at once":             {asks: 1, outcome: fleetv1.CommandResult_SUCCEEDED},
		"after a sleep":       {sleeps: true, asks: 2, outcome: fleetv1.CommandResult_SUCCEEDED},
		"refused after sleep": {sleeps: true, refused: true, asks: 2, outcome: fleetv1.CommandResult_FAILED},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var boot booted
			exec := &scriptedExecutor{execute: func(ctx context.Context, job executor.Job) (executor.Result, error) {
				if c.sleeps {
					boot.Add(int64(dispatch.GrantWindow + time.Millisecond))
				}
				stop, err := job.Leave(ctx)
				if err != nil || stop != nil {
					return *stop, err
				}
				return executor.Succeeded(nil), nil
			}}
			r := startAlone(t, memory(t), exec, func(cfg *dispatch.Config) { cfg.Boottime = boot.now })
			asked := 0
			r.l.answer = func(g *fleetv1.GrantRequest) {
				if asked++; asked == 2 && c.refused {
					r.l.refuse(g, "MACHINE_BLOCKED", true)
					return
				}
				r.l.grant(g)
			}
			r.attach()
			got := r.l.result(t, r.order(&fleetv1.CommandSpec{TimeoutMs: 60000}))
			if got.GetOutcome() != c.outcome || r.l.asks() != c.asks {
				t.Errorf("%s after %d asks: %s", got.GetOutcome(), r.l.asks(), got.GetMessage())
			}
		})
	}
}

// A cancel reaches an executor that is at work, which reports its progress.
func TestACancelReachesTheExecutor(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	exec := &scriptedExecutor{execute: func(ctx context.Context, _ executor.Job) (executor.Result, error) {
		close(begun)
		<-ctx.Done()
		return executor.Canceled("stopped: %v", context.Cause(ctx)), nil
	}}
	r := start(t, memory(t), exec, nil)
	id := r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})
	<-begun
	r.l.cancel(id)
	want(t, r.l.result(t, id), fleetv1.CommandResult_CANCELED, "CANCELED_BY_REQUEST")
}

// An agent that stops while it waits for an answer, or for a session, has begun nothing.
func TestAStopWithoutAGrantBeginsNothing(t *testing.T) {
	t.Parallel()
	for _, session := range []bool{true, false} {
		t.Run(fmt.Sprint("session ", session), func(t *testing.T) {
			t.Parallel()
			store, exec := memory(t), &scriptedExecutor{}
			r := startAlone(t, store, exec, func(c *dispatch.Config) {
				c.Boottime, c.GrantWait = (&booted{}).now, time.Hour
			})
			asked := make(chan struct{}, 1)
			r.l.answer = func(*fleetv1.GrantRequest) { asked <- struct{}{} }
			if session {
				r.attach()
			}
			id := r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})
			if session {
				<-asked
			}
			r.end()
			c, _, err := store.Command(t.Context(), id)
			if err != nil || c.State != state.Received || exec.ran.Load() != 0 {
				t.Errorf("it is %s, executed %d times, %v", c.State, exec.ran.Load(), err)
			}
		})
	}
}

// A command that has not expired waits for its session however long it looks, and asks once there is one.
func TestAWaitForASessionAsksNothing(t *testing.T) {
	t.Parallel()
	fake, begin := clock.NewFake(time.Now()), time.Now()
	store := &failing{Store: memory(t), calls: map[string]int{}}
	r := startAlone(t, store.Store, &scriptedExecutor{}, func(c *dispatch.Config) {
		c.Store, c.Clock, c.ResendEvery, c.Boottime = store, fake, time.Hour, (&booted{}).now
	})
	r.d.Attach(r.l, &fleetv1.Welcome{GrantKeys: r.keys, ControllerTime: timestamppb.New(begin)})
	r.d.Detach()
	id := r.order(&fleetv1.CommandSpec{TimeoutMs: 60000, ExpiresAt: timestamppb.New(begin.Add(time.Hour))})
	for range 3 {
		if err := fake.BlockUntil(t.Context(), 3); err != nil { // two tickers and the look at its expiry
			t.Fatal(err)
		}
		fake.Advance(10 * time.Second)
	}
	r.attach()
	want(t, r.l.result(t, id), fleetv1.CommandResult_SUCCEEDED, "")
	if n := store.count("NextGrantSeqs"); n != 1 || r.l.asks() != 1 {
		t.Errorf("%d asks of %d that were numbered", r.l.asks(), n)
	}
}

// A result that there was no room for is not sent by an agent that stops: the next one has to read the world.
func TestAStopAmidAFullDiskSendsNoResult(t *testing.T) {
	t.Parallel()
	inner := memory(t)
	store := &neverFinishes{Store: inner}
	r := start(t, inner, &scriptedExecutor{}, func(c *dispatch.Config) { c.Store = store })
	id := r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})
	testkit.Eventually(t, 30*time.Second, func() bool { return store.tried.Load() > 0 }, "no result")
	r.end()
	if c, _, err := inner.Command(t.Context(), id); err != nil || c.State != state.Started || r.results(id) != 0 {
		t.Errorf("it is %s after %d results, %v", c.State, r.results(id), err)
	}
}

// neverFinishes is a memory without room for results.
type neverFinishes struct {
	*state.Store
	tried atomic.Int32
}

func (s *neverFinishes) Finish(context.Context, string, []byte, time.Time) error {
	s.tried.Add(1)
	return fmt.Errorf("finish: %w", state.ErrStorageFull)
}

// A command that comes again when it is done is acknowledged as done and answered with its result. The configuration
// names no limits, so that the defaults apply.
func TestADoneCommandThatComesAgainIsAnswered(t *testing.T) {
	t.Parallel()
	r := start(t, memory(t), &scriptedExecutor{}, func(c *dispatch.Config) {
		c.ResendEvery, c.GrantWait, c.StopGrace = 0, 0, 0
	})
	m := r.message(&fleetv1.CommandSpec{TimeoutMs: 60000})
	id := m.GetCommand().GetCommandId()
	if err := r.d.Handle(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r.l.result(t, id)
	r.l.ack(id, false)
	before := r.results(id)
	if err := r.d.Handle(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if acks := r.l.acks(id); r.results(id) != before+1 || len(acks) != 2 || acks[1] != state.Done {
		t.Errorf("%d results more, acknowledged as %v", r.results(id)-before, acks)
	}
}

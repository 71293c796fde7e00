package ratelimit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/limit/fairqueue"
	"github.com/ingot-metal/ingot/controller/limit/ratelimit"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	get    = baremetalv1.MachineService_GetMachine_FullMethodName
	reboot = baremetalv1.MachineService_RebootMachine_FullMethodName
	add    = baremetalv1.AdminService_AddImage_FullMethodName
	watch  = baremetalv1.OperationService_WatchOperations_FullMethodName
)

// seen records the limiter's observations.
type seen struct {
	mu      sync.Mutex
	refused map[string]int
	waited  []time.Duration
}

func (s *seen) Refused(client, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[client+" "+why]++
}

func (s *seen) Waited(took time.Duration, _, _ int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waited = append(s.waited, took)
}

func limits() fairqueue.Limits {
	many := fairqueue.Rate{PerSecond: 1000, Burst: 1000}
	return fairqueue.Limits{
		Read: many, Write: many, ClientStreams: 100, Streams: 100, Running: 4, Lists: 1, ClientWaiting: 100, Waiting: 100,
		WaitingBytes: 1 << 20,
	}
}

func newDoor(l fairqueue.Limits) (*ratelimit.Limiter, *clock.Fake, *seen) {
	fake, s := clock.NewFake(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)), &seen{refused: map[string]int{}}
	return ratelimit.New(ratelimit.Config{Limits: l, MaxWait: time.Minute, Clock: fake, Observer: s}), fake, s
}

func as(ctx context.Context, name string) context.Context {
	return call.WithCaller(ctx, access.Caller{Name: name, Scope: access.ScopeAdmin})
}

// invoke makes a unary call whose handler is fn.
func invoke(ctx context.Context, d *ratelimit.Limiter, method string, fn func()) error {
	_, err := d.Unary()(ctx, &baremetalv1.GetMachineRequest{MachineId: "m-1"}, &grpc.UnaryServerInfo{FullMethod: method},
		func(context.Context, any) (any, error) {
			fn()
			return nil, nil
		})
	return err
}

func refusedWith(t *testing.T, err error, reason string, atLeast time.Duration) {
	t.Helper()
	var e *failure.Error
	if !errors.As(err, &e) || e.Kind != failure.KindExhausted || e.Reason != reason {
		t.Fatalf("got %v, want %s", err, reason)
	}
	if !e.Retryable || e.RetryAfter < atLeast || e.RetryAfter > 2*atLeast {
		t.Errorf("%s: again after %v, want from %v on", reason, e.RetryAfter, atLeast)
	}
}

func nothing() {}

func TestRatesAreOfEachClientAndKind(t *testing.T) {
	l := limits()
	l.Read, l.Write = fairqueue.Rate{PerSecond: 2, Burst: 1}, fairqueue.Rate{PerSecond: 1, Burst: 1}
	d, fake, s := newDoor(l)
	a, b := as(t.Context(), "a"), as(t.Context(), "b")
	for _, ctx := range []context.Context{a, b} {
		if err := errors.Join(invoke(ctx, d, get, nothing), invoke(ctx, d, reboot, nothing)); err != nil {
			t.Fatal(err)
		}
	}
	refusedWith(t, invoke(a, d, get, nothing), "RATE_LIMITED", 500*time.Millisecond)
	refusedWith(t, invoke(a, d, reboot, nothing), "RATE_LIMITED", time.Second)
	fake.Advance(500 * time.Millisecond)
	if err := invoke(a, d, get, nothing); err != nil {
		t.Errorf("when it was told to try again: %v", err)
	}
	// Calls without a client are not counted: health checks.
	for range 10 {
		if err := invoke(t.Context(), d, get, nothing); err != nil {
			t.Fatal(err)
		}
	}
	if s.refused["a read_rate"] != 1 || s.refused["a write_rate"] != 1 || len(s.refused) != 2 {
		t.Errorf("refused: %v", s.refused)
	}
}

// hold makes n calls of a client that stay until release.
func hold(t *testing.T, ctx context.Context, d *ratelimit.Limiter, method string, n int) (release func()) {
	t.Helper()
	gate := make(chan struct{})
	var in, out sync.WaitGroup
	for range n {
		in.Add(1)
		out.Add(1)
		task.Background("held call", func() {
			defer out.Done()
			if err := invoke(ctx, d, method, func() { in.Done(); <-gate }); err != nil {
				t.Errorf("held call: %v", err)
				in.Done()
			}
		})
	}
	in.Wait()
	return func() { close(gate); out.Wait() }
}

func TestListsHoldUpNothingElse(t *testing.T) {
	const list = baremetalv1.MachineService_ListMachines_FullMethodName
	d, _, _ := newDoor(limits())
	a := as(t.Context(), "a")
	release := hold(t, a, d, list, 1)
	if err := invoke(as(t.Context(), "b"), d, get, nothing); err != nil {
		t.Errorf("another client's call for one machine: %v", err)
	}
	short, cancel := context.WithCancel(a)
	cancel()
	if err := invoke(short, d, list, nothing); !errors.Is(err, context.Canceled) {
		t.Errorf("a second list at a time: %v", err)
	}
	release()
	if err := invoke(a, d, list, nothing); err != nil {
		t.Errorf("after it: %v", err)
	}
}

func TestWhoWaitsGetsAPlaceOrIsToldSo(t *testing.T) {
	d, fake, s := newDoor(limits())
	flood, polite := as(t.Context(), "flood"), as(t.Context(), "polite")
	release := hold(t, flood, d, get, 3) // its share of four
	late := make(chan error, 1)
	task.Background("late", func() { late <- invoke(flood, d, get, nothing) })
	testkit.Eventually(t, 10*time.Second, func() bool { return fake.Waiters() == 1 },
		"the fourth of the flood does not wait")
	if err := invoke(polite, d, get, nothing); err != nil {
		t.Fatalf("another client: %v", err)
	}
	fake.Advance(time.Minute)
	refusedWith(t, <-late, "CONTROLLER_OVERLOADED", time.Second)
	gone, leave := context.WithCancel(flood)
	task.Background("gone", func() { late <- invoke(gone, d, get, nothing) })
	testkit.Eventually(t, 10*time.Second, func() bool { return fake.Waiters() == 1 }, "it does not wait")
	leave()
	if err := <-late; !errors.Is(err, context.Canceled) {
		t.Errorf("who has left: %v", err)
	}
	task.Background("patient", func() { late <- invoke(flood, d, get, nothing) })
	testkit.Eventually(t, 10*time.Second, func() bool { return fake.Waiters() == 2 }, "it does not wait")
	release()
	if err := <-late; err != nil {
		t.Errorf("when a place came free: %v", err)
	}
	if s.refused["flood wait"] != 1 || len(s.waited) != 5 {
		t.Errorf("refused %v, let in %d", s.refused, len(s.waited))
	}
}

// TestAllIsGivenBack: after panics and failures there are as many places as before.
func TestAllIsGivenBack(t *testing.T) {
	d, _, _ := newDoor(limits())
	ctx := as(t.Context(), "a")
	for range 10 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_ = invoke(ctx, d, get, func() { panic("x") }) // it panics
		}()
	}
	hold(t, ctx, d, get, 3)()
}

type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }

func TestStreamsAndLongCallsTakeNoPlace(t *testing.T) {
	l := limits()
	l.ClientStreams = 5
	d, _, _ := newDoor(l)
	ctx := as(t.Context(), "a")
	open := func(fn func()) error {
		return d.Stream()(nil, stream{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: watch},
			func(any, grpc.ServerStream) error {
				fn()
				return nil
			})
	}
	release := hold(t, ctx, d, add, 4)
	if err := open(func() {
		if err := invoke(ctx, d, get, nothing); err != nil {
			t.Errorf("a call beside streams: %v", err)
		}
		refusedWith(t, open(nothing), "TOO_MANY_STREAMS", time.Second)
	}); err != nil {
		t.Fatal(err)
	}
	release()
	if err := open(nothing); err != nil {
		t.Errorf("after they were closed: %v", err)
	}
}

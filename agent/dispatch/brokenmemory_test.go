package dispatch_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/dispatch"
	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/task"
)

var errDisk = errors.New("input/output error")

// failing is a memory whose method fails once, at its nth call.
type failing struct {
	*state.Store
	method string
	nth    int
	err    error

	mu    sync.Mutex
	calls map[string]int
	hit   bool
}

func (f *failing) call(method string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[method]++
	if method != f.method || f.calls[method] != f.nth {
		return nil
	}
	f.hit = true
	return fmt.Errorf("%s: %w", method, f.err)
}

func (f *failing) count(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

func (f *failing) StateID(ctx context.Context) (string, error) {
	if err := f.call("StateID"); err != nil {
		return "", err
	}
	return f.Store.StateID(ctx)
}

func (f *failing) Meta(ctx context.Context) (state.Meta, error) {
	if err := f.call("Meta"); err != nil {
		return state.Meta{}, err
	}
	return f.Store.Meta(ctx)
}

func (f *failing) NextGrantSeqs(ctx context.Context, ids ...string) ([]state.GrantNumber, error) {
	if err := f.call("NextGrantSeqs"); err != nil {
		return nil, err
	}
	return f.Store.NextGrantSeqs(ctx, ids...)
}

func (f *failing) Receive(ctx context.Context, c state.Command) (state.Command, bool, error) {
	if err := f.call("Receive"); err != nil {
		return state.Command{}, false, err
	}
	return f.Store.Receive(ctx, c)
}

func (f *failing) Start(ctx context.Context, id string, intent, grant []byte, now time.Time) error {
	if err := f.call("Start"); err != nil {
		return err
	}
	return f.Store.Start(ctx, id, intent, grant, now)
}

func (f *failing) UpdateIntent(ctx context.Context, id string, intent []byte) error {
	if err := f.call("UpdateIntent"); err != nil {
		return err
	}
	return f.Store.UpdateIntent(ctx, id, intent)
}

func (f *failing) Finish(ctx context.Context, id string, result []byte, now time.Time) error {
	if err := f.call("Finish"); err != nil {
		return err
	}
	return f.Store.Finish(ctx, id, result, now)
}

func (f *failing) Settle(ctx context.Context, id string) error {
	if err := f.call("Settle"); err != nil {
		return err
	}
	return f.Store.Settle(ctx, id)
}

func (f *failing) Unsettled(ctx context.Context) ([]state.Command, error) {
	if err := f.call("Unsettled"); err != nil {
		return nil, err
	}
	return f.Store.Unsettled(ctx)
}

func (f *failing) Evict(ctx context.Context, now time.Time) (int64, error) {
	if err := f.call("Evict"); err != nil {
		return 0, err
	}
	return f.Store.Evict(ctx, now)
}

// lived is an agent over several processes with one memory: a result without an acknowledgement, a command that a
// restart has interrupted, and a new one.
type lived struct {
	t      *testing.T
	memory *state.Store
	order  *fleetv1.ControllerMessage

	mu           sync.Mutex
	ran, granted map[string]int
}

func newLife(t *testing.T) *lived {
	t.Helper()
	l := &lived{t: t, memory: memory(t), ran: map[string]int{}, granted: map[string]int{}}
	l.order = (&rig{t: t}).message(&fleetv1.CommandSpec{TimeoutMs: 60000})
	unread := l.order.GetCommand().GetCommandId()
	if err := l.live(context.Background(), &failing{Store: l.memory, calls: map[string]int{}},
		func() bool { return l.is(unread, state.Done) }, false); err != nil {
		t.Fatal(err)
	}
	interruptedIn(t, l.memory)
	l.order = (&rig{t: t}).message(&fleetv1.CommandSpec{TimeoutMs: 60000})
	return l
}

func (l *lived) is(id, want string) bool {
	c, found, err := l.memory.Command(context.Background(), id)
	return err == nil && found && c.State == want
}

// Prepare implements executor.Executor.
func (l *lived) Prepare(context.Context, *fleetv1.CommandSpec) (any, *executor.Result, error) {
	return map[string]string{"about": "to"}, nil, nil
}

// Execute implements executor.Executor. It acts only where the intent is durable.
func (l *lived) Execute(ctx context.Context, job executor.Job) (executor.Result, error) {
	id := job.Spec.GetCommandId()
	if !l.is(id, state.Started) {
		l.t.Errorf("%s is executed without a durable intent", id)
	}
	if err := job.UpdateIntent(ctx, map[string]string{"about": "to act"}); err != nil {
		// Without a note of what it does the executor does nothing, and cannot know about others.
		return executor.Result{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.granted[id] == 0 {
		l.t.Errorf("%s is executed without a grant", id)
	}
	l.ran[id]++
	return executor.Succeeded(nil), nil
}

// Resume implements executor.Executor.
func (l *lived) Resume(_ context.Context, job executor.Job) (executor.Verdict, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ran[job.Spec.GetCommandId()] > 0 {
		return executor.Settle(executor.Succeeded(nil)), nil
	}
	return executor.GoOn(), nil
}

// live runs a process until it ends or done reports true. Like the agent, it ends with the first error of a message.
func (l *lived) live(ctx context.Context, store *failing, done func() bool, acks bool) error {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	d := dispatch.New(dispatch.Config{
		Store: store, AgentID: "a", BootID: "b", Log: slog.New(slog.DiscardHandler), Clock: clock.Real(),
		Boottime: (&booted{}).now, ResendEvery: 20 * time.Millisecond, GrantWait: 5 * time.Second,
		Resolve: func(*fleetv1.CommandSpec) (executor.Executor, *executor.Result) { return l, nil },
	})
	handle := func(m *fleetv1.ControllerMessage) {
		if err := d.Handle(ctx, m); err != nil {
			stop(err)
		}
	}
	session := &link{key: key, d: d, ctx: ctx, changed: make(chan struct{})}
	session.answer = func(g *fleetv1.GrantRequest) {
		l.mu.Lock()
		l.granted[g.GetCommandId()]++
		l.mu.Unlock()
		grant := session.granting(g)
		handle(&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Grant{Grant: grant}})
	}
	ended := make(chan error, 1)
	task.Background("dispatcher under test", func() { ended <- d.Run(ctx) })
	acked := map[*fleetv1.AgentMessage]bool{}
	attached, told := false, false
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(time.Minute); ; {
		select {
		case err := <-ended:
			if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
				return cause
			}
			return err
		case <-limit:
			l.t.Fatal("the life does not go on")
		case <-tick.C:
		}
		select {
		case <-d.Ready():
		default:
			continue
		}
		if !attached {
			d.Attach(session, &fleetv1.Welcome{GrantKeys: [][]byte{pub}, ControllerTime: timestamppb.Now()})
			attached = true
		}
		if !told {
			told = true
			handle(l.order)
		}
		for _, m := range session.all() {
			r := m.GetResult()
			if r == nil || acked[m] {
				continue
			}
			acked[m] = true
			if !l.is(r.GetCommandId(), state.Done) && !l.is(r.GetCommandId(), "") {
				l.check(r.GetCommandId())
			}
			if acks {
				handle(&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_ResultAck{
					ResultAck: &fleetv1.ResultAck{CommandId: r.GetCommandId(), Settled: true}}})
			}
		}
		if done() {
			stop(nil)
		}
	}
}

// check holds that a result which was sent is durable.
func (l *lived) check(id string) {
	if c, found, err := l.memory.Command(context.Background(), id); err != nil || !found || len(c.Result) == 0 {
		l.t.Errorf("the result of %s was sent and is not stored: %s, %t, %v", id, c.State, found, err)
	}
}

func (l *link) all() []*fleetv1.AgentMessage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*fleetv1.AgentMessage(nil), l.sent...)
}

// settled reports whether everything has ended, the new command included.
func (l *lived) settled() bool {
	list, err := l.memory.Unsettled(context.Background())
	_, known, kerr := l.memory.Command(context.Background(), l.order.GetCommand().GetCommandId())
	return err == nil && kerr == nil && known && len(list) == 0
}

// over holds that the next process brings everything to its end, and that each command has acted at most once.
func (l *lived) over() {
	l.t.Helper()
	if err := l.live(
		context.Background(),
		&failing{Store: l.memory, calls: map[string]int{}},
		l.settled,
		true,
	); err != nil {
		l.t.Errorf("the next process ends with %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, n := range l.ran {
		if n > 1 {
			l.t.Errorf("%s acted %d times", id, n)
		}
	}
	if n := l.ran[l.order.GetCommand().GetCommandId()]; n != 1 {
		l.t.Errorf("the new command acted %d times", n)
	}
}

// An agent whose memory fails ends with the failure, at whatever call that is. The next process goes on, and nothing
// acts twice.
func TestAMemoryThatFailsEndsTheAgent(t *testing.T) {
	t.Parallel()
	for method, most := range map[string]int{"StateID": 1, "Meta": 4, "NextGrantSeqs": 2, "Receive": 1, "Start": 1,
		"Finish": 2, "Settle": 3, "Unsettled": 1, "Evict": 1} {
		for n := 1; n <= most; n++ {
			t.Run(fmt.Sprint(method, n), func(t *testing.T) {
				t.Parallel()
				l := newLife(t)
				store := &failing{Store: l.memory, calls: map[string]int{}, method: method, nth: n, err: errDisk}
				if err := l.live(t.Context(), store, l.settled, true); !store.hit || !errors.Is(err, errDisk) {
					t.Errorf("it ends with %v, failed: %t", err, store.hit)
				}
				l.over()
			})
		}
	}
}

// A full memory is waited for, and ends nothing.
func TestAMemoryThatIsFullIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"NextGrantSeqs", "Receive", "Start", "Finish", "Settle", "Evict"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			l := newLife(t)
			store := &failing{Store: l.memory, calls: map[string]int{}, method: method, nth: 1, err: state.ErrStorageFull}
			if err := l.live(t.Context(), store, l.settled, true); err != nil || !store.hit {
				t.Errorf("it ends with %v, failed: %t", err, store.hit)
			}
			l.over()
		})
	}
}

// A process may die at each of its failpoints. It dies of nothing less, and the next one goes on.
func TestAnAgentThatDiesAnywhereGoesOn(t *testing.T) {
	t.Parallel()
	reached := map[string]bool{}
	var mu sync.Mutex
	t.Cleanup(func() {
		if len(reached) < 9 {
			t.Errorf("only %v were reached", reached)
		}
	})
	for _, name := range failpoint.Names() {
		if !strings.HasPrefix(name, "agent.") {
			continue
		}
		for n := range uint64(2) {
			t.Run(fmt.Sprint(name, n+1), func(t *testing.T) {
				t.Parallel()
				l := newLife(t)
				scope := failpoint.NewScope()
				scope.Set(name, failpoint.Error().At(n+1))
				err := l.live(failpoint.With(context.Background(), scope),
					&failing{Store: l.memory, calls: map[string]int{}}, l.settled, true)
				if hit := scope.Hits(name) > n; hit != errors.Is(err, failpoint.ErrInjected) {
					t.Errorf("passed %d times, it ends with %v", scope.Hits(name), err)
				} else if hit {
					mu.Lock()
					reached[name] = true
					mu.Unlock()
				}
				l.over()
			})
		}
	}
}

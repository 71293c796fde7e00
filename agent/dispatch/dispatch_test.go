package dispatch_test

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/action"
	"github.com/ingot-metal/ingot/agent/dispatch"
	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/task"
)

// scriptedExecutor is scripted by its functions; nil ones do the plain thing.
type scriptedExecutor struct {
	prepare func() (*executor.Result, error)
	execute func(ctx context.Context, job executor.Job) (executor.Result, error)
	resume  func(ctx context.Context, job executor.Job) (executor.Verdict, error)
	ran     atomic.Int32
}

func (e *scriptedExecutor) Prepare(context.Context, *fleetv1.CommandSpec) (any, *executor.Result, error) {
	if e.prepare == nil {
		return map[string]string{"about": "to"}, nil, nil
	}
	r, err := e.prepare()
	return map[string]string{}, r, err
}

func (e *scriptedExecutor) Execute(ctx context.Context, job executor.Job) (executor.Result, error) {
	e.ran.Add(1)
	if e.execute == nil {
		return executor.Succeeded(nil), nil
	}
	return e.execute(ctx, job)
}

func (e *scriptedExecutor) Resume(ctx context.Context, job executor.Job) (executor.Verdict, error) {
	return e.resume(ctx, job)
}

// link is a session that grants whatever it is asked for, and keeps what was sent.
type link struct {
	key ed25519.PrivateKey
	d   *dispatch.Dispatcher
	ctx context.Context
	// answer stands for the grant where it is set.
	answer func(*fleetv1.GrantRequest)
	// ended is closed when the dispatcher has ended.
	ended <-chan struct{}

	mu      sync.Mutex
	sent    []*fleetv1.AgentMessage
	changed chan struct{}
}

func (l *link) Send(m *fleetv1.AgentMessage) {
	l.mu.Lock()
	l.sent = append(l.sent, m)
	close(l.changed)
	l.changed = make(chan struct{})
	l.mu.Unlock()
	if g := m.GetGrantRequest(); g != nil {
		answer := l.grant
		if l.answer != nil {
			answer = l.answer
		}
		task.Background("grant", func() { answer(g) })
	}
}

func (l *link) grant(g *fleetv1.GrantRequest) {
	_ = l.d.Handle(l.ctx, &fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Grant{Grant: l.granting(g)}})
}

// granting makes the grant that was asked for.
func (l *link) granting(g *fleetv1.GrantRequest) *fleetv1.Grant {
	c := pki.GrantClaims{
		CommandID: g.GetCommandId(), TargetID: "m", AgentID: "a", StateID: g.GetStateId(), Nonce: g.GetNonce(),
		Digest: g.GetDigest(), Seq: g.GetSeq(), IssuedAtUnixMs: 1,
	}
	sig, err := pki.SignGrant(l.key, c)
	if err != nil {
		panic(err)
	}
	return &fleetv1.Grant{
		CommandId: c.CommandID, TargetId: c.TargetID, Digest: c.Digest, Nonce: c.Nonce, Seq: c.Seq, IssuedAtUnixMs: 1,
		Signature: sig,
	}
}

// wait returns the first message that pick takes.
func (l *link) wait(t *testing.T, what string, pick func(*fleetv1.AgentMessage) bool) *fleetv1.AgentMessage {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		l.mu.Lock()
		changed := l.changed
		for _, m := range l.sent {
			if pick(m) {
				l.mu.Unlock()
				return m
			}
		}
		l.mu.Unlock()
		select {
		case <-changed:
		case <-l.ended:
			t.Fatalf("the dispatcher has ended before %s", what)
		case <-timeout:
			t.Fatalf("gave up waiting for %s", what)
		}
	}
}

func (l *link) result(t *testing.T, id string) *fleetv1.CommandResult {
	t.Helper()
	return l.wait(t, "the result of "+id,
		func(m *fleetv1.AgentMessage) bool { return m.GetResult().GetCommandId() == id }).GetResult()
}

func (l *link) asks() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.sent {
		if m.GetGrantRequest() != nil {
			n++
		}
	}
	return n
}

type rig struct {
	t     *testing.T
	store *state.Store
	d     *dispatch.Dispatcher
	l     *link
	keys  [][]byte
	stop  context.CancelFunc
	ended chan struct{}
	// dies is the error that the dispatcher is to end with.
	dies error
}

// start returns a dispatcher with a session.
func start(t *testing.T, store *state.Store, exec executor.Executor, edit func(*dispatch.Config)) *rig {
	t.Helper()
	r := startAlone(t, store, exec, edit)
	r.attach()
	return r
}

func (r *rig) attach() {
	r.d.Attach(r.l, &fleetv1.Welcome{GrantKeys: r.keys, ControllerTime: timestamppb.Now()})
}

func startAlone(t *testing.T, store *state.Store, exec executor.Executor, edit func(*dispatch.Config)) *rig {
	t.Helper()
	return startAloneWith(t, store, exec, edit, nil)
}

// startAloneWith returns a dispatcher that may end with an error from the first moment on.
func startAloneWith(
	t *testing.T, store *state.Store, exec executor.Executor, edit func(*dispatch.Config), dies error,
) *rig {
	t.Helper()
	cfg := dispatch.Config{
		Store: store, AgentID: "a", BootID: "b", Log: slog.New(slog.DiscardHandler), Clock: clock.Real(),
		Boottime:    clock.Boottime,
		Harm:        action.HarmOf,
		Resolve:     func(*fleetv1.CommandSpec) (executor.Executor, *executor.Result) { return exec, nil },
		ResendEvery: 20 * time.Millisecond, GrantWait: 200 * time.Millisecond, StopGrace: 50 * time.Millisecond,
	}
	if edit != nil {
		edit(&cfg)
	}
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	d := dispatch.New(cfg)
	r := &rig{t: t, store: store, d: d, keys: [][]byte{pub}, stop: stop, ended: make(chan struct{}), dies: dies}
	task.Background("dispatcher under test", func() {
		defer close(r.ended)
		if err := d.Run(ctx); !errors.Is(err, r.dies) {
			t.Errorf("dispatcher: %v", err)
		}
	})
	t.Cleanup(r.end)
	select {
	case <-d.Ready():
	case <-r.ended:
	}
	r.l = &link{key: key, d: d, ctx: ctx, changed: make(chan struct{}), ended: r.ended}
	return r
}

func (r *rig) end() {
	r.stop()
	<-r.ended
}

func memory(t *testing.T) *state.Store {
	t.Helper()
	s, err := state.Open(t.Context(), state.Config{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (r *rig) order(spec *fleetv1.CommandSpec) string {
	r.t.Helper()
	m := r.message(spec)
	if err := r.d.Handle(r.t.Context(), m); err != nil {
		r.t.Fatal(err)
	}
	return m.GetCommand().GetCommandId()
}

// message is a new command as it comes from the controller.
func (r *rig) message(spec *fleetv1.CommandSpec) *fleetv1.ControllerMessage {
	r.t.Helper()
	spec.CommandId, spec.TargetId = ids.New(ids.Command), cmp.Or(spec.GetTargetId(), "m")
	if spec.GetAction() == nil {
		spec.Action = &fleetv1.CommandSpec_Reboot{Reboot: &fleetv1.RebootAction{}}
	}
	body, err := proto.Marshal(spec)
	if err != nil {
		r.t.Fatal(err)
	}
	sum := sha256.Sum256(body)
	return &fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Command{
		Command: &fleetv1.Command{CommandId: spec.GetCommandId(), Spec: body, Digest: sum[:]},
	}}
}

func want(t *testing.T, r *fleetv1.CommandResult, outcome fleetv1.CommandResult_Outcome, reason string) {
	t.Helper()
	if r.GetOutcome() != outcome || r.GetReason() != reason {
		t.Fatalf("got %v %s (%s), want %v %s", r.GetOutcome(), r.GetReason(), r.GetMessage(), outcome, reason)
	}
}

func TestItAlwaysAnswers(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		exec    *scriptedExecutor
		outcome fleetv1.CommandResult_Outcome
		reason  string
		ran     int32
	}{
		"panic before the intent": {&scriptedExecutor{prepare: func() (*executor.Result, error) { panic("x") }},
			fleetv1.CommandResult_FAILED, "EXECUTOR_PANICKED", 0},
		"error before the intent": {&scriptedExecutor{prepare: func() (*executor.Result, error) { return nil, boom }},
			fleetv1.CommandResult_FAILED, "EXECUTION_FAILED", 0},
		"panic after the intent": {&scriptedExecutor{execute: func(context.Context, executor.Job) (executor.Result,
			error) {
			panic("x")
		}},
			fleetv1.CommandResult_UNKNOWN, "EXECUTOR_PANICKED", 1},
		"error after the intent": {&scriptedExecutor{execute: func(context.Context, executor.Job) (executor.Result,
			error) {
			return executor.Result{}, boom
		}},
			fleetv1.CommandResult_UNKNOWN, "OUTCOME_UNKNOWN", 1},
		"no outcome": {&scriptedExecutor{execute: func(context.Context, executor.Job) (executor.Result,
			error) {
			return executor.Result{}, nil
		}},
			fleetv1.CommandResult_UNKNOWN, "OUTCOME_UNKNOWN", 1},
		"time-out": {&scriptedExecutor{execute: func(ctx context.Context, _ executor.Job) (executor.Result, error) {
			<-ctx.Done()
			return executor.Unknown("late"), nil
		}}, fleetv1.CommandResult_UNKNOWN, "OUTCOME_UNKNOWN", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, memory(t), c.exec, nil)
			want(t, r.l.result(t, r.order(&fleetv1.CommandSpec{TimeoutMs: 100})), c.outcome, c.reason)
			if n := c.exec.ran.Load(); n != c.ran {
				t.Fatalf("executed %d times", n)
			}
		})
	}
}

func TestAnExecutorThatDoesNotComeBackKeepsItsTargetClosed(t *testing.T) {
	t.Parallel()
	free := make(chan struct{})
	exec := &scriptedExecutor{execute: func(_ context.Context, job executor.Job) (executor.Result, error) {
		if job.Spec.GetTargetId() == "m" {
			<-free
		}
		return executor.Succeeded(nil), nil
	}}
	r := start(t, memory(t), exec, nil)
	stuck := r.order(&fleetv1.CommandSpec{TimeoutMs: 30})
	want(t, r.l.result(t, stuck), fleetv1.CommandResult_UNKNOWN, "OUTCOME_UNKNOWN")
	next := r.order(&fleetv1.CommandSpec{TimeoutMs: 10000})
	r.l.wait(t, "an ack", func(m *fleetv1.AgentMessage) bool { return m.GetAck().GetCommandId() == next })
	if n := r.l.asks(); n != 1 {
		t.Fatalf("%d asks while the target is closed", n)
	}
	close(free)
	want(t, r.l.result(t, next), fleetv1.CommandResult_SUCCEEDED, "")
}

func TestACommandThatCannotBeMadeDurableIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	store := memory(t)
	r := start(t, store, &scriptedExecutor{}, nil)
	if err := store.LimitBytes(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	spec := &fleetv1.CommandSpec{Step: string(make([]byte, 100<<10))}
	id := r.order(spec)
	small := r.order(&fleetv1.CommandSpec{})
	_ = small // it may fit into the rest of a page
	for _, m := range r.messages() {
		if m.GetAck().GetCommandId() == id {
			t.Fatal("acknowledged")
		}
	}
	if err := store.LimitBytes(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	want(t, r.l.result(t, id), fleetv1.CommandResult_SUCCEEDED, "")
}

func (r *rig) messages() []*fleetv1.AgentMessage {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	return append([]*fleetv1.AgentMessage(nil), r.l.sent...)
}

// slow is a memory whose first number for an ask is long in coming: until another ask has been sent, or for the given
// time.
type slow struct {
	*state.Store
	other func() bool
	wait  time.Duration
	asked atomic.Int64
}

func (s *slow) NextGrantSeqs(ctx context.Context, commandIDs ...string) ([]state.GrantNumber, error) {
	numbers, err := s.Store.NextGrantSeqs(ctx, commandIDs...)
	if err != nil || s.asked.Add(1) > 1 {
		return numbers, err
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !s.other() && time.Since(began) < s.wait; <-tick.C {
	}
	return numbers, nil
}

// TestAsksAreSentInTheOrderOfTheirNumbers: to the controller, a number below one that it has seen is an older copy of
// the memory.
func TestAsksAreSentInTheOrderOfTheirNumbers(t *testing.T) {
	t.Parallel()
	var r *rig
	memory := &slow{Store: memory(t), wait: 100 * time.Millisecond, other: func() bool { return r.l.asks() > 0 }}
	r = start(t, memory.Store, &scriptedExecutor{}, func(c *dispatch.Config) { c.Store = memory })
	var commands []string
	for _, target := range []string{"m", "n"} {
		commands = append(commands, r.order(&fleetv1.CommandSpec{TargetId: target, TimeoutMs: 60000}))
	}
	for _, id := range commands {
		r.l.wait(t, "both asks", func(m *fleetv1.AgentMessage) bool { return m.GetGrantRequest().GetCommandId() == id })
	}
	last := uint64(0)
	for _, m := range r.messages() {
		if g := m.GetGrantRequest(); g != nil && g.GetSeq() <= last {
			t.Fatalf("ask %d was sent after ask %d", g.GetSeq(), last)
		} else if g != nil {
			last = g.GetSeq()
		}
	}
}

func TestAResultWaitsForRoomOnTheDisk(t *testing.T) {
	t.Parallel()
	store := memory(t)
	exec := &scriptedExecutor{}
	full := make(chan struct{})
	exec.execute = func(context.Context, executor.Job) (executor.Result, error) {
		if err := store.LimitBytes(t.Context(), 1); err != nil {
			return executor.Result{}, err
		}
		close(full)
		return executor.Succeeded(map[string]string{"big": string(make([]byte, 100<<10))}), nil
	}
	r := start(t, store, exec, nil)
	id := r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})
	<-full
	for _, m := range r.messages() {
		if m.GetResult() != nil {
			t.Fatal("sent before it was durable")
		}
	}
	if err := store.LimitBytes(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	want(t, r.l.result(t, id), fleetv1.CommandResult_SUCCEEDED, "")
	if exec.ran.Load() != 1 {
		t.Fatalf("executed %d times", exec.ran.Load())
	}
}

// interrupted leaves a store with one command that is STARTED.
func interrupted(t *testing.T) (*state.Store, string) {
	t.Helper()
	store := memory(t)
	return store, interruptedIn(t, store)
}

// interruptedIn adds such a command to a store.
func interruptedIn(t *testing.T, store *state.Store) string {
	t.Helper()
	begun := make(chan struct{})
	exec := &scriptedExecutor{execute: func(ctx context.Context, _ executor.Job) (executor.Result, error) {
		close(begun)
		<-ctx.Done()
		return executor.Result{}, executor.ErrInterrupted
	}}
	r := start(t, store, exec, nil)
	id := r.order(&fleetv1.CommandSpec{TimeoutMs: 60000})
	<-begun
	r.end()
	c, _, err := store.Command(t.Context(), id)
	if err != nil || c.State != state.Started {
		t.Fatalf("after a stop the command is %s, %v", c.State, err)
	}
	return id
}

func TestWhatResumeSaysCounts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		resume  func(context.Context, executor.Job) (executor.Verdict, error)
		outcome fleetv1.CommandResult_Outcome
		reason  string
		ran     int32
		asks    int
	}{
		"done": {func(context.Context, executor.Job) (executor.Verdict, error) {
			return executor.Settle(executor.Succeeded(nil)), nil
		}, fleetv1.CommandResult_SUCCEEDED, "", 0, 0},
		"not done, go on": {func(context.Context, executor.Job) (executor.Verdict, error) { return executor.GoOn(), nil },
			fleetv1.CommandResult_SUCCEEDED, "", 1, 1},
		"cannot know": {func(context.Context, executor.Job) (executor.Verdict, error) {
			return executor.Settle(executor.Unknown("who knows")), nil
		}, fleetv1.CommandResult_UNKNOWN, "OUTCOME_UNKNOWN", 0, 0},
		"no verdict": {func(context.Context, executor.Job) (executor.Verdict, error) { return executor.Verdict{}, nil },
			fleetv1.CommandResult_UNKNOWN, "OUTCOME_UNKNOWN", 0, 0},
		"error": {func(context.Context, executor.Job) (executor.Verdict, error) {
			return executor.Verdict{}, errors.New("x")
		},
			fleetv1.CommandResult_UNKNOWN, "OUTCOME_UNKNOWN", 0, 0},
		"panic": {func(context.Context, executor.Job) (executor.Verdict, error) { panic("x") },
			fleetv1.CommandResult_UNKNOWN, "EXECUTOR_PANICKED", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, id := interrupted(t)
			exec := &scriptedExecutor{resume: c.resume}
			r := start(t, store, exec, nil)
			want(t, r.l.result(t, id), c.outcome, c.reason)
			if exec.ran.Load() != c.ran || r.l.asks() != c.asks {
				t.Fatalf("executed %d times after %d asks", exec.ran.Load(), r.l.asks())
			}
		})
	}
}

func TestGoingOnNeedsLeaveLikeABeginning(t *testing.T) {
	t.Parallel()
	store, id := interrupted(t)
	exec := &scriptedExecutor{resume: func(context.Context, executor.Job) (executor.Verdict,
		error) {
		return executor.GoOn(), nil
	}}
	if err := store.Lock(t.Context(), "hands off"); err != nil {
		t.Fatal(err)
	}
	r := start(t, store, exec, nil)
	want(t, r.l.result(t, id), fleetv1.CommandResult_FAILED, "AGENT_LOCKED")
	if exec.ran.Load() != 0 {
		t.Fatal("executed without leave")
	}
}

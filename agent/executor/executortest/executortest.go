// Package executortest has the tests that each executor must pass: a whole run, another one, and a kill of the agent at
// each effect.
package executortest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

// World is what one command acts on. It outlives the agent.
type World struct {
	Spec *fleetv1.CommandSpec
	// Executor returns the executor of a new life of the agent.
	Executor func() executor.Executor
	// Effects returns how many effects the world has had so far.
	Effects func() int
	// Whole is the number of effects of a run that nothing interrupts; 0 means 1, or none for an action that is declared
	// harmless.
	Whole int
	// Repeats reports that a run after a kill may repeat effects, which does no harm.
	Repeats bool
	// ResumeWithin is the time that Resume has after a kill; 0 means a minute.
	ResumeWithin time.Duration
	// Outcome is that of a run that nothing interrupts; unspecified means SUCCEEDED.
	Outcome fleetv1.CommandResult_Outcome
}

// Run tests the executor of an action in new worlds.
func Run(t *testing.T, d executor.Declaration, world func(t *testing.T) World) {
	t.Helper()
	fresh := func(t *testing.T) *life {
		t.Helper()
		w := world(t)
		if got := executor.ActionOf(w.Spec); got != d.Action {
			t.Fatalf("the command is of action %q, and the declaration of %q", got, d.Action)
		}
		if w.Outcome == fleetv1.CommandResult_OUTCOME_UNSPECIFIED {
			w.Outcome = fleetv1.CommandResult_SUCCEEDED
		}
		switch harmless := d.Harm == executor.Harmless; {
		case harmless && w.Whole > 0:
			t.Fatalf("declared harmless, and a whole run has %d effects", w.Whole)
		case !harmless && w.Whole == 0:
			w.Whole = 1
		}
		return &life{t: t, w: w, began: time.Now()}
	}
	t.Run("whole and again", func(t *testing.T) { whole(fresh(t)) })
	t.Run("killed with its intent stored", func(t *testing.T) {
		l := fresh(t)
		l.prepare()
		l.next()
	})
	counted := fresh(t)
	for name, passes := range counted.passes() {
		for n := range passes {
			t.Run(fmt.Sprintf("killed at %s, pass %d", name, n+1), func(t *testing.T) {
				l, scope := fresh(t), failpoint.NewScope()
				scope.Set(name, failpoint.Error().At(uint64(n)+1))
				l.killed(failpoint.With(t.Context(), scope), failpoint.ErrInjected)
			})
		}
	}
	for n := range counted.writes {
		t.Run(fmt.Sprintf("killed at write %d of its intent", n+1), func(t *testing.T) {
			l := fresh(t)
			l.dieAt = n + 1
			l.killed(t.Context(), errKilled)
		})
	}
}

// passes runs a command, and returns how often it passes each failpoint.
func (l *life) passes() map[string]int {
	l.t.Helper()
	var mu sync.Mutex
	out, scope := map[string]int{}, failpoint.NewScope()
	for _, name := range failpoint.Names() {
		scope.Set(name, failpoint.Call(func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			out[name]++
			return nil
		}))
	}
	l.prepare()
	if r, err := l.execute(failpoint.With(l.t.Context(), scope)); err != nil || r.Outcome != l.w.Outcome {
		l.t.Fatalf("%+v, %v", r, err)
	}
	return out
}

// killed runs a command that ends with an error, and judges the next life.
func (l *life) killed(ctx context.Context, want error) {
	l.t.Helper()
	l.prepare()
	switch r, err := l.execute(ctx); {
	case l.dead || errors.Is(err, want):
		l.next()
	case err != nil || r.Outcome != l.w.Outcome:
		l.t.Fatalf("not killed: %+v, %v", r, err)
	default: // this run has not passed the place so often
		l.judge(r)
	}
}

var errKilled = errors.New("killed")

// patience is the time of a command, which none of the worlds needs.
const patience = time.Minute

// life is a command with what the agent has stored of it.
type life struct {
	t      *testing.T
	w      World
	intent json.RawMessage
	began  time.Time
	// dieAt is the write of the intent, from 1, that is the last act of the agent; 0: it lives.
	dieAt, writes int
	dead          bool
}

func (l *life) job(ctx context.Context) executor.Job {
	return executor.Job{
		Spec: l.w.Spec, Intent: l.intent, Hard: ctx, StartedAt: l.began, Logf: func(string, ...any) {},
		Progress: func(int, string) {}, Output: func(string, []byte) {},
		UpdateIntent: func(_ context.Context, intent any) (err error) {
			if l.dead {
				return errKilled
			}
			if l.intent, err = json.Marshal(intent); err != nil {
				return err
			}
			if l.writes++; l.writes == l.dieAt {
				l.dead = true
				panic(errKilled) // a provider may report it as an error of its own
			}
			return nil
		},
	}
}

// prepare stores the intent. Nothing may change before that is done.
func (l *life) prepare() (settled *executor.Result) {
	l.t.Helper()
	before := l.w.Effects()
	intent, settled, err := l.w.Executor().Prepare(l.t.Context(), l.w.Spec)
	if err != nil {
		l.t.Fatal(err)
	}
	if n := l.w.Effects() - before; n != 0 {
		l.t.Errorf("%d effects before the intent is stored", n)
	}
	if l.intent, err = json.Marshal(intent); err != nil {
		l.t.Fatal(err)
	}
	return settled
}

func (l *life) execute(ctx context.Context) (_ executor.Result, err error) {
	defer func() {
		if p := recover(); p == errKilled { //nolint:errorlint // the value itself
			err = errKilled
		} else if p != nil {
			panic(p)
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, patience, executor.ErrTimeout)
	defer cancel()
	return l.w.Executor().Execute(ctx, l.job(ctx))
}

// next is the life after a kill: Resume reads the world, and the command goes on where nothing has happened.
func (l *life) next() {
	l.t.Helper()
	l.dieAt, l.dead = 0, false
	ctx, cancel := context.WithTimeoutCause(l.t.Context(), cmp.Or(l.w.ResumeWithin, patience), executor.ErrTimeout)
	defer cancel()
	v, err := l.w.Executor().Resume(ctx, l.job(ctx))
	switch {
	case err != nil:
		l.t.Fatalf("resume: %v", err)
	case v.Settled != nil:
		l.judge(*v.Settled)
	case v.GoOn:
		r, err := l.execute(l.t.Context())
		if err != nil {
			l.t.Fatal(err)
		}
		l.judge(r)
	default:
		l.t.Error("no verdict after a kill")
	}
}

// judge holds a result after a kill against the world.
func (l *life) judge(r executor.Result) {
	l.t.Helper()
	n := l.w.Effects()
	if n > l.w.Whole && !l.w.Repeats {
		l.t.Errorf("%d effects, and a whole run has %d", n, l.w.Whole)
	}
	switch r.Outcome {
	case fleetv1.CommandResult_SUCCEEDED:
		l.proven(r, n)
	case fleetv1.CommandResult_FAILED, fleetv1.CommandResult_UNKNOWN:
		if r.Message == "" {
			l.t.Errorf("%s without a message", r.Outcome)
		}
	default:
		l.t.Errorf("outcome %s of a command that was started: %s", r.Outcome, r.Message)
	}
}

func (l *life) proven(r executor.Result, effects int) {
	l.t.Helper()
	if effects < l.w.Whole {
		l.t.Errorf("success with %d effects, and a whole run has %d", effects, l.w.Whole)
	}
	if len(r.Evidence) == 0 {
		l.t.Error("success without evidence")
	}
}

// whole runs a command without a kill, and another of the same kind after it.
func whole(l *life) {
	l.t.Helper()
	if settled := l.prepare(); settled != nil {
		l.t.Fatalf("settled before it has begun: %+v", settled)
	}
	r, err := l.execute(l.t.Context())
	if err != nil || r.Outcome != l.w.Outcome {
		l.t.Fatalf("%+v, %v", r, err)
	}
	n := l.w.Effects()
	if n != l.w.Whole {
		l.t.Errorf("%d effects, want %d", n, l.w.Whole)
	}
	if r.Outcome == fleetv1.CommandResult_SUCCEEDED {
		l.proven(r, n)
	}
	again := proto.CloneOf(l.w.Spec)
	again.CommandId, again.Attempt = l.w.Spec.GetCommandId()+"-again", l.w.Spec.GetAttempt()+1
	l.w.Spec, l.began = again, time.Now()
	if settled := l.prepare(); settled != nil {
		r = *settled
	} else if r, err = l.execute(l.t.Context()); err != nil {
		l.t.Fatalf("again: %v", err)
	}
	if r.Outcome == fleetv1.CommandResult_UNKNOWN || r.Outcome == fleetv1.CommandResult_OUTCOME_UNSPECIFIED {
		l.t.Errorf("again: %s: %s", r.Outcome, r.Message)
	}
	if more := l.w.Effects() - n; more > l.w.Whole {
		l.t.Errorf("again: %d more effects, and a whole run has %d", more, l.w.Whole)
	}
}

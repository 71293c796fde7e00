// Package task is the only place that starts goroutines. A goroutine started here has a name, and a panic
// in it becomes an error with a stack instead of the end of the process.
package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
)

// PanicError is a panic that was caught in a task.
type PanicError struct {
	Task  string
	Value any
	Stack []byte
}

// Error returns the panic value followed by the stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("task %s: panic: %v\n%s", e.Task, e.Value, e.Stack)
}

// Unwrap returns the panic value when it was an error.
func (e *PanicError) Unwrap() error {
	err, ok := e.Value.(error)
	if !ok {
		return nil
	}
	return err
}

// ErrGoexit is the error of a task that ended by runtime.Goexit and so never returned.
var ErrGoexit = errors.New("task ended by runtime.Goexit")

// Group runs named tasks that belong together. The first error cancels the context of all of them.
type Group struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	once   sync.Once
	err    error

	mu      sync.Mutex
	running int
	// over reports that Wait has seen no task running; ended is signaled when the last one ends.
	over  bool
	ended *sync.Cond
}

// New makes a Group and the context its tasks run under. The context ends when ctx does, when a task fails, or when
// Wait returns; context.Cause returns which.
func New(ctx context.Context) (*Group, context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	g := &Group{ctx: ctx, cancel: cancel}
	g.ended = sync.NewCond(&g.mu)
	return g, ctx
}

// Go starts fn. It may be called from anywhere, while another goroutine waits too. Once Wait has returned, it does
// nothing.
func (g *Group) Go(name string, fn func(context.Context) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return
	}
	g.running++
	go func() {
		defer g.done()
		// The error is recorded in a deferred call, so that runtime.Goexit in fn (t.FailNow does that) still
		// ends the group.
		err := fmt.Errorf("task %s: %w", name, ErrGoexit)
		defer func() { g.settle(err) }()
		err = Run(g.ctx, name, fn)
	}()
}

func (g *Group) done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running--; g.running == 0 {
		g.ended.Broadcast()
	}
}

func (g *Group) settle(err error) {
	if err == nil || g.isEcho(err) {
		return
	}
	g.once.Do(func() {
		g.err = err
		g.cancel(err)
	})
}

// isEcho reports whether err only repeats that the group had to stop. context.Canceled from elsewhere while the group
// is still running is a failure like any other.
func (g *Group) isEcho(err error) bool {
	return errors.Is(err, context.Canceled) && g.ctx.Err() != nil
}

// Wait returns when every task has, with the first error. A task that ends with context.Canceled after the
// group's context was cancelled has ended well.
func (g *Group) Wait() error {
	g.mu.Lock()
	for g.running > 0 {
		g.ended.Wait()
	}
	g.over = true
	g.mu.Unlock()
	g.cancel(nil)
	return g.err
}

// Run calls fn on this goroutine and turns a panic into a *PanicError.
func Run(ctx context.Context, name string, fn func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Task: name, Value: v, Stack: debug.Stack()}
		}
	}()
	return fn(ctx)
}

// Background runs fn on its own goroutine, for which no caller waits. A panic is logged. Use it only where no Group can
// own the work, such as a watcher that ends by itself with a connection.
func Background(name string, fn func()) {
	go func() {
		err := Run(context.Background(), name, func(context.Context) error {
			fn()
			return nil
		})
		if err != nil {
			slog.Error("background task failed", "task", name, "error", err)
		}
	}()
}

// Apart is Run on a goroutine of its own, which it waits for. A stack that has grown is halved only while less than a
// quarter of it is in use: goroutines that wait for long, in their thousands, should not do deep work on their own
// stacks before.
func Apart(ctx context.Context, name string, fn func(context.Context) error) error {
	done := make(chan error, 1)
	go func() {
		err := fmt.Errorf("task %s: %w", name, ErrGoexit)
		defer func() { done <- err }()
		err = Run(ctx, name, fn)
	}()
	return <-done
}

package task_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/internal/task"
)

func TestFirstErrorCancelsTheOthers(t *testing.T) {
	t.Parallel()
	g, ctx := task.New(t.Context())
	g.Go("waiter", func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	g.Go("failing", func(context.Context) error { return io.ErrUnexpectedEOF })
	if err := g.Wait(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("Wait = %v, want the failing task's error", err)
	}
	if !errors.Is(context.Cause(ctx), io.ErrUnexpectedEOF) {
		t.Fatalf("cause = %v", context.Cause(ctx))
	}
}

func TestPanicBecomesErrorWithStack(t *testing.T) {
	t.Parallel()
	g, _ := task.New(t.Context())
	g.Go("exploding", func(context.Context) error { panic(io.ErrClosedPipe) })
	err := g.Wait()
	var pe *task.PanicError
	if !errors.As(err, &pe) || pe.Task != "exploding" {
		t.Fatalf("Wait = %v, want a PanicError of the task", err)
	}
	if !strings.Contains(err.Error(), "task_test.go") {
		t.Fatalf("no stack of the panicking code in %q", err)
	}
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal("the panic value is not reachable with errors.Is")
	}
}

func TestGoexitEndsTheGroup(t *testing.T) {
	t.Parallel()
	g, _ := task.New(t.Context())
	g.Go("leaver", func(context.Context) error {
		runtime.Goexit()
		return nil
	})
	g.Go("waiter", func(ctx context.Context) error { <-ctx.Done(); return nil })
	if err := g.Wait(); !errors.Is(err, task.ErrGoexit) {
		t.Fatalf("Wait = %v, want ErrGoexit", err)
	}
}

func TestCanceled(t *testing.T) {
	t.Parallel()
	t.Run("after the parent was cancelled it is a good end", func(t *testing.T) {
		t.Parallel()
		parent, cancel := context.WithCancel(t.Context())
		g, _ := task.New(parent)
		g.Go("waiter", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		cancel()
		if err := g.Wait(); err != nil {
			t.Fatalf("Wait = %v, want nil", err)
		}
	})
	t.Run("while the group runs it is an error", func(t *testing.T) {
		t.Parallel()
		g, _ := task.New(t.Context())
		g.Go("odd", func(context.Context) error { return context.Canceled })
		if err := g.Wait(); !errors.Is(err, context.Canceled) {
			t.Fatalf("Wait = %v, want context.Canceled", err)
		}
	})
}

func TestWaitReleasesTheContext(t *testing.T) {
	t.Parallel()
	g, ctx := task.New(t.Context())
	g.Go("quick", func(context.Context) error { return nil })
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if ctx.Err() == nil {
		t.Fatal("context still alive after Wait")
	}
}

func TestRunRecovers(t *testing.T) {
	t.Parallel()
	err := task.Run(t.Context(), "r", func(context.Context) error { panic("boom") })
	if err == nil || !strings.Contains(err.Error(), "boom") {
		t.Fatalf("Run = %v", err)
	}
	if err := task.Run(t.Context(), "r", func(context.Context) error { return io.EOF }); !errors.Is(err, io.EOF) {
		t.Fatalf("Run = %v, want io.EOF", err)
	}
}

// A panic in a Background task that was not caught would end this test binary.
func TestBackgroundSurvivesPanic(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	task.Background("bg", func() { defer close(done); panic("boom") })
	<-done
	ran := make(chan struct{})
	task.Background("bg2", func() { close(ran) })
	<-ran
}

package failpoint

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
)

// Action is what an armed failpoint does.
type Action struct {
	kind string
	nth  uint64 // 0: at every hit
	wait time.Duration
	fn   func(context.Context) error
}

// Error makes Hit return ErrInjected.
func Error() Action { return Action{kind: "error"} }

// Panic makes Hit panic.
func Panic() Action { return Action{kind: "panic"} }

// Sleep makes Hit wait and then pass, which widens the gap between what stands before the failpoint and behind it.
func Sleep(d time.Duration) Action { return Action{kind: "sleep", wait: d} }

// Call makes Hit run fn and return its error; for tests in process, which can block in it. ctx is the one
// given to HitCtx.
func Call(fn func(ctx context.Context) error) Action { return Action{kind: "call", fn: fn} }

// At limits the action to the nth hit, counted from 1; 0 means every hit.
func (a Action) At(n uint64) Action {
	a.nth = n
	return a
}

// ParseAction reads "kill", "error", "panic" or "sleep=DURATION", with "@N" behind it for the Nth hit only.
func ParseAction(s string) (Action, error) {
	what, count, limited := strings.Cut(s, "@")
	kind, length, timed := strings.Cut(what, "=")
	switch {
	case timed == (kind == "sleep") && (kind == "kill" || kind == "error" || kind == "panic" || kind == "sleep"):
	default:
		return Action{}, fmt.Errorf("unknown action %q: want kill, error, panic or sleep=DURATION", what)
	}
	a := Action{kind: kind}
	if timed {
		var err error
		if a.wait, err = time.ParseDuration(length); err != nil {
			return Action{}, fmt.Errorf("action %q: %w", s, err)
		}
	}
	if !limited {
		return a, nil
	}
	n, err := strconv.ParseUint(count, 10, 64)
	if err != nil || n == 0 {
		return Action{}, fmt.Errorf("action %q: want a whole number from 1 after the @", s)
	}
	return a.At(n), nil
}

func (a Action) due(hit uint64) bool {
	return a.kind != "" && (a.nth == 0 || a.nth == hit)
}

func (a Action) fire(ctx context.Context, name string) error {
	injected := fmt.Errorf("failpoint %s: %w", name, ErrInjected)
	switch a.kind {
	case "kill":
		die()
	case "panic":
		panic(injected)
	case "call":
		return a.fn(ctx)
	case "sleep":
		return pause(ctx, a.wait)
	}
	return injected
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-clock.Real().After(d):
		return nil
	}
}

// die never returns: not even the instructions between the signal and its delivery may go on.
func die() {
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGKILL); err != nil {
		panic("failpoint: kill the own process: " + err.Error())
	}
	select {}
}

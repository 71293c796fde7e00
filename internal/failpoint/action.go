package failpoint

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
)

// Action is what an armed failpoint does.
type Action struct {
	kind string
	nth  uint64 // 0: at every hit
	fn   func(context.Context) error
}

// Kill sends SIGKILL to the own process at the first hit.
func Kill() Action { return Action{kind: "kill"} }

// Error makes Hit return ErrInjected.
func Error() Action { return Action{kind: "error"} }

// Panic makes Hit panic.
func Panic() Action { return Action{kind: "panic"} }

// Call makes Hit run fn and return its error; for tests in process, which can block in it. ctx is the one
// given to HitCtx.
func Call(fn func(ctx context.Context) error) Action { return Action{kind: "call", fn: fn} }

// At limits the action to the nth hit, counted from 1; 0 means every hit.
func (a Action) At(n uint64) Action {
	a.nth = n
	return a
}

// ParseAction reads "kill", "error" or "panic", with "@N" behind it for the Nth hit only.
func ParseAction(s string) (Action, error) {
	kind, count, limited := strings.Cut(s, "@")
	switch kind {
	case "kill", "error", "panic":
	default:
		return Action{}, fmt.Errorf("unknown action %q: want kill, error or panic", kind)
	}
	a := Action{kind: kind}
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
	}
	return injected
}

// die never returns: not even the instructions between the signal and its delivery may go on.
func die() {
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGKILL); err != nil {
		panic("failpoint: kill the own process: " + err.Error())
	}
	select {}
}

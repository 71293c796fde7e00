package harness

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ingot-metal/ingot/internal/failpoint"
)

// ControllerFaults makes controllers of this process fail at failpoints. Their handlers run under contexts that a test
// cannot reach, so one set serves the whole process. An ordered fault strikes the next handler that passes. Tests that
// use it must not run beside others.
type ControllerFaults struct {
	mu      sync.Mutex
	ordered map[string]int
	struck  map[string]int
}

// ControllerPoints are the failpoints of the controller that an operation can pass.
func ControllerPoints() []string { return points("store.", "engine.") }

// AgentPoints are the failpoints of the agent that a command can pass.
func AgentPoints() []string {
	return slices.DeleteFunc(points("agent."), func(n string) bool {
		return strings.Contains(n, "enroll") || strings.Contains(n, "rotate")
	})
}

func points(prefixes ...string) []string {
	return slices.DeleteFunc(failpoint.Names(), func(n string) bool {
		return !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(n, p) })
	})
}

// ArmControllers arms every failpoint of the controller until the test ends.
func ArmControllers(t testing.TB) *ControllerFaults {
	f := &ControllerFaults{ordered: map[string]int{}, struck: map[string]int{}}
	for _, name := range slices.Concat(ControllerPoints(), points("enroll.")) {
		t.Cleanup(failpoint.Set(name, failpoint.Call(func(context.Context) error { return f.pass(name) })))
	}
	return f
}

// Order makes the next pass of the failpoint fail.
func (f *ControllerFaults) Order(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ordered[name]++
}

func (f *ControllerFaults) pass(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ordered[name] == 0 {
		return nil
	}
	f.ordered[name]--
	f.struck[name]++
	return fmt.Errorf("failpoint %s: %w", name, failpoint.ErrInjected)
}

// Struck returns how often each failpoint has failed.
func (f *ControllerFaults) Struck() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.struck)
}

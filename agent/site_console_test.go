package agent

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// consoleRig has consoles that say what a test wants.
type consoleRig struct {
	*consoles
	mu       sync.Mutex
	kept     map[string]string
	captures map[string]int
	ended    map[string]int
}

func newConsoleRig(
	t *testing.T, speak func(ctx context.Context, target provider.Target, emit func(string)) error,
) *consoleRig {
	t.Helper()
	r := &consoleRig{kept: map[string]string{}, captures: map[string]int{}, ended: map[string]int{}}
	r.consoles = newConsoles(&consoles{
		clock: clock.Real(), log: slog.New(slog.DiscardHandler),
		capture: func(ctx context.Context, target provider.Target, emit func(string)) error {
			r.count(r.captures, target.MachineID)
			defer r.count(r.ended, target.MachineID)
			return speak(ctx, target, emit)
		},
		keep: func(_ context.Context, e *fleetv1.Event) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if l := e.GetLog(); l.GetStream() == "console" && l.GetCommandId() == "" {
				r.kept[l.GetOperationId()] += string(l.GetData())
			}
			return nil
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	task.Background("consoles", func() { done <- r.run(ctx) })
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("consoles ended with %v", err)
		}
	})
	return r
}

func (r *consoleRig) count(m map[string]int, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m[id]++
}

func (r *consoleRig) log(operation string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept[operation]
}

func siteDocument(mode string) *fleetv1.SiteDocument {
	return &fleetv1.SiteDocument{
		Assignments: []*fleetv1.BootAssignment{
			{MachineId: "m-1", Mode: mode, OperationId: "op-1"}, {MachineId: "m-2", Mode: "disk"},
			{MachineId: "m-3", Mode: "installer", OperationId: "op-3"},
		},
		Bmcs: []*fleetv1.BMCTarget{{MachineId: "m-1", Endpoint: "192.0.2.1"}, {MachineId: "m-2", Endpoint: "192.0.2.2"}},
	}
}

// TestConsoleOfAnInstallation: the console output of a machine during its installation is kept for its operation. Those
// of other machines are not captured, and an unchanged document attaches no console twice.
func TestConsoleOfAnInstallation(t *testing.T) {
	r := newConsoleRig(t, func(ctx context.Context, target provider.Target, emit func(string)) error {
		emit("hello from " + target.MachineID)
		<-ctx.Done()
		return nil
	})
	r.follow(siteDocument("installer"))
	testkit.Eventually(t, 20*time.Second, func() bool { return r.log("op-1") == "hello from m-1\n" }, "nothing was kept")
	r.follow(siteDocument("installer"))
	r.follow(siteDocument("disk"))
	testkit.Eventually(t, 20*time.Second, func() bool {
		r.consoles.mu.Lock()
		defer r.consoles.mu.Unlock()
		return r.running["op-1"].over
	}, "the end of the assignment was not noticed")
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.captures) != 1 || r.captures["m-1"] != 1 || r.ended["m-1"] != 0 || r.kept["op-3"] != "" {
		t.Errorf("attached %v, ended %v, kept %v", r.captures, r.ended, r.kept)
	}
}

// TestConsoleThatFloods is cut off, and one that is not there is not asked again.
func TestConsoleThatFloods(t *testing.T) {
	r := newConsoleRig(t, func(ctx context.Context, _ provider.Target, emit func(string)) error {
		for ctx.Err() == nil {
			emit(strings.Repeat("x", 4000))
		}
		return nil
	})
	r.follow(siteDocument("installer"))
	testkit.Eventually(t, 20*time.Second, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.ended["m-1"] == 1 && len(r.kept["op-1"]) >= consoleMax // the last piece is kept beside the end
	}, "the flood goes on")
	if n := len(r.log("op-1")); n > consoleMax+3*consoleEvent {
		t.Errorf("%d bytes were kept", n)
	}
	none := newConsoleRig(t, func(context.Context, provider.Target, func(string)) error {
		return fmt.Errorf("no console: %w", effect.ErrUnsupported)
	})
	none.hold(t.Context(), "op-1", provider.Target{MachineID: "m-1"})
	if none.captures["m-1"] != 1 {
		t.Errorf("asked %d times", none.captures["m-1"])
	}
}

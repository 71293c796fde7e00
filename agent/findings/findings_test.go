package findings_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/findings"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

// host shows a state, and has a memory on a disk.
type host struct {
	t      *testing.T
	memory *state.Store

	mu     sync.Mutex
	shows  string
	flash  string // the state that is shown once, instead
	fails  error
	failed int
	called int // how often a report was followed by the call
}

func newHost(t *testing.T) *host {
	t.Helper()
	s, err := state.Open(t.Context(), state.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return &host{t: t, memory: s}
}

func (h *host) look(context.Context) (findings.State, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := cmp.Or(h.flash, h.shows)
	h.flash = ""
	return findings.State{Name: name, Report: &fleetv1.Report{Kind: "colour", Message: "it is " + name}}, h.fails
}

// becomes changes what the host shows, by lasting states and for a moment.
func (h *host) becomes(shows, flash string, fails error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shows, h.flash, h.fails = shows, flash, fails
}

func (h *host) failure(string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed++
}

func (h *host) reported() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.called++
}

// failures is how many looks have failed.
func (h *host) failures() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}

// start runs an agent, until the function that it returns is called.
func (h *host) start() (stop func()) {
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan struct{})
	w := findings.Watcher{Clock: clock.Real(), Memory: h.memory, Failed: h.failure}
	task.Background("watch", func() {
		defer close(done)
		w.Watch(ctx, findings.Finding{Kind: "colour", Every: time.Minute, Look: h.look, Reported: h.reported})
	})
	return func() {
		cancel()
		<-done
	}
}

// told compares all reports that are in the buffer.
func (h *host) told(want ...string) {
	h.t.Helper()
	events, err := h.memory.Events(h.t.Context(), 0, 100, time.Now())
	if err != nil {
		h.t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		got = append(got, e.GetReport().GetMessage())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(got, want) || h.called != len(want) {
		h.t.Errorf("reported %q, with %d calls, want %q", got, h.called, want)
	}
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestEachChangeIsReportedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		stop := h.start()
		pass(5 * time.Minute)
		h.told() // there is nothing to look at
		h.becomes("red", "", nil)
		pass(5 * time.Minute)
		h.told("it is red")
		h.becomes("red", "green", nil) // under way, and no state that lasts
		pass(5 * time.Minute)
		h.told("it is red")
		stop()

		// An agent that starts again repeats no report, and reports changes from the time in between.
		stop = h.start()
		pass(5 * time.Minute)
		h.told("it is red")
		stop()
		h.becomes("", "", nil)
		stop = h.start()
		pass(5 * time.Minute)
		h.told("it is red", "it is ")

		// What cannot be looked at has not changed.
		h.becomes("green", "", errors.New("no"))
		pass(5 * time.Minute)
		h.told("it is red", "it is ")
		if n := h.failures(); n < 4 {
			t.Errorf("%d looks failed", n)
		}
		h.becomes("green", "", nil)
		pass(5 * time.Minute)
		h.told("it is red", "it is ", "it is green")
		stop()
		if err := h.memory.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A memory that turns out to be an old copy does not know what its original has reported last.
func TestAnOldCopyReportsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		h.becomes("green", "", nil)
		stop := h.start()
		pass(5 * time.Minute)
		stop()
		_, err := h.memory.NewStateID(
			t.Context(),
			time.Now(),
			func(state.Command, string) ([]byte, error) { return nil, nil },
		)
		if err != nil {
			t.Fatal(err)
		}
		stop = h.start()
		pass(5 * time.Minute)
		stop()
		h.told("it is green", "it is green")
		if err := h.memory.Close(); err != nil {
			t.Error(err)
		}
	})
}

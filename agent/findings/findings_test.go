package findings_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
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
	shows  string
	flash  string // what is shown once, instead
	fails  error
	failed int
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
	name := cmp.Or(h.flash, h.shows)
	h.flash = ""
	return findings.State{Name: name, Report: &fleetv1.Report{Kind: "colour", Message: "it is " + name}}, h.fails
}

// start runs an agent, until the function that it returns is called.
func (h *host) start() (stop func()) {
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan struct{})
	w := findings.Watcher{Clock: clock.Real(), Memory: h.memory, Failed: func(string, error) { h.failed++ }}
	task.Background("watch", func() {
		defer close(done)
		w.Watch(ctx, findings.Finding{Kind: "colour", Every: time.Minute, Look: h.look})
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
	if !slices.Equal(got, want) {
		h.t.Errorf("reported %q, want %q", got, want)
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
		h.shows = "red"
		pass(5 * time.Minute)
		h.told("it is red")
		h.flash = "green" // under way, and no state that lasts
		pass(5 * time.Minute)
		h.told("it is red")
		stop()

		// An agent that starts again reports nothing again, and what has changed meanwhile.
		stop = h.start()
		pass(5 * time.Minute)
		h.told("it is red")
		stop()
		h.shows = ""
		stop = h.start()
		pass(5 * time.Minute)
		h.told("it is red", "it is ")

		// What cannot be looked at has not changed.
		h.shows, h.fails = "green", errors.New("no")
		pass(5 * time.Minute)
		h.told("it is red", "it is ")
		if h.failed < 4 {
			t.Errorf("%d looks failed", h.failed)
		}
		h.fails = nil
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
		h.shows = "green"
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

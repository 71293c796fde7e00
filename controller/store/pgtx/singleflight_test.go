package pgtx

import (
	"context"
	"errors"
	"testing"

	"github.com/ingot-metal/ingot/internal/task"
)

func TestARepeatWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	var r SingleFlight
	a := LockKey{MachineID: "m-1", RequestID: "r-1"}
	end, repeat, err := r.Begin(t.Context(), a)
	if repeat || err != nil {
		t.Fatalf("the first: repeat %v, error %v", repeat, err)
	}
	other, repeat, err := r.Begin(t.Context(), LockKey{MachineID: "m-1", RequestID: "r-2"})
	if repeat || err != nil {
		t.Fatalf("another request: repeat %v, error %v", repeat, err)
	}
	other()
	impatient, stop := context.WithCancel(t.Context())
	stop()
	if _, _, err := r.Begin(impatient, a); !errors.Is(err, context.Canceled) {
		t.Errorf("who has given up: %v", err)
	}
	ended := make(chan bool, 1)
	task.Background("repeat", func() {
		done, repeat, err := r.Begin(t.Context(), a)
		if err == nil {
			done()
		}
		ended <- repeat && err == nil
	})
	end()
	// Whether it came before the end or after it, it is answered; before, as a repeat.
	<-ended
	if len(r.under) != 0 {
		t.Errorf("%d requests are left", len(r.under))
	}
}

package pgtx

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

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
	end()
	if len(r.under) != 0 {
		t.Errorf("%d requests are left", len(r.under))
	}
}

// A request that came while the same was answered is a repeat, once the first has ended and not before.
func TestARepeatIsOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r SingleFlight
		a := LockKey{MachineID: "m-1", RequestID: "r-1"}
		end, _, err := r.Begin(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		over, isRepeat := false, false
		task.Background("repeat", func() {
			done, repeat, err := r.Begin(t.Context(), a)
			if over, isRepeat = true, repeat && err == nil; err == nil {
				done()
			}
		})
		synctest.Wait()
		if over {
			t.Error("it has not waited for the first")
		}
		end()
		synctest.Wait()
		if !over || !isRepeat {
			t.Errorf("it has ended: %t, as a repeat: %t", over, isRepeat)
		}
	})
}

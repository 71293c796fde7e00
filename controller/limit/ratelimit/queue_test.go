package ratelimit

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// wait takes a turn in the background, after those who wait already.
func wait(t *testing.T, turns *Queue, limit time.Duration) <-chan bool {
	t.Helper()
	waiting := func() int {
		turns.mu.Lock()
		defer turns.mu.Unlock()
		return turns.waiting.Len()
	}
	n, got := waiting(), make(chan bool, 1)
	task.Background("wait for a turn", func() { got <- turns.acquire(limit, nil) })
	testkit.Eventually(t, 10*time.Second, func() bool { return waiting() == n+1 }, "it waits")
	return got
}

func TestTheNewestHasTheNextTurn(t *testing.T) {
	t.Parallel()
	turns := &Queue{free: 1}
	if !turns.acquire(0, nil) {
		t.Fatal("the first has no place")
	}
	oldest, middle, newest := wait(t, turns, time.Minute), wait(t, turns, time.Minute), wait(t, turns, time.Minute)
	for _, next := range []<-chan bool{newest, middle, oldest} {
		turns.release()
		if !<-next {
			t.Fatal("no turn")
		}
	}
	if turns.acquire(0, nil) {
		t.Error("two have the one place")
	}
}

func TestATurnThatDoesNotComeIsGivenUp(t *testing.T) {
	t.Parallel()
	turns := &Queue{free: 1}
	if !turns.acquire(0, nil) || turns.acquire(time.Millisecond, nil) {
		t.Fatal("not one place")
	}
	if turns.waiting.Len() != 0 {
		t.Error("it still waits")
	}
	turns.release()
	if !turns.acquire(0, nil) {
		t.Error("its place is lost")
	}
}

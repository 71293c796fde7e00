package door

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// wait takes a turn in the background, after those who wait already.
func wait(t *testing.T, turns *Turns, limit time.Duration) <-chan bool {
	t.Helper()
	waiting := func() int {
		turns.mu.Lock()
		defer turns.mu.Unlock()
		return turns.waiting.Len()
	}
	n, got := waiting(), make(chan bool, 1)
	task.Background("wait for a turn", func() { got <- turns.take(limit) })
	testkit.Eventually(t, 10*time.Second, func() bool { return waiting() == n+1 }, "it waits")
	return got
}

func TestTheNewestHasTheNextTurn(t *testing.T) {
	t.Parallel()
	turns := &Turns{free: 1}
	if !turns.take(0) {
		t.Fatal("the first has no place")
	}
	oldest, middle, newest := wait(t, turns, time.Minute), wait(t, turns, time.Minute), wait(t, turns, time.Minute)
	for _, next := range []<-chan bool{newest, middle, oldest} {
		turns.give()
		if !<-next {
			t.Fatal("no turn")
		}
	}
	if turns.take(0) {
		t.Error("two have the one place")
	}
}

func TestATurnThatDoesNotComeIsGivenUp(t *testing.T) {
	t.Parallel()
	turns := &Turns{free: 1}
	if !turns.take(0) || turns.take(time.Millisecond) {
		t.Fatal("not one place")
	}
	if turns.waiting.Len() != 0 {
		t.Error("it still waits")
	}
	turns.give()
	if !turns.take(0) {
		t.Error("its place is lost")
	}
}

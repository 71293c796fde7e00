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

func TestTheNextTurn(t *testing.T) {
	t.Parallel()
	for _, inOrder := range []bool{false, true} {
		turns := &Queue{free: 1, inOrder: inOrder}
		if !turns.acquire(0, nil) {
			t.Fatal("the first has no place")
		}
		oldest, middle, newest := wait(t, turns, time.Minute), wait(t, turns, time.Minute), wait(t, turns, time.Minute)
		want := []<-chan bool{newest, middle, oldest}
		if inOrder {
			want = []<-chan bool{oldest, middle, newest}
		}
		for i, next := range want {
			turns.release()
			select {
			case got := <-next:
				if !got {
					t.Fatal("no turn")
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("in order %v: turn %d went to another connection", inOrder, i)
			}
		}
		if turns.acquire(0, nil) {
			t.Error("two have the one place")
		}
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

package ratelimit

import (
	"net/netip"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// waitingFor counts the connections that wait for a turn.
func waitingFor(q *Queue) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lines {
		n += l.waiting.Len()
	}
	return n
}

// wait takes a turn in the background, after those who wait already.
func wait(t *testing.T, turns *Queue, address string) <-chan bool {
	t.Helper()
	n, got := waitingFor(turns), make(chan bool, 1)
	task.Background("wait for a turn", func() {
		got <- turns.acquire(netip.MustParseAddr(address), time.Minute, nil)
	})
	testkit.Eventually(t, 10*time.Second, func() bool { return waitingFor(turns) == n+1 }, "it waits")
	return got
}

// TestTheNextTurn lets five connections of two addresses wait for one turn.
func TestTheNextTurn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		turns *Queue
		want  []int
	}{
		"the newest first":          {NewQueue(1), []int{4, 3, 2, 1, 0}},
		"one address after another": {NewFairQueue(1), []int{0, 3, 1, 4, 2}},
	} {
		if !c.turns.acquire(netip.Addr{}, 0, nil) {
			t.Fatal("the first has no turn")
		}
		var all []<-chan bool
		for _, address := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.2"} {
			all = append(all, wait(t, c.turns, address))
		}
		for i, next := range c.want {
			c.turns.release()
			select {
			case got := <-all[next]:
				if !got {
					t.Fatalf("%s: no turn", name)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s: turn %d went to another connection than %d", name, i, next)
			}
		}
		if c.turns.acquire(netip.Addr{}, 0, nil) || len(c.turns.lines) != 0 {
			t.Errorf("%s: two have the one turn, or a line is left", name)
		}
	}
}

func TestATurnThatDoesNotComeIsGivenUp(t *testing.T) {
	t.Parallel()
	turns := NewQueue(1)
	if !turns.acquire(netip.Addr{}, 0, nil) || turns.acquire(netip.Addr{}, time.Millisecond, nil) {
		t.Fatal("not one place")
	}
	if waitingFor(turns) != 0 {
		t.Error("it still waits")
	}
	turns.release()
	if !turns.acquire(netip.Addr{}, 0, nil) {
		t.Error("its place is lost")
	}
}

package engine

import (
	"fmt"
	"testing"
	"time"
)

func TestDueAgainAtGrowingAges(t *testing.T) {
	var due []int
	for n := range 40 {
		if dueAgain(time.Duration(n)*time.Second+300*time.Millisecond, time.Second) {
			due = append(due, n)
		}
	}
	if fmt.Sprint(due) != "[1 2 4 8 16 32]" {
		t.Errorf("due at ages of %v seconds", due)
	}
	if dueAgain(-time.Second, time.Second) {
		t.Error("a command of the future is due")
	}
}

func TestOutboxIsBoundedAndKeepsOrder(t *testing.T) {
	o := outbox{waiting: newSignal()}
	for i := range outboxLimit + 10 {
		o.add(fmt.Sprint("a-", i), fmt.Sprint("s:", i))
	}
	select {
	case <-o.waiting:
	default:
		t.Error("nobody is told")
	}
	n := 0
	for more := true; more; {
		var agents, items []string
		agents, items, more = o.take(handOverPage)
		for i := range items {
			if agents[i] != fmt.Sprint("a-", n) || items[i] != fmt.Sprint("s:", n) {
				t.Fatalf("%s %s at %d", agents[i], items[i], n)
			}
			n++
		}
		if len(items) > handOverPage {
			t.Fatalf("%d at once", len(items))
		}
	}
	if n != outboxLimit {
		t.Errorf("%d of %d kept", n, outboxLimit)
	}
	if _, items, more := o.take(1); len(items) != 0 || more {
		t.Error("an empty one gives something")
	}
}

// A message to another controller holds what PostgreSQL takes.
func TestOnePageFitsIntoOneNotification(t *testing.T) {
	const longest = len("s:cmd-") + 26 + 1
	if n := handOverPage * longest; n >= 8000 {
		t.Errorf("%d bytes", n)
	}
}

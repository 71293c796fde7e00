package fairqueue_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/limit/fairqueue"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// plenty bounds nothing that a test does not speak of.
func plenty() fairqueue.Limits {
	many := fairqueue.Rate{PerSecond: 1_000_000, Burst: 1_000_000}
	return fairqueue.Limits{
		Read: many, Write: many, ClientStreams: 1000, Streams: 1000, Running: 1000, Lists: 1000, ClientWaiting: 1000,
		Waiting: 1000, WaitingBytes: 1 << 30,
	}
}

func ready(t *fairqueue.Ticket) bool {
	select {
	case <-t.Ready():
		return true
	default:
		return false
	}
}

func enter(t *testing.T, b *fairqueue.Ledger, client string) *fairqueue.Ticket {
	t.Helper()
	ticket, no := b.Enter(client, fairqueue.Read, 1, now)
	if no != nil {
		t.Fatalf("%s is refused: %+v", client, no)
	}
	return ticket
}

func TestRates(t *testing.T) {
	l := plenty()
	l.Read, l.Write = fairqueue.Rate{PerSecond: 10, Burst: 3}, fairqueue.Rate{PerSecond: 1, Burst: 1}
	b := fairqueue.New(l)
	call := func(client string, k fairqueue.Kind, at time.Time) *fairqueue.Refusal {
		ticket, no := b.Enter(client, k, 1, at)
		if no == nil {
			b.Leave(ticket)
		}
		return no
	}
	for range 3 {
		if no := call("a", fairqueue.Read, now); no != nil {
			t.Fatalf("within the burst: %+v", no)
		}
	}
	no := call("a", fairqueue.Read, now)
	if no == nil || no.Why != fairqueue.ReadRate || no.After != 100*time.Millisecond {
		t.Fatalf("after the burst: %+v", no)
	}
	if no := call("a", fairqueue.Read, now.Add(no.After-time.Millisecond)); no == nil {
		t.Error("it may be tried again sooner than was said")
	}
	if no := call("a", fairqueue.Read, now.Add(no.After)); no != nil {
		t.Errorf("when it was said: %+v", no)
	}
	if no := call("a", fairqueue.Write, now); no != nil {
		t.Errorf("reads count as writes: %+v", no)
	}
	if no := call("a", fairqueue.Write, now); no == nil || no.Why != fairqueue.WriteRate || no.After != time.Second {
		t.Errorf("a second write: %+v", no)
	}
	if no := call("b", fairqueue.Read, now); no != nil {
		t.Errorf("another client: %+v", no)
	}
	// A clock that goes back neither adds nor removes calls.
	if no := call("a", fairqueue.Read, now.Add(-time.Hour)); no == nil {
		t.Error("a clock that went back has filled the bucket")
	}
	// The bucket holds no more than the burst.
	later := now.Add(time.Hour)
	for i := range 4 {
		if no := call("a", fairqueue.Read, later); (no != nil) != (i == 3) {
			t.Errorf("call %d an hour later: %+v", i, no)
		}
	}
}

// TestAFloodStarvesNobody: one client has its whole share and hundreds of its calls wait. Another one is served at
// once, and the next place after that is its own too.
func TestAFloodStarvesNobody(t *testing.T) {
	l := plenty()
	l.Running = 4 // of which one client gets three
	b := fairqueue.New(l)
	var flood []*fairqueue.Ticket
	for range 500 {
		flood = append(flood, enter(t, b, "flood"))
	}
	if b.Running() != 3 || b.Waiting() != 497 {
		t.Fatalf("%d run, %d wait", b.Running(), b.Waiting())
	}
	first, second, third := enter(t, b, "polite"), enter(t, b, "polite"), enter(t, b, "third")
	if !ready(first) || ready(second) || ready(third) {
		t.Fatalf("polite's first %t, its second %t, third's %t", ready(first), ready(second), ready(third))
	}
	b.Leave(flood[0])
	if !ready(third) {
		t.Error("a client with nothing under way has to wait for one that has some")
	}
	b.Leave(flood[1]) // all have one now; the flood has waited longest
	b.Leave(flood[2])
	if !ready(second) {
		t.Error("who was served last is served again")
	}
	b.Leave(first)
	b.Leave(second)
	b.Leave(third)
	for i, ticket := range flood[3:6] {
		if !ready(ticket) {
			t.Errorf("call %d of the flood waits while there is a place", i)
		}
	}
	if ready(flood[6]) {
		t.Error("one client has taken every place")
	}
}

// TestListsLeaveRoom: however many lists a client asks for, other calls find a place, and another client's list does
// too.
func TestListsLeaveRoom(t *testing.T) {
	l := plenty()
	l.Lists = 4
	b := fairqueue.New(l)
	list := func(client string) *fairqueue.Ticket {
		t.Helper()
		ticket, no := b.Enter(client, fairqueue.List, 1, now)
		if no != nil {
			t.Fatalf("%s is refused: %+v", client, no)
		}
		return ticket
	}
	var flood []*fairqueue.Ticket
	for range 10 {
		flood = append(flood, list("flood"))
	}
	if b.Running() != 3 || !ready(list("polite")) || ready(list("polite")) || !ready(enter(t, b, "third")) {
		t.Errorf("%d run, %d wait", b.Running(), b.Waiting())
	}
	if b.Leave(flood[0]); ready(flood[3]) || b.Waiting() != 7 {
		t.Error("who has lists under way is served before one that has fewer")
	}
}

func TestQueuesAreBounded(t *testing.T) {
	l := plenty()
	l.Running, l.ClientWaiting, l.Waiting, l.WaitingBytes = 1, 2, 3, 100
	b := fairqueue.New(l)
	running := enter(t, b, "a")
	enter(t, b, "a")
	enter(t, b, "a")
	refused := func(client string, size int, want fairqueue.Cause) {
		t.Helper()
		if _, no := b.Enter(client, fairqueue.Read, size, now); no == nil || no.Why != want {
			t.Errorf("%s with %d bytes: %+v, want %s", client, size, no, want)
		}
	}
	refused("a", 1, fairqueue.ClientQueue)
	refused("b", 99, fairqueue.Queue)
	last := enter(t, b, "b")
	refused("c", 1, fairqueue.Queue)
	b.Leave(last) // stops waiting
	if ready(last) || b.Waiting() != 2 {
		t.Errorf("who gave up was let in: %t; %d wait", ready(last), b.Waiting())
	}
	b.Leave(running)
	if b.Running() != 1 || b.Waiting() != 1 {
		t.Errorf("%d run, %d wait", b.Running(), b.Waiting())
	}
}

func TestStreams(t *testing.T) {
	l := plenty()
	l.ClientStreams, l.Streams = 2, 3
	b := fairqueue.New(l)
	open := func(client string) fairqueue.Cause {
		if no := b.OpenStream(client, fairqueue.Read, now); no != nil {
			return no.Why
		}
		return ""
	}
	got := fmt.Sprint(open("a"), open("a"), open("a"), open("b"), open("b"), open("c"))
	if want := fmt.Sprint("", "", fairqueue.Streams, "", fairqueue.AllStreams, fairqueue.AllStreams); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	b.CloseStream("a")
	if why := open("c"); why != "" {
		t.Errorf("after one was closed: %s", why)
	}
}

// TestWhateverHappens draws calls that come, end and give up, and holds the sums against a count of its own.
func TestWhateverHappens(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 7))
		l := plenty()
		l.Running, l.Lists, l.ClientWaiting, l.Waiting = 1+rng.IntN(6), 1+rng.IntN(3), 1+rng.IntN(5), 1+rng.IntN(10)
		share, listShare := max(1, l.Running*3/4), max(1, l.Lists*3/4)
		b := fairqueue.New(l)
		type call struct {
			client string
			kind   fairqueue.Kind
			ticket *fairqueue.Ticket
		}
		var open []call
		for step := range 400 {
			if client := fmt.Sprint("c", rng.IntN(4)); rng.IntN(2) == 0 {
				kind := []fairqueue.Kind{fairqueue.Read, fairqueue.List}[rng.IntN(2)]
				if ticket, no := b.Enter(client, kind, 1, now); no == nil {
					open = append(open, call{client, kind, ticket})
				}
			} else if len(open) > 0 {
				i := rng.IntN(len(open))
				b.Leave(open[i].ticket)
				open = append(open[:i], open[i+1:]...)
			}
			running, lists, waits := map[string]int{}, map[string]int{}, map[string]fairqueue.Kind{}
			total, listing, waiting := 0, 0, 0
			for _, c := range open { // in the order of their coming
				if ready(c.ticket) {
					running[c.client]++
					total++
					if c.kind == fairqueue.List {
						lists[c.client]++
						listing++
					}
					if _, waits := waits[c.client]; waits {
						t.Fatalf("seed %d step %d: a call of %s has overtaken another", seed, step, c.client)
					}
				} else {
					if _, longer := waits[c.client]; !longer {
						waits[c.client] = c.kind
					}
					waiting++
				}
			}
			if total != b.Running() || waiting != b.Waiting() || total > l.Running || listing > l.Lists || waiting > l.Waiting {
				t.Fatalf("seed %d step %d: %d run and %d wait, the book says %d and %d of %+v", seed, step, total, waiting,
					b.Running(), b.Waiting(), l)
			}
			for client, kind := range waits {
				if total < l.Running && running[client] < share &&
					(kind != fairqueue.List || listing < l.Lists && lists[client] < listShare) {
					t.Fatalf("seed %d step %d: %s waits while there is a place", seed, step, client)
				}
			}
			for client, n := range running {
				if n > share || lists[client] > listShare {
					t.Fatalf("seed %d step %d: %s has %d places, %d of them for lists, of %+v", seed, step, client, n, lists[client],
						l)
				}
			}
		}
	}
}

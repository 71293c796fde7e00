package ids

import (
	"encoding/base64"
	"strings"
	"sync"
	"testing"

	"github.com/oklog/ulid/v2"
)

func TestNewIsValidOfItsKindOnly(t *testing.T) {
	t.Parallel()
	all := []string{Operation, Command, Machine, Agent, Plan, Session, Token, State, Controller, Workflow}
	for _, p := range all {
		id := New(p)
		for _, q := range all {
			if Valid(q, id) != (p == q) {
				t.Errorf("Valid(%q, %q) = %v", q, id, Valid(q, id))
			}
		}
	}
}

func TestValidRefuses(t *testing.T) {
	t.Parallel()
	good := New(Operation)
	for name, s := range map[string]string{
		"empty":          "",
		"prefix only":    "op-",
		"no dash":        strings.Replace(good, "-", "", 1),
		"upper case":     "op-" + strings.ToUpper(good[3:]),
		"short":          good[:len(good)-1],
		"long":           good + "0",
		"letter u":       good[:len(good)-1] + "u",
		"too big":        "op-8" + good[4:],
		"trailing space": good[:len(good)-1] + " ",
		"non-ASCII":      good[:len(good)-2] + "é",
	} {
		if Valid(Operation, s) {
			t.Errorf("%s: %q passed", name, s)
		}
	}
}

func TestConcurrentIDsAreUniqueAndSorted(t *testing.T) {
	t.Parallel()
	const workers, each = 8, 2000
	got := make([][]string, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for range each {
				got[w] = append(got[w], New(Command))
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, list := range got {
		for i, id := range list {
			if seen[id] {
				t.Fatalf("%s was made twice", id)
			}
			seen[id] = true
			if i > 0 && list[i-1] >= id {
				t.Fatalf("%s came before %s", list[i-1], id)
			}
		}
	}
}

func TestTimePart(t *testing.T) {
	t.Parallel()
	// The ULID specification's example: 1469918176385 ms encodes as 01ARYZ6S41.
	var g generator
	if got := g.next(1469918176385); !strings.HasPrefix(got, "01aryz6s41") {
		t.Fatalf("encoded %s", got)
	}
}

func TestClockRunningBackKeepsOrder(t *testing.T) {
	t.Parallel()
	var g generator
	now := ulid.Now()
	a, b, c := g.next(now), g.next(now-5000), g.next(now)
	if a >= b || b >= c {
		t.Fatalf("order lost: %s %s %s", a, b, c)
	}
}

// ones is a source of random bytes whose every bit is set, so that the next number overflows.
type ones struct{}

func (ones) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 0xff
	}
	return len(b), nil
}

func TestAFullMillisecondGoesOnInTheNext(t *testing.T) {
	t.Parallel()
	g := generator{entropy: ulid.Monotonic(ones{}, 1)}
	var last string
	for range 3 {
		id := g.next(1469918176385)
		if id <= last {
			t.Fatalf("%s after %s", id, last)
		}
		last = id
	}
	if !strings.HasPrefix(last, "01aryz6s4") {
		t.Errorf("made %s", last)
	}
}

func TestSecret(t *testing.T) {
	t.Parallel()
	a, b := Secret(32), Secret(32)
	raw, err := base64.RawURLEncoding.DecodeString(a)
	if err != nil || len(raw) != 32 || a == b {
		t.Fatalf("secrets %q and %q: %v", a, b, err)
	}
}

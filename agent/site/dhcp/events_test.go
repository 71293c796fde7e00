package dhcp

import (
	"fmt"
	"testing"
	"time"
)

func TestLimiter(t *testing.T) {
	t.Parallel()
	l := newLimiter()
	if !l.allow("a", t0) || l.allow("a", t0.Add(59*time.Second)) || !l.allow("a", t0.Add(time.Minute)) {
		t.Error("one thing does not pass once a minute")
	}
	if !l.allow("a", t0.Add(-time.Hour)) {
		t.Error("a clock that was set back silences for ever")
	}
	l = newLimiter()
	passed := 0
	for i := range 100_000 { // ten seconds of a flood of different things
		if l.allow(fmt.Sprint(i), t0.Add(time.Duration(i)*100*time.Microsecond)) {
			passed++
		}
	}
	if want := burst + 10*perSecond; passed < want-1 || passed > want+1 {
		t.Errorf("%d passed in ten seconds, want %d", passed, want)
	}
	for i := range 10 * remembered {
		l.allow(fmt.Sprint("later", i), t0.Add(time.Duration(i)*50*time.Millisecond))
		if len(l.last) > remembered {
			t.Fatalf("%d things are remembered", len(l.last))
		}
	}
}

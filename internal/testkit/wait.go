package testkit

import (
	"fmt"
	"testing"
	"time"
)

// Patience is how long a test waits at least before it fails for what did not happen: on a machine that does much else
// a second's work takes a minute. A time that a document promises is held by a test with a limit of its own.
const Patience = time.Minute

// Eventually polls cond until it is true, and fails the test after timeout, which counts as Patience where it is
// shorter. It is for what cannot be waited for by a channel or a callback. msg and args name what did not happen.
func Eventually(t testing.TB, timeout time.Duration, cond func() bool, msg string, args ...any) {
	t.Helper()
	timeout = max(timeout, Patience)
	if !poll(timeout, cond) {
		t.Fatalf("after %v: %s", timeout, fmt.Sprintf(msg, args...))
	}
}

// poll asks at once, then at growing intervals, and once more at the end.
func poll(timeout time.Duration, cond func() bool) bool {
	deadline := time.Now().Add(timeout)
	for pause := time.Millisecond; !cond(); pause = min(2*pause, 50*time.Millisecond) {
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		<-time.After(min(pause, left))
	}
	return true
}

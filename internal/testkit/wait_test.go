package testkit

import (
	"strings"
	"testing"
	"time"
)

func TestPoll(t *testing.T) {
	asked := 0
	if !poll(time.Minute, func() bool { asked++; return asked == 3 }) {
		t.Error("gave up on a condition that came true")
	}
	asked = 0
	if poll(0, func() bool { asked++; return false }) || asked != 1 {
		t.Errorf("asked %d times without any time", asked)
	}
	if poll(5*time.Millisecond, func() bool { return false }) {
		t.Error("a condition that never came true did")
	}
}

func TestLoggerIsSilentAfterTheTest(t *testing.T) {
	var log = Logger(t)
	t.Run("inner", func(t *testing.T) { log = Logger(t) })
	log.Info("too late") // testing panics on t.Log here
}

func TestBuffer(t *testing.T) {
	var b Buffer
	done := make(chan bool)
	for range 4 {
		go func() {
			for range 100 {
				if _, err := b.Write([]byte("line\n")); err != nil {
					t.Error(err)
				}
			}
			done <- true
		}()
	}
	for range 4 {
		<-done
	}
	if got := strings.Count(b.String(), "line\n"); got != 400 {
		t.Errorf("%d lines", got)
	}
}

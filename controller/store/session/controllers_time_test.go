package session_test

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// The time goes on within a transaction and between two questions, and is about ours: the server is on this machine.
func TestTheDatabaseTellsTheTime(t *testing.T) {
	s := storetest.New(t)
	before := time.Now().Add(-time.Second)
	first, err := s.Sessions.Time(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Sessions.Time(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if first.Before(before) || !second.After(first) || second.After(time.Now().Add(time.Second)) {
		t.Errorf("asked after %v, it was %v and then %v", before, first, second)
	}
}

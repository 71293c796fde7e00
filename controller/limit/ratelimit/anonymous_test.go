package ratelimit_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/ingot-metal/ingot/controller/limit/ratelimit"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func from(ctx context.Context, address string) context.Context {
	return peer.NewContext(ctx, &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP(address), Port: 1}})
}

// TestStrangersGiveWayByAddress: where too many calls are under way, the address with the most loses its oldest, and
// the call of another address goes on.
func TestStrangersGiveWayByAddress(t *testing.T) {
	t.Parallel()
	s := ratelimit.NewAnonymousCalls(3, 0)
	other := s.Enter(from(t.Context(), "192.0.2.1"))
	var hostile []context.Context
	for range 5 {
		hostile = append(hostile, s.Enter(from(t.Context(), "192.0.2.2")))
	}
	if other.Err() != nil || s.Len() != 3 {
		t.Errorf("the other address: %v; %d are under way", other.Err(), s.Len())
	}
	for i, call := range hostile {
		if cut := call.Err() != nil; cut != (i < 3) {
			t.Errorf("call %d of the flood: %v", i, call.Err())
		}
	}
}

// TestAReceivedCallGivesWayToNobody: a call whose message has come whole is not cancelled for others.
func TestAReceivedCallGivesWayToNobody(t *testing.T) {
	t.Parallel()
	s := ratelimit.NewAnonymousCalls(1, 0)
	received := s.Enter(from(t.Context(), "192.0.2.1"))
	s.Received(received)
	reading := s.Enter(from(t.Context(), "192.0.2.1"))
	s.Enter(from(t.Context(), "192.0.2.1"))
	if received.Err() != nil || reading.Err() == nil {
		t.Errorf("received: %v, reading: %v", received.Err(), reading.Err())
	}
}

func TestStrangersEndWithTheirCallsAndInTime(t *testing.T) {
	t.Parallel()
	s := ratelimit.NewAnonymousCalls(5, 50*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	s.Enter(from(ctx, "192.0.2.1"))
	late := s.Enter(from(t.Context(), "192.0.2.1"))
	cancel()
	<-late.Done()
	testkit.Eventually(t, soon, func() bool { return s.Len() == 0 }, "calls that have ended count")
}

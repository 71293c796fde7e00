package session_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/session"
	"github.com/ingot-metal/ingot/internal/task"
)

var at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func peer(agent string, epoch int64) session.Peer {
	return session.Peer{AgentID: agent, SessionID: fmt.Sprintf("s-%s-%d", agent, epoch), Fingerprint: "fp-" + agent,
		Hardware: "hw", Epoch: epoch}
}

func open(t *testing.T, agent string, epoch int64) *session.Session {
	t.Helper()
	return session.New(t.Context(), peer(agent, epoch), at)
}

// superseded returns the epoch that a session was superseded by; 0 for none.
func superseded(s *session.Session) int64 {
	m := s.Next()
	return m.GetSuperseded().GetByEpoch()
}

func TestNewerSessionWins(t *testing.T) {
	r := session.NewRegistry()
	one, two := open(t, "a", 1), open(t, "a", 2)
	if old, ok := r.Add(one); old != nil || !ok {
		t.Fatalf("first: %v, %t", old, ok)
	}
	if old, ok := r.Add(two); old != one || !ok || r.Get("a") != two {
		t.Fatalf("second: %v, %t", old, ok)
	}
	if got := superseded(one); got != 2 {
		t.Errorf("the older one was told %d", got)
	}
	if one.CloneSuspect() {
		t.Error("the same hardware is under suspicion")
	}
	if old, ok := r.Add(open(t, "a", 1)); old != nil || ok || r.Get("a") != two {
		t.Error("an older epoch took over")
	}
	if superseded(two) != 0 || two.Context().Err() != nil {
		t.Error("the newer session was disturbed")
	}
	r.Remove(one)
	if r.Get("a") != two || r.Len() != 1 {
		t.Error("the end of the older session removed the newer one")
	}
	r.Remove(two)
	if r.Get("a") != nil || r.Len() != 0 {
		t.Error("still there after its end")
	}
}

func TestOtherHardwareIsSuspect(t *testing.T) {
	r := session.NewRegistry()
	one, p := open(t, "a", 1), peer("a", 2)
	p.Hardware = "other"
	r.Add(one)
	r.Add(session.New(t.Context(), p, at))
	if !one.CloneSuspect() || superseded(one) != 2 || one.Context().Err() != nil {
		t.Error("the older session must stay open to be heard")
	}
}

func TestSlowReaderIsCutOff(t *testing.T) {
	s := open(t, "a", 1)
	sent := 0
	for s.Send(&fleetv1.ControllerMessage{}) {
		if sent++; sent > 100_000 {
			t.Fatal("buffered without bound")
		}
	}
	if sent == 0 || !errors.Is(context.Cause(s.Context()), session.ErrSlow) {
		t.Errorf("%d sent, ended by %v", sent, context.Cause(s.Context()))
	}
	if s.Send(&fleetv1.ControllerMessage{}) {
		t.Error("sent to a session that has ended")
	}
}

func TestReaderThatKeepsUpIsNot(t *testing.T) {
	s := open(t, "a", 1)
	for range 1000 {
		if !s.Send(&fleetv1.ControllerMessage{}) {
			t.Fatal("cut off")
		}
		s.Next()
	}
}

func TestFirstCauseStays(t *testing.T) {
	s := open(t, "a", 1)
	s.Close(session.ErrRevoked)
	s.Close(session.ErrDraining)
	if !errors.Is(context.Cause(s.Context()), session.ErrRevoked) {
		t.Errorf("ended by %v", context.Cause(s.Context()))
	}
}

func TestCloseSome(t *testing.T) {
	r := session.NewRegistry()
	all := map[string]*session.Session{}
	for _, id := range []string{"a", "b", "c"} {
		all[id] = open(t, id, 1)
		r.Add(all[id])
	}
	if n := r.CloseFingerprints([]string{"fp-a", "fp-c", "fp-x"}, session.ErrRevoked); n != 2 {
		t.Errorf("closed %d", n)
	}
	for id, s := range all {
		if ended := s.Context().Err() != nil; ended != (id != "b") {
			t.Errorf("%s ended: %t", id, ended)
		}
	}
	r.CloseAll(session.ErrLeaseLost)
	if !errors.Is(context.Cause(all["b"].Context()), session.ErrLeaseLost) ||
		!errors.Is(context.Cause(all["a"].Context()), session.ErrRevoked) {
		t.Error("wrong causes")
	}
}

func TestBeats(t *testing.T) {
	s := open(t, "a", 1)
	if !s.LastBeat().Equal(at) {
		t.Errorf("first beat %v", s.LastBeat())
	}
	s.Beat(at.Add(time.Minute))
	if !s.LastBeat().Equal(at.Add(time.Minute)) {
		t.Errorf("last beat %v", s.LastBeat())
	}
}

// Of sessions that arrive in any order the one of the highest epoch stays.
func TestManyAtOnce(t *testing.T) {
	r := session.NewRegistry()
	g, ctx := task.New(t.Context())
	for i := range 200 {
		g.Go("session", func(context.Context) error {
			s := session.New(ctx, peer("a", int64(i+1)), at)
			if old, ok := r.Add(s); ok && old != nil && old.Epoch >= s.Epoch {
				return fmt.Errorf("epoch %d took over from %d", s.Epoch, old.Epoch)
			}
			for _, s := range r.All() {
				s.Send(&fleetv1.ControllerMessage{})
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := r.Get("a").Epoch; got != 200 || r.Len() != 1 {
		t.Errorf("epoch %d of %d sessions", got, r.Len())
	}
}

// Everything that is queued is written, once and in order, whether it was queued before there was a stream or comes
// from many.
func TestWhatIsQueuedIsWritten(t *testing.T) {
	t.Parallel()
	s := open(t, "a", 1)
	const early, late = 3, 500
	for i := range early {
		s.Send(drain(i))
	}
	written := make(chan int32, early+late)
	s.Serve(func(m *fleetv1.ControllerMessage) error {
		written <- m.GetDrain().GetSpreadMs()
		return nil
	})
	for i := range early + late {
		if i >= early && !s.Send(drain(i)) {
			t.Fatalf("message %d: %v", i, context.Cause(s.Context()))
		}
		// A pause now and then, in which the writer ends.
		if got := <-written; got != int32(i) {
			t.Fatalf("message %d was written instead of %d", got, i)
		}
	}
}

func TestASessionThatCannotBeWrittenToEnds(t *testing.T) {
	t.Parallel()
	s, broken := open(t, "a", 1), errors.New("broken")
	s.Serve(func(*fleetv1.ControllerMessage) error { return broken })
	s.Send(drain(0))
	<-s.Context().Done()
	if err := context.Cause(s.Context()); !errors.Is(err, broken) {
		t.Errorf("it ended with %v", err)
	}
}

func drain(n int) *fleetv1.ControllerMessage {
	return &fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Drain{Drain: &fleetv1.Drain{SpreadMs: int32(n)}}}
}

func TestASignOfLifeIsStoredOnce(t *testing.T) {
	s := open(t, "a", 1)
	if _, ok := s.Unstored(); ok {
		t.Error("a new session is stored with its first one")
	}
	later := at.Add(time.Second)
	s.Beat(later)
	beat, ok := s.Unstored()
	if !ok || !beat.Equal(later) {
		t.Fatalf("%v, %t", beat, ok)
	}
	s.Beat(later.Add(time.Second))
	s.Stored(beat)
	if beat, ok = s.Unstored(); !ok || !beat.Equal(later.Add(time.Second)) {
		t.Errorf("the one that came meanwhile: %v, %t", beat, ok)
	}
	s.Stored(beat)
	if _, ok := s.Unstored(); ok {
		t.Error("stored, and still to be stored")
	}
}

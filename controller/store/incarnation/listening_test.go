package incarnation_test

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// Controllers that listen without a gap have listened since the first of them. A longer gap begins the time anew, and
// agents then have a while to come back.
func TestAGapBeginsTheListeningAnew(t *testing.T) {
	t.Parallel()
	s, clock := storetest.NewWithClock(t)
	const gap, comeBack = time.Minute, 10 * time.Minute
	listens := func(id string) time.Time {
		t.Helper()
		since, err := s.Incarnations.ExtendListening(t.Context(), id, gap, comeBack)
		if err != nil {
			t.Fatal(err)
		}
		return since
	}
	// near allows for what a test takes: the clock of the database goes on.
	near := func(what string, got, want time.Time) {
		t.Helper()
		if d := got.Sub(want); d < -20*time.Second || d > 20*time.Second {
			t.Errorf("%s: %v, want about %v", what, got, want)
		}
	}
	heard := func() fleet.Listening {
		t.Helper()
		l, err := s.Incarnations.Listening(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first := listens("ctl-1")
	if l := heard(); l != (fleet.Listening{}) {
		t.Errorf("at first: %+v", l)
	}
	clock.Advance(gap / 2)
	if since := listens("ctl-2"); !since.Equal(first) {
		t.Errorf("without a gap: since %v, want %v", since, first)
	}
	if l := heard(); l != (fleet.Listening{}) {
		t.Errorf("without a gap: %+v", l)
	}
	last := clock.Now()
	clock.Advance(2 * gap)
	l := heard()
	near("in the gap, away since", l.AwaySince, last)
	near("in the gap, caught up at", l.CaughtUpAt, clock.Now().Add(comeBack))
	since := listens("ctl-1")
	near("after the gap, since", since, clock.Now())
	l = heard()
	near("after the gap, away since", l.AwaySince, last)
	if !l.CaughtUpAt.Equal(since.Add(comeBack)) {
		t.Errorf("after the gap: caught up at %v, and listening since %v", l.CaughtUpAt, since)
	}
	clock.Advance(gap / 2)
	if again := listens("ctl-1"); !again.Equal(since) {
		t.Errorf("later: since %v, want %v", again, since)
	}
	if again := heard(); again != l {
		t.Errorf("later: %+v, want %+v", again, l)
	}
}

// Awaited are the agents that were there when the last gap began, and that were not heard since it ended.
func TestAgentsThatAreAwaited(t *testing.T) {
	t.Parallel()
	s, clock := storetest.NewWithClock(t)
	storetest.Lease(t, s)
	beats := func(h string, at time.Time) {
		t.Helper()
		if err := s.Sessions.FlushHeartbeats(t.Context(), map[string]time.Time{h: at}); err != nil {
			t.Fatal(err)
		}
	}
	open := func(id string, before time.Duration) string {
		t.Helper()
		storetest.Register(t, s, id)
		h := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-" + id, MachineID: id}).Hello("st-1", "boot-1")
		if _, err := s.Sessions.OpenSession(t.Context(), h, clock.Now().Add(-before)); err != nil {
			t.Fatal(err)
		}
		return h.SessionID
	}
	awaited := func(when string, want int32) {
		t.Helper()
		if n, err := s.Incarnations.AgentsAwaited(t.Context(), time.Hour); err != nil || n != want {
			t.Errorf("%s: %d, %v, want %d", when, n, err, want)
		}
	}
	listens := func() {
		t.Helper()
		if _, err := s.Incarnations.ExtendListening(t.Context(), "ctl", time.Minute, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	listens()
	lately := open("m-lately", 30*time.Minute)
	open("m-before", 90*time.Minute)
	open("m-now", 0)
	awaited("without a gap", 0)
	clock.Advance(5 * time.Minute)
	listens()
	awaited("after the gap", 2)
	beats(lately, clock.Now().Add(time.Minute))
	awaited("one was heard", 1)
}

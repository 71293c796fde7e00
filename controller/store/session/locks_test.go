package session_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// Whoever ends many sessions takes them in the order of their agents, whatever the order of the rows and of the
// request: while it waits for the first of them it holds no other, so that two who do it cannot wait for one another.
func TestSessionsEndInOneOrder(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*store.Store, sessionstore.Hello, sessionstore.Hello) error{
		"each by itself": func(s *store.Store, first, second sessionstore.Hello) error {
			return s.Sessions.EndTogether(t.Context(), storetest.Now(), second, first)
		},
		"of a controller that stops": func(s *store.Store, _, _ sessionstore.Hello) error {
			return s.Sessions.EndSessionsOf(t.Context(), "ctl", storetest.Now())
		},
		"of lost controllers": func(s *store.Store, _, _ sessionstore.Hello) error {
			return s.Sessions.EndSessionsOf(t.Context(), "", storetest.Now().Add(2*time.Hour))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := storetest.New(t)
			first, second := twoSessions(t, s)
			tx := locking(t, s, first)
			defer func() { _ = tx.Rollback(t.Context()) }() // after a commit there is nothing to roll back
			ended := make(chan error, 1)
			task.Background("end sessions", func() { ended <- end(s, first, second) })
			testkit.Eventually(t, 10*time.Second, func() bool { return storetest.WaitingForLocks(t, s) == 1 },
				"somebody waits for the first session")
			if _, err := tx.Exec(t.Context(), lockSession, second.AgentID); err != nil {
				t.Fatalf("the second session is held by who waits for the first: %v", err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if n := storetest.Count(t, s, "SELECT count(*) FROM agent_sessions WHERE ended_at IS NULL"); n != 0 {
				t.Errorf("%d sessions have not ended", n)
			}
		})
	}
}

// Heartbeats wait for nobody: those of a session that is being ended are not needed, and all others are stored.
func TestHeartbeatsWaitForNoSession(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	first, second := twoSessions(t, s)
	tx := locking(t, s, first)
	defer func() { _ = tx.Rollback(t.Context()) }() // it has done its work
	beat := storetest.Now().Add(time.Hour).Truncate(time.Microsecond)
	if err := s.Sessions.FlushHeartbeats(t.Context(), map[string]time.Time{first.SessionID: beat,
		second.SessionID: beat}); err != nil {
		t.Fatal(err)
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM agent_sessions WHERE last_heartbeat_at = $1 AND agent_id = $2",
		beat, second.AgentID); n != 1 {
		t.Error("the other session's heartbeat was not stored")
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM agent_sessions WHERE last_heartbeat_at = $1", beat); n != 1 {
		t.Errorf("%d heartbeats were stored", n)
	}
}

const lockSession = "SELECT FROM agent_sessions WHERE agent_id = $1 FOR NO KEY UPDATE"

// locking is a transaction that has locked one session.
func locking(t *testing.T, s *store.Store, h sessionstore.Hello) pgx.Tx {
	t.Helper()
	tx, err := s.DB.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), lockSession, h.AgentID); err != nil {
		t.Fatal(err)
	}
	return tx
}

// twoSessions are open, of the agent whose id is the lower one first. The other's row comes before it.
func twoSessions(t *testing.T, s *store.Store) (first, second sessionstore.Hello) {
	t.Helper()
	a, b := storetest.Live(t, s, "m-1"), storetest.Live(t, s, "m-2")
	first, second = a.Hello("st-1", "boot-1"), b.Hello("st-1", "boot-1")
	if first.AgentID > second.AgentID {
		first, second = second, first
	}
	storetest.Open(t, s, second)
	storetest.Open(t, s, first)
	return first, second
}

// An event takes the number of its agent's memory after it has locked its operation, as a grant does: while it waits
// for the operation, a grant gets the memory.
func TestAnEventLocksInTheOrderOfAGrant(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	a, id, c := storetest.Rebooting(t, s, "m-1")
	tx, err := s.DB.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }() // after a commit there is nothing to roll back
	if _, err := tx.Exec(t.Context(), "SELECT FROM operations WHERE operation_id = $1 FOR UPDATE", id); err != nil {
		t.Fatal(err)
	}
	logged := make(chan error, 1)
	task.Background("log", func() {
		logged <- s.Sessions.LogEvent(t.Context(), sessionstore.EventKey{AgentID: a.ID, StateID: "st-1", Seq: 5}, c.ID, "stdout",
			[]byte("line"), storetest.Now())
	})
	testkit.Eventually(t, 10*time.Second, func() bool { return storetest.WaitingForLocks(t, s) == 1 },
		"the event waits for the operation")
	if _, err := tx.Exec(t.Context(), "SELECT FROM agent_states WHERE agent_id = $1 FOR UPDATE NOWAIT",
		a.ID); err != nil {
		t.Fatalf("the memory is held by who waits for the operation: %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-logged; err != nil {
		t.Fatal(err)
	}
}

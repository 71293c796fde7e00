package session_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/task"
)

// inService is an agent whose machine is in service and has had a session.
func inService(t testing.TB, s *store.Store, machineID string) storetest.Enrolled {
	t.Helper()
	storetest.Register(t, s, machineID)
	a := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-" + machineID, MachineID: machineID})
	storetest.Open(t, s, a.Hello("st-1", "boot-1"))
	return a
}

func calm(t testing.TB, s *store.Store, lot ...sessionstore.Hello) []*sessionstore.Opened {
	t.Helper()
	out, err := s.Sessions.OpenBatch(t.Context(), storetest.Now(), lot...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// sessionRow is what the database has of an agent's session.
func sessionRow(t testing.TB, s *store.Store, a storetest.Enrolled) (sessionID string, epoch int64, ended bool) {
	t.Helper()
	err := s.DB.Pool().QueryRow(t.Context(),
		"SELECT session_id, epoch, ended_at IS NOT NULL FROM agent_sessions WHERE agent_id = $1", a.ID).
		Scan(&sessionID, &epoch, &ended)
	if err != nil {
		t.Fatal(err)
	}
	return sessionID, epoch, ended
}

// A calm hello leaves what it would have left alone.
func TestACalmSessionIsOneLikeAnyOther(t *testing.T) {
	s := storetest.New(t)
	storetest.Lease(t, s)
	a := inService(t, s, "m-1")
	alone, h := storetest.Open(t, s, a.Hello("st-1", "boot-1")), a.Hello("st-1", "boot-1")
	if err := s.Sessions.EndSession(t.Context(), a.ID, sessionID(t, s, a), storetest.Now()); err != nil {
		t.Fatal(err)
	}
	got := calm(t, s, h)[0]
	if got == nil {
		t.Fatal("not opened")
	}
	if want := alone.Epoch + 1; got.Epoch != want || got.Role != alone.Role || got.MachineID != alone.MachineID ||
		got.Site != alone.Site ||
		got.PreviousHardware != alone.PreviousHardware || got.RolledBack || got.Cloned || len(got.Operations) != 0 {
		t.Errorf("calm: %+v\nalone: %+v", got, alone)
	}
	if id, epoch, ended := sessionRow(t, s, a); id != h.SessionID || epoch != got.Epoch || ended {
		t.Errorf("stored: %s, epoch %d, ended %t", id, epoch, ended)
	}
	if next := storetest.Open(t, s, a.Hello("st-1", "boot-1")); next.Epoch != got.Epoch+1 {
		t.Errorf("epoch %d after %d", next.Epoch, got.Epoch)
	}
}

func sessionID(t testing.TB, s *store.Store, a storetest.Enrolled) string {
	t.Helper()
	id, _, _ := sessionRow(t, s, a)
	return id
}

// Whatever a hello may change or find out is left to the way that looks at one alone.
func TestWhatIsNotCalm(t *testing.T) {
	s := storetest.New(t)
	storetest.Lease(t, s)
	exec := func(sql string) func(*testing.T, storetest.Enrolled, *sessionstore.Hello) {
		return func(t *testing.T, a storetest.Enrolled, _ *sessionstore.Hello) {
			t.Helper()
			if _, err := s.DB.Pool().Exec(t.Context(), sql, a.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	says := func(change func(*sessionstore.Hello)) func(*testing.T, storetest.Enrolled, *sessionstore.Hello) {
		return func(_ *testing.T, _ storetest.Enrolled, h *sessionstore.Hello) { change(h) }
	}
	for i, c := range []struct {
		name string
		do   func(*testing.T, storetest.Enrolled, *sessionstore.Hello)
	}{
		{"another boot", says(func(h *sessionstore.Hello) { h.BootID = "boot-2" })},
		{"another memory", says(func(h *sessionstore.Hello) { h.StateID = "st-2" })},
		{"other hardware", says(func(h *sessionstore.Hello) { h.HardwareFingerprint = "hw-2" })},
		{"another version", says(func(h *sessionstore.Hello) { h.Version = "2" })},
		{"other capabilities", says(func(h *sessionstore.Hello) { h.Capabilities = h.Capabilities[1:] })},
		{"another image", says(func(h *sessionstore.Hello) { h.ImageDigest = "sha256:1" })},
		{"locked", says(func(h *sessionstore.Hello) { h.LockedReason = "hands off" })},
		{"simulated", says(func(h *sessionstore.Hello) { h.Simulated = true })},
		{"a certificate that is not recorded", says(func(h *sessionstore.Hello) { h.Fingerprint = "fp-unknown" })},
		{"an older memory", exec("UPDATE agent_states SET last_event_seq = 7 WHERE agent_id = $1")},
		{"a memory that has asked for less", exec("UPDATE agent_states SET last_grant_seq = 7 WHERE agent_id = $1")},
		{"an older boot",
			exec("INSERT INTO agent_boots (agent_id, boot_id, boot_number, first_seen_at) VALUES ($1, 'boot-2', 2, now())")},
		{"revoked", exec("UPDATE agent_certs SET revoked_at = now() WHERE agent_id = $1")},
		{"replaced", exec("UPDATE agent_certs SET replaced_at = now() WHERE agent_id = $1")},
		{"not used before", exec("UPDATE agent_certs SET first_used_at = NULL WHERE agent_id = $1")},
		{"unreachable", exec(`UPDATE machine_conditions SET status = false WHERE type = 'Reachable'
			AND machine_id = (SELECT machine_id FROM agents WHERE agent_id = $1)`)},
		{"deleted",
			exec(
				"UPDATE machines SET deleted_at = now() WHERE machine_id = (SELECT machine_id FROM agents WHERE agent_id = $1)")},
		{"not in service",
			exec(
				"UPDATE machines SET node_state = 'offline' WHERE machine_id = (SELECT machine_id FROM agents WHERE agent_id = $1)")},
		{"another agent's machine",
			exec("UPDATE machines SET agent_id = NULL WHERE machine_id = (SELECT machine_id FROM agents WHERE agent_id = $1)")},
		{"an unresolved command",
			exec("UPDATE machines SET unresolved_command_id = 'cmd-x' WHERE machine_id = (SELECT machine_id FROM agents WHERE " +
				"agent_id = $1)")},
		{"at work", func(t *testing.T, a storetest.Enrolled, _ *sessionstore.Hello) {
			storetest.Start(t, s, operationstore.StartRequest{MachineID: a.Machine, RequestID: "enter",
				Type: fleet.EnterMaintenance})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := inService(t, s, fmt.Sprintf("m-%d", i))
			if calm(t, s, a.Hello("st-1", "boot-1"))[0] == nil {
				t.Fatal("not even calm before")
			}
			before := sessionID(t, s, a)
			h := a.Hello("st-1", "boot-1")
			c.do(t, a, &h)
			if got := calm(t, s, h)[0]; got != nil {
				t.Errorf("opened as if nothing was: %+v", got)
			}
			if after := sessionID(t, s, a); after != before {
				t.Errorf("the session is %s now, it was %s", after, before)
			}
		})
	}
}

// A machine or an agent that somebody works on is left out; the others of the lot are opened.
func TestALotLeavesOutWhatIsLocked(t *testing.T) {
	s := storetest.New(t)
	storetest.Lease(t, s)
	one, two, three := inService(t, s, "m-1"), inService(t, s, "m-2"), inService(t, s, "m-3")
	tx, err := s.DB.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // it has only locked
	if _, err := tx.Exec(t.Context(), "SELECT FROM machines WHERE machine_id = 'm-1' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM agents WHERE agent_id = $1 FOR UPDATE", two.ID); err != nil {
		t.Fatal(err)
	}
	h := three.Hello("st-1", "boot-1")
	got := calm(t, s, one.Hello("st-1", "boot-1"), two.Hello("st-1", "boot-1"), h, three.Hello("st-1", "boot-1"))
	if got[0] != nil || got[1] != nil || got[2] == nil || got[3] != nil {
		t.Errorf("opened: %v", got)
	}
	if id := sessionID(t, s, three); id != h.SessionID {
		t.Errorf("of two hellos of one agent the first counts; stored is %s", id)
	}
}

// A fleet that comes back at once, some of it rebooted, has one session for each agent, each under the next epoch.
func TestAFleetComesBackAtOnce(t *testing.T) {
	s := storetest.New(t)
	storetest.Lease(t, s)
	const n = 40
	agents := make([]storetest.Enrolled, n)
	for i := range agents {
		agents[i] = inService(t, s, fmt.Sprintf("m-%02d", i))
	}
	var mu sync.Mutex
	opened := map[string]*sessionstore.Opened{}
	group, _ := task.New(t.Context())
	for i, a := range agents {
		h := a.Hello("st-1", "boot-1")
		if i%10 == 0 {
			h.BootID = "boot-2"
		}
		group.Go("hello", func(ctx context.Context) error {
			o, err := s.Sessions.OpenSession(ctx, h, storetest.Now())
			mu.Lock()
			defer mu.Unlock()
			opened[h.SessionID] = o
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, a := range agents {
		id, epoch, ended := sessionRow(t, s, a)
		if o := opened[id]; o == nil || o.Epoch != 2 || epoch != 2 || ended || o.MachineID != a.Machine {
			t.Errorf("%s: session %s, epoch %d, ended %t; opened %+v", a.Machine, id, epoch, ended, o)
		}
	}
}

// Inventories that come together are each kept once, and only where they differ from the newest one.
func TestInventoriesThatComeTogether(t *testing.T) {
	s := storetest.New(t)
	storetest.Lease(t, s)
	const n = 20
	agents := make([]storetest.Enrolled, n)
	for i := range agents {
		agents[i] = inService(t, s, fmt.Sprintf("m-%02d", i))
	}
	tell := func(seq uint64, hash, document string) {
		t.Helper()
		group, _ := task.New(t.Context())
		for _, a := range agents {
			k := sessionstore.EventKey{AgentID: a.ID, StateID: "st-1", Seq: seq}
			for range 2 { // an old session and a new one
				group.Go("report", func(ctx context.Context) error {
					return s.Sessions.InventoryEvent(ctx, k, a.Machine, hash, []byte(document), false, storetest.Now())
				})
			}
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	count := func() (rows int) {
		t.Helper()
		if err := s.DB.Pool().QueryRow(t.Context(), "SELECT count(*) FROM inventories").Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	for _, c := range []struct {
		seq            uint64
		hash, document string
		rows           int
	}{
		{1, "h1", `{"a":1}`, n},
		{2, "h1", `{"a":1}`, n},     // nothing has changed
		{3, "h2", ``, n},            // not known yet
		{4, "h3", `no document`, n}, // nothing that could be kept
		{5, "h4", `{"a":2}`, 2 * n},
		{5, "h5", `{"a":3}`, 2 * n}, // seen
		{4, "h6", `{"a":4}`, 2 * n}, // older
	} {
		if tell(c.seq, c.hash, c.document); count() != c.rows {
			t.Errorf("after number %d with %s: %d rows, want %d", c.seq, c.hash, count(), c.rows)
		}
	}
	if o := storetest.Open(t, s, agents[0].Hello("st-1", "boot-1")); o.LastEventSeq != 5 {
		t.Errorf("the highest number is %d", o.LastEventSeq)
	}
}

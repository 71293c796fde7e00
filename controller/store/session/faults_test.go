package session_test

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// errOf drops what a call returns besides its error.
func errOf[T any](_ T, err error) error { return err }

// A statement that fails is an error of the call, which changes nothing then: of controllers and their leases.
func TestAFailedStatementOfAController(t *testing.T) {
	t.Parallel()
	s := storetest.NewFaulty(t)
	ctx, at, v := t.Context(), storetest.Now(), s.Sessions
	storetest.Lease(t, s)
	a, _, c := storetest.Rebooting(t, s, "m-1")
	lost, session := inService(t, s, "m-2"), sessionID(t, s, a)
	replica(t, s, "UPDATE agent_sessions SET controller_id = 'lost' WHERE agent_id = $1", lost.ID)
	replica(t, s, "INSERT INTO controllers (controller_id, version, started_at, lease_until) VALUES ('lost', '', $1, $1)",
		at.Add(-time.Hour))
	storetest.Calls(
		t,
		s,
		storetest.Call{Name: "peers", Do: func() error { return errOf(v.Peers(ctx, "ctl", at)) }},
		storetest.Call{Name: "heartbeat", Do: func() error { return v.SetHeartbeat(ctx, "ctl", time.Second) }},
		storetest.Call{Name: "time", Do: func() error { return errOf(v.Time(ctx)) }},
		storetest.Call{Name: "renew", Do: func() error { return v.RenewLease(ctx, "ctl-2", "v", at.Add(time.Hour), at) }},
		storetest.Call{Name: "describe", Do: func() error { return v.DescribeController(ctx, "ctl-2", "h") }},
		storetest.Call{Name: "drain", Do: func() error { return v.DrainController(ctx, "ctl-2", at) }},
		storetest.Call{Name: "list", Do: func() error { return errOf(v.ListControllers(ctx, true, "", 9, at)) }},
		storetest.Call{Name: "release", Do: func() error { return v.ReleaseLease(ctx, "ctl-2", at) }},
		storetest.Call{Name: "forget", Do: func() error { return errOf(v.ForgetControllers(ctx, at.Add(time.Second))) }},
		storetest.Call{Name: "count live ones", Do: func() error { return errOf(v.CountLiveSessions(ctx)) }},
		storetest.Call{Name: "count", Do: func() error { return errOf(v.CountSessions(ctx)) }},
		storetest.Call{
			Name: "hand over",
			Do:   func() error { return v.HandOver(ctx, "ctl-2", []string{a.ID}, []string{"x"}) },
		},
		storetest.Call{Name: "announce", Do: func() error { return v.Announce(ctx, "x") }},
		storetest.Call{Name: "held out", Do: func() error { return errOf(v.HeldOut(ctx, []string{c.ID})) }},
		storetest.Call{Name: "unanswered", Do: func() error { return errOf(v.UnansweredCommands(ctx, "ctl", at)) }},
		storetest.Call{Name: "unsettled", Do: func() error { return errOf(v.Unsettled(ctx, a.ID)) }},
		storetest.Call{Name: "state", Do: func() error { return errOf2(v.CommandState(ctx, c.ID)) }},
		storetest.Call{Name: "place", Do: func() error {
			_, _, _, err := v.CommandPlace(ctx, c.ID)
			return err
		}},
		storetest.Call{Name: "locked", Do: func() error { return v.SetAgentLocked(ctx, a.ID, true) }},
		storetest.Call{Name: "moved", Do: func() error { return errOf(v.MovedSessions(ctx, map[string]int64{a.ID: 0})) }},
		storetest.Call{Name: "heartbeats", Do: func() error {
			return v.FlushHeartbeats(ctx, map[string]time.Time{session: at.Add(time.Minute)})
		}},
		storetest.Call{Name: "end", Do: func() error { return v.EndSession(ctx, a.ID, "s-of-before", at) }},
		storetest.Call{Name: "end those of lost ones", Do: func() error { return v.EndSessionsOf(ctx, "", at) }},
		storetest.Call{Name: "end those of one", Do: func() error { return v.EndSessionsOf(ctx, "ctl", at) }},
	)
	if n := storetest.Count(t, s, "SELECT count(*) FROM agent_sessions WHERE ended_at IS NULL"); n != 0 {
		t.Errorf("%d sessions go on", n)
	}
}

func errOf2[A, B any](_ A, _ B, err error) error { return err }

// The same of events.
func TestAFailedStatementOfAnEvent(t *testing.T) {
	t.Parallel()
	s := storetest.NewFaulty(t)
	ctx, at, v := t.Context(), storetest.Now(), s.Sessions
	a, op, c := storetest.Rebooting(t, s, "m-1")
	replica(t, s, "UPDATE agents SET role = 'installer', operation_id = $1 WHERE agent_id = $2", op, a.ID)
	secret := strings.Repeat("ab", 32)
	raw, err := hex.DecodeString(secret)
	must(t, err)
	replica(t, s, `INSERT INTO phone_homes (operation_id, machine_id, command_id, secret_sha256, issued_at)
		VALUES ($1, 'm-1', $2, $3, now())`, op, c.ID, raw)
	replica(t, s, `INSERT INTO audit_log (ts, actor, verb, target_id, event_data)
		SELECT $1::timestamptz - interval '1 day', '', 'CONFIG_DRIFT', 'm-1', '{"diff": "x"}'
		FROM generate_series(1, 40)`, at)
	key := func(seq uint64) sessionstore.EventKey {
		k := keyOf(a, seq)
		k.InstallerOf = "m-1" // alone, and with its operation
		return k
	}
	storetest.Calls(
		t,
		s,
		storetest.Call{Name: "skip", Do: func() error { return v.SkipEvent(ctx, key(1)) }},
		storetest.Call{Name: "log", Do: func() error { return v.LogEvents(ctx, key(0), c.ID, line(2, "a"), line(3, "b")) }},
		storetest.Call{
			Name: "log, seen in parts",
			Do:   func() error { return v.LogEvents(ctx, key(0), c.ID, line(3, "b"), line(4, "c")) },
		},
		storetest.Call{
			Name: "console",
			Do:   func() error { return v.ConsoleEvents(ctx, key(0), "default", op, line(5, "d")) },
		},
		storetest.Call{Name: "drift", Do: func() error { return v.DriftEvent(ctx, key(6), "m-1", "x", "y", at) }},
		storetest.Call{Name: "no drift", Do: func() error { return v.DriftEvent(ctx, key(7), "m-1", "", "", at) }},
		storetest.Call{Name: "RAID", Do: func() error { return v.RAIDEvent(ctx, key(8), "m-1", "x", at) }},
		storetest.Call{
			Name: "inventory",
			Do:   func() error { return v.InventoryEvent(ctx, key(9), "m-1", "h", []byte("{}"), false, at) },
		},
		storetest.Call{Name: "phone home", Do: func() error {
			return errOf(v.PhoneHomeEvent(ctx, key(10), "default", map[string]string{evidence.PhoneHomeSecret: secret}, at))
		}},
		storetest.Call{Name: "phone home without a secret", Do: func() error {
			return errOf(v.PhoneHomeEvent(ctx, key(11), "default", map[string]string{evidence.PhoneHomeSecret: "-"}, at))
		}},
	)
	if got := lines(t, s, op, at); len(got) != 4 || lastEvent(t, s, a) != 11 {
		t.Errorf("the log is %q, the last number %d", got, lastEvent(t, s, a))
	}
	// In a lot the error is that of all.
	storetest.Calls(t, s, storetest.Call{Name: "a lot", Do: func() error {
		return errOf(v.StoreInventories(ctx, sessionstore.Inventory{Key: keyOf(a, 12), MachineID: "m-1", Hash: "h-2",
			Document: []byte("{}"), At: at}))
	}})
}

// The same of sessions that are opened, in each way.
func TestAFailedStatementOfAHello(t *testing.T) {
	t.Parallel()
	fence := func(t *testing.T, s *store.Store, a storetest.Enrolled) {
		t.Helper()
		op := storetest.Start(t, s, operationstore.StartRequest{MachineID: a.Machine, RequestID: "r",
			Type: fleet.Reboot}).GetOperationId()
		c := storetest.Decide(t, s, op, operation.Evaluate{}).Command
		storetest.Decide(t, s, op, storetest.Ask(a, c, 1, 1))
		_, err := s.Operations.Decide(t.Context(), op, operation.Evaluate{}, storetest.Now().Add(24*time.Hour))
		must(t, err)
	}
	sql := func(statement string) func(*testing.T, *store.Store, storetest.Enrolled) {
		return func(t *testing.T, s *store.Store, a storetest.Enrolled) {
			t.Helper()
			replica(t, s, statement, a.ID)
		}
	}
	node := func(state string) func(*testing.T, *store.Store, storetest.Enrolled) {
		return sql("UPDATE machines SET node_state = '" + state + "' WHERE agent_id = $1")
	}
	says := func(change func(*sessionstore.Hello)) func(*sessionstore.Hello) { return change }
	for name, c := range map[string]struct {
		before func(*testing.T, *store.Store, storetest.Enrolled)
		says   func(*sessionstore.Hello)
	}{
		"another boot":      {nil, says(func(h *sessionstore.Hello) { h.BootID = "boot-2" })},
		"a certificate":     {sql("UPDATE agent_certs SET first_used_at = NULL WHERE agent_id = $1"), nil},
		"a memory given up": {nil, says(func(h *sessionstore.Hello) { h.PreviousStateID = "st-0" })},
		"an older memory":   {sql("UPDATE agent_states SET last_event_seq = 7 WHERE agent_id = $1"), nil},
		"a clone": {sql(`INSERT INTO agent_boots (agent_id, boot_id, boot_number, first_seen_at)
			VALUES ($1, 'boot-2', 2, now())`), nil},
		"back in service": {node("offline"), nil},
		"on its way in":   {node("bootstrap_issued"), nil},
		"a fence that the boot lifts": {fence, says(func(h *sessionstore.Hello) {
			h.BootID, h.LastGrantSeq = "boot-2", 1
		})},
		"an installer": {sql(`UPDATE agents SET role = 'installer', operation_id = o.operation_id
			FROM operations o WHERE agent_id = $1`), nil},
		"a site's": {sql("UPDATE agents SET role = 'site', machine_id = NULL, site = 'default' WHERE agent_id = $1"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := storetest.NewFaulty(t)
			a := storetest.Live(t, s, "m-1")
			if name == "an installer" {
				storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reboot})
				replica(t, s, "DELETE FROM operations WHERE type <> 'REBOOT'")
			}
			if c.before != nil {
				c.before(t, s, a)
			}
			h := a.Hello("st-1", "boot-1")
			if c.says != nil {
				c.says(&h)
			}
			storetest.Calls(t, s, storetest.Call{Name: name, Do: func() error {
				return errOf(s.Sessions.OpenSession(t.Context(), h, storetest.Now()))
			}})
			if id := sessionID(t, s, a); id != h.SessionID {
				t.Errorf("the session is %s", id)
			}
		})
	}
	s := storetest.NewFaulty(t)
	storetest.Lease(t, s)
	a := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-1", Role: "site", Site: "default"})
	storetest.Open(t, s, a.Hello("st-1", "boot-1"))
	host := inService(t, s, "m-1")
	storetest.Calls(t, s, storetest.Call{Name: "a lot", Do: func() error {
		out, err := s.Sessions.OpenBatch(t.Context(), storetest.Now(), host.Hello("st-1", "boot-1"))
		if err == nil && (len(out) != 1 || out[0] == nil) {
			return fmt.Errorf("opened %v", out)
		}
		return err
	}})
	if _, epoch, _ := sessionRow(t, s, host); epoch != 2 {
		t.Errorf("the epoch is %d", epoch)
	}
}

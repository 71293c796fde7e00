package session_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failure"
)

func TestEpochsGrow(t *testing.T) {
	s := storetest.New(t)
	a := storetest.Live(t, s, "m-1")
	const n = 30
	epochs := make([]int64, n)
	for i, err := range storetest.Together(t, n, func(ctx context.Context, i int) error {
		o, err := s.Sessions.OpenSession(ctx, a.Hello("st-1", "boot-1"), storetest.Now())
		if err == nil {
			epochs[i] = o.Epoch
		}
		return err
	}) {
		if err != nil {
			t.Fatalf("session %d: %v", i, err)
		}
	}
	slices.Sort(epochs)
	for i, e := range epochs {
		if e != int64(i+2) { // live had the first one
			t.Fatalf("epochs %v", epochs)
		}
	}
	if newest := storetest.Count(t, s, "SELECT epoch FROM agent_sessions WHERE agent_id = $1", a.ID); newest != n+1 {
		t.Errorf("the stored session has epoch %d", newest)
	}
}

func TestOldSessionsEndingChangesNothing(t *testing.T) {
	s := storetest.New(t)
	a := storetest.Live(t, s, "m-1")
	old := a.Hello("st-1", "boot-1")
	storetest.Open(t, s, old)
	storetest.Open(t, s, a.Hello("st-1", "boot-1"))
	if err := s.Sessions.EndSession(t.Context(), a.ID, old.SessionID, storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Agents.GetAgent(t.Context(), a.ID); err != nil || !got.GetConnected() {
		t.Errorf("connected %t, %v", got.GetConnected(), err)
	}
}

func TestOldEpochIsGrantedNothing(t *testing.T) {
	s := storetest.New(t)
	a, id, c := storetest.Rebooting(t, s, "m-1")
	storetest.Open(t, s, a.Hello("st-1", "boot-1"))
	if d := storetest.Decide(t, s, id, storetest.Ask(a, c, 1, 1)); d.Decision.Grant ||
		d.Decision.Refusal.Reason != "SESSION_SUPERSEDED" {
		t.Errorf("%+v", d.Decision)
	}
	if d := storetest.Decide(t, s, id, storetest.Ask(a, c, 1, 2)); !d.Decision.Grant {
		t.Errorf("the newest session is refused: %+v", d.Decision.Refusal)
	}
	// Its result counts, whatever session carries it.
	d := storetest.Decide(t, s, id, operation.Resulted{CommandID: c.ID, AgentID: a.ID, Outcome: operation.OutcomeSucceeded,
		SessionBootID: "boot-2"})
	if d.Phase != operation.Succeeded {
		t.Errorf("%s", d.Phase)
	}
}

func TestOrdinaryRebootIsNoClone(t *testing.T) {
	s := storetest.New(t)
	a := storetest.Live(t, s, "m-1")
	for _, boot := range []string{"boot-1", "boot-2", "boot-2", "boot-3"} {
		if o := storetest.Open(t, s, a.Hello("st-1", boot)); o.Cloned || o.RolledBack {
			t.Fatalf("%s: %+v", boot, o)
		}
	}
	if m := storetest.Machine(t, s, "m-1"); m.GetStatus().GetBootId() != "boot-3" ||
		storetest.Condition(m, fleet.NeedsIntervention) != nil {
		t.Errorf("%v", m.GetStatus())
	}
}

func TestOldBootThatComesBackIsAClone(t *testing.T) {
	s := storetest.New(t)
	a := storetest.Live(t, s, "m-1")
	storetest.Open(t, s, a.Hello("st-1", "boot-2"))
	if o := storetest.Open(t, s, a.Hello("st-1", "boot-1")); !o.Cloned {
		t.Fatalf("%+v", o)
	}
	m := storetest.Machine(t, s, "m-1")
	if c := storetest.Condition(m,
		fleet.NeedsIntervention); m.GetStatus().GetNodeState().String() != "NODE_STATE_QUARANTINED" ||
		c.GetReason() != "CLONE_DETECTED" {
		t.Fatalf("%v", m.GetStatus())
	}
	if m.GetStatus().GetBootId() != "boot-2" {
		t.Errorf("the clone's boot counts: %s", m.GetStatus().GetBootId())
	}
	_, _, err := s.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1", RequestID: "r",
		Type: fleet.Reboot}, storetest.Now())
	storetest.WantReason(t, err, "MACHINE_QUARANTINED")
	if m, err = s.Operations.ClearIntervention(t.Context(), "m-1", "tester", "found it", storetest.Now()); err != nil ||
		m.GetStatus().GetNodeState().String() != "NODE_STATE_ACTIVE" {
		t.Errorf("%v, %v", m.GetStatus(), err)
	}
}

func TestMemoryRolledBack(t *testing.T) {
	s := storetest.New(t)
	a, id, c := storetest.Rebooting(t, s, "m-1")
	if d := storetest.Decide(t, s, id, storetest.Ask(a, c, 7, 1)); !d.Decision.Grant {
		t.Fatalf("%+v", d.Decision.Refusal)
	}
	h := a.Hello("st-1", "boot-1")
	h.LastGrantSeq = 7
	if o := storetest.Open(t, s, h); o.RolledBack {
		t.Error("the newest memory counts as an older one")
	}
	h.LastGrantSeq = 6
	if o := storetest.Open(t, s, h); !o.RolledBack || !slices.Contains(o.Operations, id) {
		t.Errorf("%+v", o)
	}
	if c := storetest.Condition(storetest.Machine(t, s, "m-1"),
		fleet.NeedsIntervention); c.GetReason() != "AGENT_STATE_ROLLED_BACK" {
		t.Errorf("condition %v", c)
	}
	if d := storetest.Decide(t, s, id, storetest.Ask(a, c, 7, 3)); d.Decision.Grant ||
		d.Decision.Refusal.Reason != "AGENT_STATE_ROLLED_BACK" || d.Phase != operation.Failed {
		t.Errorf("%+v", d.Decision)
	}
}

func TestEventNumbersAreTakenOnce(t *testing.T) {
	s := storetest.New(t)
	a, id, c := storetest.Rebooting(t, s, "m-1")
	key := sessionstore.EventKey{AgentID: a.ID, StateID: "st-1", Seq: 5}
	for range 3 {
		if err := s.Sessions.LogEvents(t.Context(), key, c.ID, line(5, "line")); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Sessions.LogEvents(t.Context(), key, "cmd-of-somebody-else", line(6, "line")); err != nil {
		t.Fatal(err)
	}
	if logs, err := s.Logs.LogsOf(t.Context(), id, 0, 10); err != nil || len(logs) != 1 {
		t.Errorf("%d lines, %v", len(logs), err)
	}
	if o := storetest.Open(t, s, a.Hello("st-1", "boot-1")); o.LastEventSeq != 6 || !o.RolledBack {
		t.Errorf("%+v", o) // by the Hello it has none
	}
}

func line(seq uint64, text string) sessionstore.Piece {
	return sessionstore.Piece{Seq: seq, Stream: "stdout", Data: []byte(text), At: storetest.Now()}
}

// TestPiecesOfALogAreStoredTogether holds that pieces which arrive together take one transaction, that pieces which have
// been seen are left out, and that the others keep their order.
func TestPiecesOfALogAreStoredTogether(t *testing.T) {
	commits := &begun{}
	s := storetest.With(t, store.Config{Tracer: commits})
	a, id, c := storetest.Rebooting(t, s, "m-1")
	key := sessionstore.EventKey{AgentID: a.ID, StateID: "st-1"}
	before := commits.n.Load()
	if err := s.Sessions.LogEvents(t.Context(), key, c.ID, line(1, "a"), line(2, "b"), line(3, "c")); err != nil {
		t.Fatal(err)
	}
	if got := commits.n.Load() - before; got != 1 {
		t.Errorf("%d transactions for three pieces, want 1", got)
	}
	if err := s.Sessions.LogEvents(
		t.Context(),
		key,
		c.ID,
		line(2, "b"),
		line(3, "c"),
		line(4, "d"),
		line(5, "e"),
	); err != nil {
		t.Fatal(err)
	}
	// One that is new counts beside one that was overtaken.
	if err := s.Sessions.LogEvents(t.Context(), key, c.ID, line(7, "g"), line(6, "f")); err != nil {
		t.Fatal(err)
	}
	logs, err := s.Logs.LogsOf(t.Context(), id, 0, 10)
	var text string
	for _, l := range logs {
		text += string(l.GetData())
	}
	if err != nil || text != "abcdeg" {
		t.Errorf("the log is %q, %v", text, err)
	}
	if o := storetest.Open(t, s, a.Hello("st-1", "boot-1")); o.LastEventSeq != 7 {
		t.Errorf("the last event is %d, want 7", o.LastEventSeq)
	}
}

// begun counts transactions.
type begun struct{ n atomic.Int64 }

func (b *begun) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(strings.ToLower(d.SQL), "begin") {
		b.n.Add(1)
	}
	return ctx
}

func (b *begun) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestAnOlderSessionStoresNoEvent: a copy of an agent has a session, and the agent a newer one. A late event of the copy
// takes no number, which would hide the agent's own event of that number.
func TestAnOlderSessionStoresNoEvent(t *testing.T) {
	s := storetest.New(t)
	a, id, c := storetest.Rebooting(t, s, "m-1")
	older := storetest.Open(t, s, a.Hello("st-1", "boot-1")).Epoch
	newer := storetest.Open(t, s, a.Hello("st-1", "boot-1")).Epoch
	key := sessionstore.EventKey{AgentID: a.ID, StateID: "st-1", Seq: 5, Epoch: older}
	err := s.Sessions.LogEvents(t.Context(), key, c.ID, line(5, "of the copy"))
	if failure.ReasonOf(err) != "SESSION_SUPERSEDED" {
		t.Errorf("by the older session: %v", err)
	}
	err = s.Sessions.InventoryEvent(t.Context(), key, "m-1", "h", []byte("{}"), false, storetest.Now())
	if failure.ReasonOf(err) != "SESSION_SUPERSEDED" {
		t.Errorf("an inventory by the older session: %v", err)
	}
	key.Epoch = newer
	for range 2 {
		if err := s.Sessions.LogEvents(t.Context(), key, c.ID, line(5, "of the agent")); err != nil {
			t.Fatal(err)
		}
	}
	logs, err := s.Logs.LogsOf(t.Context(), id, 0, 10)
	if err != nil || len(logs) != 1 || string(logs[0].GetData()) != "of the agent" {
		t.Errorf("%v, %v", logs, err)
	}
}

// fenced is a machine whose reboot was granted and has no result.
func fenced(t *testing.T, s *store.Store) (storetest.Enrolled, string, *operation.Command) {
	t.Helper()
	a, id, c := storetest.Rebooting(t, s, "m-1")
	storetest.Decide(t, s, id, storetest.Ask(a, c, 1, 1))
	late, err := s.Operations.Decide(t.Context(), id, operation.Evaluate{}, storetest.Now().Add(24*time.Hour))
	if err != nil || late.Phase != operation.Failed {
		t.Fatalf("%+v, %v", late, err)
	}
	m := storetest.Machine(t, s, "m-1")
	if m.GetStatus().GetUnresolvedCommandId() != c.ID || m.GetStatus().GetActiveOperationId() != "" {
		t.Fatalf("%v", m.GetStatus())
	}
	_, _, err = s.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1", RequestID: "next",
		Type: fleet.Reboot}, storetest.Now())
	if f := storetest.WantReason(t, err, "COMMAND_UNRESOLVED"); f.Metadata["unresolved_command_id"] != c.ID {
		t.Errorf("metadata %v", f.Metadata)
	}
	return a, id, c
}

func settled(t *testing.T, s *store.Store, operationID string, c *operation.Command, by string, before string) {
	t.Helper()
	if m := storetest.Machine(t, s, "m-1"); m.GetStatus().GetUnresolvedCommandId() != "" {
		t.Errorf("still fenced by %s", m.GetStatus().GetUnresolvedCommandId())
	}
	commands, err := s.OperationQueries.ListCommands(t.Context(), operationquery.CommandFilter{OperationID: operationID,
		Limit: 1000})
	if err != nil || len(commands) != 1 || commands[0].GetState() != "DONE" || commands[0].GetSettledBy() != by ||
		commands[0].GetCommandId() != c.ID {
		t.Errorf("%v, %v", commands, err)
	}
	if after := storetest.Everything(t, s, "operations"); after != before {
		t.Error("settling changed the finished operation")
	}
	storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "next", Type: fleet.Reboot})
}

func TestNewBootLiftsTheFence(t *testing.T) {
	s := storetest.New(t)
	a, id, c := fenced(t, s)
	before := storetest.Everything(t, s, "operations")
	h := a.Hello("st-1", "boot-1")
	h.LastGrantSeq = 1
	storetest.Open(t, s, h)
	if storetest.Machine(t, s, "m-1").GetStatus().GetUnresolvedCommandId() == "" {
		t.Fatal("the same boot lifted the fence")
	}
	h.BootID = "boot-2"
	storetest.Open(t, s, h)
	settled(t, s, id, c, "new_boot", before)
}

func TestLateResultLiftsTheFence(t *testing.T) {
	s := storetest.New(t)
	a, id, c := fenced(t, s)
	before := storetest.Everything(t, s, "operations")
	if d := storetest.Decide(t, s, id, operation.Resulted{CommandID: c.ID, AgentID: a.ID,
		Outcome: operation.OutcomeFailed}); !d.Decision.Ack {
		t.Error("not acknowledged")
	}
	settled(t, s, id, c, "late_result", before)
}

func TestOperatorLiftsTheFence(t *testing.T) {
	s := storetest.New(t)
	_, id, c := fenced(t, s)
	before := storetest.Everything(t, s, "operations")
	_, err := s.Operations.Settle(t.Context(), "m-1", "cmd-other", "done", "tester", "", storetest.Now())
	storetest.WantReason(t, err, "NOTHING_TO_SETTLE")
	if _, err = s.Operations.Settle(t.Context(), "m-1", c.ID, "done", "tester", "I looked at it",
		storetest.Now()); err != nil {
		t.Fatal(err)
	}
	settled(t, s, id, c, "operator:done", before)
	_, err = s.Operations.Settle(t.Context(), "m-1", c.ID, "done", "tester", "", storetest.Now())
	storetest.WantReason(t, err, "NOTHING_TO_SETTLE")
	if n := storetest.Count(t, s,
		"SELECT count(*) FROM audit_log WHERE verb = 'SETTLE' AND event_data ->> 'comment' = 'I looked at it'"); n != 1 {
		t.Errorf("%d audit rows", n)
	}
}

func TestReachableFollowsTheHeartbeats(t *testing.T) {
	s := storetest.New(t)
	a := storetest.Live(t, s, "m-1")
	h := a.Hello("st-1", "boot-1")
	storetest.Open(t, s, h)
	reachable := func(silentSince time.Time) bool {
		t.Helper()
		if err := s.NodeStates.UpdateReachable(t.Context(), silentSince, storetest.Now()); err != nil {
			t.Fatal(err)
		}
		return storetest.Condition(storetest.Machine(t, s, "m-1"), fleet.Reachable) != nil
	}
	at := storetest.Now()
	if !reachable(at.Add(-time.Minute)) || reachable(at.Add(time.Minute)) {
		t.Error("wrong at first")
	}
	if err := s.Sessions.FlushHeartbeats(t.Context(), map[string]time.Time{h.SessionID: at.Add(2 * time.Minute),
		"s-unknown": at}); err != nil {
		t.Fatal(err)
	}
	if !reachable(at.Add(time.Minute)) {
		t.Error("not reachable after a heartbeat")
	}
}

// TestASessionThatWasOvertakenSaysNothing: a copy of the agent on another machine has opened a session, and the
// machine's own agent after it, before the copy's boot is compared.
func TestASessionThatWasOvertakenSaysNothing(t *testing.T) {
	s := storetest.New(t)
	storetest.Lease(t, s)
	a := storetest.Live(t, s, "m-1")
	op := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "reboot",
		Type: fleet.Reboot}).GetOperationId()
	c := storetest.Decide(t, s, op, operation.Evaluate{}).Command
	agent, err := s.Agents.GetAgent(t.Context(), a.ID)
	if err != nil {
		t.Fatal(err)
	}
	if asked := storetest.Decide(t, s, op, storetest.Ask(a, c, 1, agent.GetEpoch())); !asked.Decision.Grant {
		t.Fatalf("no grant: %+v", asked.Decision.Refusal)
	}
	elsewhere := a.Hello("st-2", "boot-elsewhere")
	elsewhere.HardwareFingerprint, elsewhere.SessionID = "other", "s-elsewhere"
	overtaken := storetest.Open(t, s, elsewhere)
	own := a.Hello("st-1", "boot-2")
	own.SessionID, own.LastGrantSeq = "s-own", 1
	storetest.Open(t, s, own)
	after := storetest.Decide(t, s, op, operation.SessionOpened{AgentID: a.ID, StateID: "st-2", BootID: "boot-elsewhere",
		OfTarget: true, Epoch: overtaken.Epoch})
	if after.Phase != operation.Running {
		t.Errorf("by another machine's boot the reboot is %s: %v", after.Phase, after.Decision.Op.Evidence)
	}
}

// TestTheSiteAgentsReachStands: a machine without an agent of its own misses no heartbeats.
func TestTheSiteAgentsReachStands(t *testing.T) {
	s := storetest.New(t)
	storetest.Lease(t, s)
	storetest.Register(t, s, "m-1")
	a := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-site", Role: "site", Site: "default"})
	h := a.Hello("st-1", "boot-1")
	h.Capabilities = []string{"power", "reboot", "provider:fake"}
	storetest.Open(t, s, h)
	storetest.Maintenance(t, s, "m-1")
	op := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "reboot",
		Type: fleet.Reboot}).GetOperationId()
	c := storetest.Decide(t, s, op, operation.Evaluate{}).Command
	storetest.Decide(t, s, op, storetest.Ask(a, c, 1, 1))
	done := storetest.Decide(t, s, op, operation.Resulted{
		CommandID: c.ID, AgentID: a.ID, Outcome: operation.OutcomeSucceeded,
		Evidence: map[string]string{evidence.BootIDBefore: "boot-1", evidence.BootIDAfter: "boot-2"},
	})
	if done.Phase != operation.Succeeded {
		t.Fatalf("the reboot is %s", done.Phase)
	}
	if err := s.NodeStates.UpdateReachable(t.Context(), storetest.Now().Add(time.Minute), storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if c := storetest.Condition(storetest.Machine(t, s, "m-1"), fleet.Reachable); c.GetReason() != "SiteAgent" {
		t.Errorf("its site agent has reached it, and it is %v", storetest.Machine(t, s, "m-1").GetStatus().GetConditions())
	}
}

// Heartbeats are no change of a machine that a reader of changes would see.
func TestHeartbeatsStampNoMachine(t *testing.T) {
	s := storetest.New(t)
	a := storetest.Live(t, s, "m-1")
	h := a.Hello("st-1", "boot-1")
	storetest.Open(t, s, h)
	before := storetest.Everything(t, s, "machines")
	if err := s.Sessions.FlushHeartbeats(t.Context(),
		map[string]time.Time{h.SessionID: storetest.Now().Add(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	if after := storetest.Everything(t, s, "machines"); after != before {
		t.Error("a heartbeat changed the machine's row")
	}
}

func TestSessionsOfADeadControllerEnd(t *testing.T) {
	s := storetest.New(t)
	a := storetest.Live(t, s, "m-1")
	if err := s.Sessions.EndSessionsOf(t.Context(), "", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Agents.GetAgent(t.Context(), a.ID); err != nil || !got.GetConnected() {
		t.Fatalf("ended under a good lease, %v", err)
	}
	if err := s.Sessions.EndSessionsOf(t.Context(), "", storetest.Now().Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Agents.GetAgent(t.Context(), a.ID); err != nil || got.GetConnected() {
		t.Errorf("still connected, %v", err)
	}
}

// Controllers that have been gone for long are forgotten; who has a session, or was there lately, is not.
func TestControllersAreForgotten(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	for id, ended := range map[string]time.Duration{"c-old": -8 * 24 * time.Hour, "c-lately": -time.Hour,
		"c-here": time.Hour} {
		if err := s.Sessions.RenewLease(t.Context(), id, "v1", storetest.Now().Add(ended), storetest.Now()); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := s.Sessions.ForgetControllers(t.Context(), storetest.Now().Add(-7*24*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	var left []string
	all, err := s.Sessions.ListControllers(t.Context(), true, "", 10, storetest.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range all {
		left = append(left, k.GetControllerId()+" "+k.GetState().String())
	}
	if want := []string{"c-lately GONE", "c-here SERVING"}; !slices.Equal(left, want) {
		t.Errorf("%v are left, want %v", left, want)
	}
}

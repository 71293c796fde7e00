package session_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Controllers are listed with all that they have recorded of themselves, the newest first.
func TestControllersAreListedAsTheyDescribeThemselves(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	ctx, at := t.Context(), storetest.Now()
	listed := func(when string, now time.Time, all bool, before string, limit int32, want ...*baremetalv1.Controller) {
		t.Helper()
		got, err := s.Sessions.ListControllers(ctx, all, before, limit, now)
		if err != nil || !slices.EqualFunc(got, want, func(a, b *baremetalv1.Controller) bool { return proto.Equal(a, b) }) {
			t.Errorf("%s: %v, %v, want %v", when, got, err, want)
		}
	}
	renew := func(id, version string, until, now time.Time) {
		t.Helper()
		must(t, s.Sessions.RenewLease(ctx, id, version, until, now))
	}
	lease := at.Add(time.Hour)
	for _, id := range []string{"c-1", "c-2", "c-3", "ctl"} {
		renew(id, "v-"+id, lease, at)
	}
	want := map[string]*baremetalv1.Controller{}
	for _, id := range []string{"c-1", "c-2", "c-3", "ctl"} {
		want[id] = &baremetalv1.Controller{ControllerId: id, Version: "v-" + id, State: baremetalv1.Controller_SERVING,
			StartedAt: timestamppb.New(at), LeaseUntil: timestamppb.New(lease)}
	}
	listed("at first", at, false, "", 10, want["ctl"], want["c-3"], want["c-2"], want["c-1"])

	must(t, s.Sessions.DescribeController(ctx, "c-1", "host-1"), s.Sessions.SetHeartbeat(ctx, "c-2", 7*time.Second),
		s.Sessions.DrainController(ctx, "c-3", at.Add(time.Second)),
		s.Sessions.DrainController(ctx, "c-3", at.Add(time.Minute))) // it drains since the first time
	storetest.Exec(t, s, `INSERT INTO river_leader (elected_at, expires_at, leader_id, name)
		VALUES (now(), now() + interval '1 hour', 'c-2', 'default')`)
	for _, id := range []string{"m-1", "m-2", "m-3"} {
		a := inService(t, s, id)
		if id == "m-3" {
			must(t, s.Sessions.EndSession(ctx, a.ID, sessionID(t, s, a), at))
		}
	}
	renew("c-1", "v-other", lease.Add(time.Minute), at.Add(time.Minute)) // a renewal is of the lease alone
	want["c-1"].Hostname, want["c-1"].LeaseUntil = "host-1", timestamppb.New(lease.Add(time.Minute))
	want["c-2"].HeartbeatIntervalMs, want["c-2"].Leads = 7000, true
	want["c-3"].State, want["c-3"].DrainingSince = baremetalv1.Controller_DRAINING, timestamppb.New(at.Add(time.Second))
	want["ctl"].Sessions = 2
	listed("described", at, false, "", 10, want["ctl"], want["c-3"], want["c-2"], want["c-1"])
	listed("a page", at, false, "", 2, want["ctl"], want["c-3"])
	listed("the next page", at, false, "c-3", 2, want["c-2"], want["c-1"])

	for _, id := range []string{"ctl", "c-3", "c-2"} { // a drain that is over is over
		want[id].State = baremetalv1.Controller_GONE
	}
	listed("after their leases", lease, false, "", 10, want["c-1"])
	listed("after their leases, all", lease, true, "", 10, want["ctl"], want["c-3"], want["c-2"], want["c-1"])

	storetest.Exec(t, s, "UPDATE river_leader SET expires_at = now() - interval '1 second'")
	want["c-2"].Leads, want["c-2"].State = false, baremetalv1.Controller_SERVING
	released := at.Add(2 * time.Minute)
	must(t, s.Sessions.ReleaseLease(ctx, "c-3", released), s.Sessions.ReleaseLease(ctx, "c-1", lease.Add(time.Hour)))
	want["ctl"].State = baremetalv1.Controller_SERVING
	listed("one has released its lease", released, false, "", 10, want["ctl"], want["c-2"], want["c-1"])
	want["c-3"].LeaseUntil = timestamppb.New(released)
	listed("one has released its lease, all", released, true, "c-9", 1, want["c-3"])
	if n, err := s.Sessions.CountLiveSessions(ctx); err != nil || n != 2 {
		t.Errorf("%d live sessions, %v", n, err)
	}
	if n, err := s.Sessions.CountSessions(ctx); err != nil || n != 3 {
		t.Errorf("%d sessions ever, %v", n, err)
	}
}

// A controller counts the others whose leases hold, and takes the longest heartbeat of all of them.
func TestPeers(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	ctx, at := t.Context(), storetest.Now()
	for i, id := range []string{"c-1", "c-2", "c-3", "c-4"} {
		must(t, s.Sessions.RenewLease(ctx, id, "v", at.Add(time.Duration(i)*time.Minute), at))
	}
	peers := func(when, of string, now time.Time, want sessionstore.Peers) {
		t.Helper()
		if got, err := s.Sessions.Peers(ctx, of, now); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", when, got, err, want)
		}
	}
	peers("without a heartbeat", "c-4", at.Add(-1), sessionstore.Peers{Others: 3})
	must(t, s.Sessions.SetHeartbeat(ctx, "c-2", 9*time.Second), s.Sessions.SetHeartbeat(ctx, "c-3", 5*time.Second),
		s.Sessions.SetHeartbeat(ctx, "c-4", 1500*time.Millisecond))
	peers("the first is gone", "c-4", at, sessionstore.Peers{Others: 2, Heartbeat: 9 * time.Second})
	peers("its own is the longest", "c-2", at, sessionstore.Peers{Others: 2, Heartbeat: 9 * time.Second})
	peers("of one that is gone", "c-1", at, sessionstore.Peers{Others: 3, Heartbeat: 9 * time.Second})
	peers("the second is gone", "c-4", at.Add(time.Minute), sessionstore.Peers{Others: 1, Heartbeat: 5 * time.Second})
	peers("alone", "c-4", at.Add(2*time.Minute), sessionstore.Peers{Heartbeat: 1500 * time.Millisecond})
	peers("nobody is there", "c-4", at.Add(3*time.Minute), sessionstore.Peers{})
	must(t, s.Sessions.SetHeartbeat(ctx, "c-4", 0))
	peers("no longer longer", "c-4", at.Add(2*time.Minute), sessionstore.Peers{})
}

// Of controllers that have been gone for long, 1,000 at a time are forgotten, the oldest first, but none that holds a
// session.
func TestControllersAreForgottenSomeAtATime(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	at := storetest.Now()
	must(t, storetest.ExecSQL(t, s, `INSERT INTO controllers (controller_id, version, started_at, lease_until)
		SELECT 'c-' || n, '', $1, $1::timestamptz - n * interval '1 second' FROM generate_series(0, 1001) n`, at))
	inService(t, s, "m-1") // its session is of the controller that follows
	must(t, s.Sessions.RenewLease(t.Context(), "ctl", "", at.Add(-time.Hour), at))
	for i, want := range []int64{1000, 1, 0} {
		if n, err := s.Sessions.ForgetControllers(t.Context(), at); err != nil || n != want {
			t.Errorf("call %d: %d, %v, want %d", i, n, err, want)
		}
		if i == 0 && storetest.Count(t, s, "SELECT count(*) FROM controllers WHERE controller_id = 'c-1'") != 1 {
			t.Error("it is not the oldest that are forgotten first")
		}
	}
	left, err := s.Sessions.ListControllers(t.Context(), true, "", 10, at)
	if err != nil || len(left) != 2 || left[0].GetControllerId() != "ctl" || left[1].GetControllerId() != "c-0" {
		t.Errorf("left are %v, %v", left, err)
	}
}

// A controller that stops ends its own sessions and no others. One session is ended by its id.
func TestSessionsEndAtATime(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	ctx, at := t.Context(), storetest.Now()
	var all []storetest.Enrolled
	for _, id := range []string{"m-1", "m-2", "m-3"} {
		storetest.Lease(t, s)
		all = append(all, inService(t, s, id))
	}
	storetest.Exec(t, s, "UPDATE agent_sessions SET controller_id = 'other' WHERE agent_id = '"+all[2].ID+"'")
	ended := func(when string, want ...time.Time) {
		t.Helper()
		for i, w := range want {
			var got *time.Time
			must(t, s.DB.Pool().QueryRow(ctx, "SELECT ended_at FROM agent_sessions WHERE agent_id = $1", all[i].ID).Scan(&got))
			if (got == nil) != w.IsZero() || got != nil && !got.Equal(w) {
				t.Errorf("%s: session %d ended at %v, want %v", when, i, got, w)
			}
		}
	}
	must(t, s.Sessions.EndSession(ctx, all[0].ID, sessionID(t, s, all[0]), at.Add(time.Second)),
		s.Sessions.EndSession(ctx, all[1].ID, "s-of-before", at.Add(time.Second)),
		s.Sessions.EndSession(ctx, all[2].ID, sessionID(t, s, all[1]), at.Add(time.Second)))
	ended("one is ended", at.Add(time.Second), time.Time{}, time.Time{})
	must(t, s.Sessions.EndSessionsOf(ctx, "ctl", at.Add(time.Minute)))
	ended("a controller stops", at.Add(time.Second), at.Add(time.Minute), time.Time{})
	must(t, s.Sessions.RenewLease(ctx, "other", "", at.Add(time.Hour), at), s.Sessions.EndSessionsOf(ctx, "", at))
	ended("no lease has run out", at.Add(time.Second), at.Add(time.Minute), time.Time{})
	must(t, s.Sessions.EndSessionsOf(ctx, "", at.Add(2*time.Hour)))
	ended("one has", at.Add(time.Second), at.Add(time.Minute), at.Add(2*time.Hour))
}

// listening returns a function that returns the messages on channels of the database since its last call.
func listening(t *testing.T, s *store.Store, channels ...string) func() []string {
	t.Helper()
	conn, err := s.DB.Pool().Acquire(t.Context())
	must(t, err)
	t.Cleanup(conn.Release)
	for _, c := range append(channels, "marker") {
		_, err := conn.Exec(t.Context(), "LISTEN "+pgx.Identifier{c}.Sanitize())
		must(t, err)
	}
	return func() (out []string) {
		t.Helper()
		must(t, storetest.ExecSQL(t, s, "SELECT pg_notify('marker', '')"))
		for {
			n, err := conn.Conn().WaitForNotification(t.Context())
			must(t, err)
			if n.Channel == "marker" {
				slices.Sort(out)
				return out
			}
			words := strings.Fields(n.Payload)
			slices.Sort(words)
			out = append(out, n.Channel+": "+strings.Join(words, " "))
		}
	}
}

// Items are handed over to the controllers that hold the sessions, in one message to each, and not to the caller. An
// announcement goes to all.
func TestHandedOverToWhoHoldsTheSessions(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	var ids []string
	for i, controller := range []string{"c-1", "c-2", "c-2", "c-3", "c-2"} {
		a := inService(t, s, fmt.Sprint("m-", i))
		ids = append(ids, a.ID)
		must(t, storetest.ExecSQL(t, s, "UPDATE agent_sessions SET controller_id = $1 WHERE agent_id = $2", controller, a.ID))
	}
	must(t, storetest.ExecSQL(t, s, "UPDATE agent_sessions SET ended_at = now() WHERE agent_id = $1", ids[4]))
	heard := listening(t, s, "ingot_to_c-1", "ingot_to_c-2", "ingot_to_c-3", pgtx.Everybody)
	must(t, s.Sessions.HandOver(t.Context(), "c-1", ids, []string{"a", "b", "c", "d", "e"}))
	if got, want := heard(), []string{"ingot_to_c-2: b c", "ingot_to_c-3: d"}; !slices.Equal(got, want) {
		t.Errorf("handed over: %q, want %q", got, want)
	}
	must(t, s.Sessions.Announce(t.Context(), "payload"))
	if got, want := heard(), []string{pgtx.Everybody + ": payload"}; !slices.Equal(got, want) {
		t.Errorf("announced: %q, want %q", got, want)
	}
}

// A command is read as it was stored, by those who look for it in each way, and only while it is theirs.
func TestCommandsThatWaitForAnAnswer(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	ctx := t.Context()
	a, op, c := storetest.Rebooting(t, s, "m-1")
	_, op2, c2 := storetest.Rebooting(t, s, "m-2")
	sent := storetest.Now().Add(-time.Hour)
	must(t, storetest.ExecSQL(t, s, "UPDATE commands SET sent_at = $1 WHERE command_id = $2", sent, c.ID),
		storetest.ExecSQL(t, s, "UPDATE commands SET sent_at = $1 WHERE command_id = $2", sent.Add(time.Minute), c2.ID))
	is := func(when string, got operationstore.Outgoing, want *operation.Command) {
		t.Helper()
		if got.CommandID != want.ID || got.ExecutorID != want.ExecutorID ||
			storetest.Count(t, s, `SELECT count(*) FROM commands
			WHERE command_id = $1 AND spec = $2 AND digest = $3`, want.ID, got.Spec, got.Digest) != 1 {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	held, err := s.Sessions.HeldOut(ctx, []string{c2.ID, "cmd-unknown"})
	if err != nil || len(held) != 1 || held[0].State != operation.Sent {
		t.Fatalf("handed over: %+v, %v", held, err)
	}
	is("handed over", held[0].Outgoing, c2)
	unsettled, err := s.Sessions.Unsettled(ctx, a.ID)
	if err != nil || len(unsettled) != 1 {
		t.Fatalf("unsettled: %+v, %v", unsettled, err)
	}
	is("unsettled", unsettled[0], c)
	if none, err := s.Sessions.Unsettled(ctx, "ag-unknown"); err != nil || len(none) != 0 {
		t.Errorf("unsettled of an unknown agent: %+v, %v", none, err)
	}
	unanswered := func(when, controller string, before time.Time, want ...sessionstore.UnansweredCommand) {
		t.Helper()
		got, err := s.Sessions.UnansweredCommands(ctx, controller, before)
		slices.SortFunc(got, func(a, b sessionstore.UnansweredCommand) int { return a.Since.Compare(b.Since) })
		if err != nil || len(got) != len(want) {
			t.Fatalf("%s: %+v, %v, want %+v", when, got, err, want)
		}
		for i, w := range want {
			if got[i].CommandID != w.CommandID || got[i].Cancel != w.Cancel || !got[i].Since.Equal(w.Since) {
				t.Errorf("%s: %+v, want %+v", when, got[i], w)
			}
		}
	}
	of := func(c *operation.Command, cancel bool, since time.Time) sessionstore.UnansweredCommand {
		return sessionstore.UnansweredCommand{
			Outgoing: operationstore.Outgoing{CommandID: c.ID},
			Cancel:   cancel,
			Since:    since,
		}
	}
	unanswered("not yet", "ctl", sent)
	unanswered("the first", "ctl", sent.Add(time.Second), of(c, false, sent))
	unanswered("both", "ctl", sent.Add(time.Hour), of(c, false, sent), of(c2, false, sent.Add(time.Minute)))
	unanswered("of another controller", "ctl-2", sent.Add(time.Hour))
	got, err := s.Sessions.UnansweredCommands(ctx, "ctl", sent.Add(time.Second))
	must(t, err)
	is("unanswered", got[0].Outgoing, c)
	// A granted command is done with, until it is to be cancelled.
	storetest.Decide(t, s, op, storetest.Ask(a, c, 1, 1))
	unanswered("granted", "ctl", storetest.Now().Add(time.Hour), of(c2, false, sent.Add(time.Minute)))
	at := storetest.Now().Add(time.Minute)
	replica(t, s, "UPDATE operations SET cancel_requested_at = $1 WHERE operation_id = $2", at, op)
	unanswered("to be cancelled", "ctl", at.Add(time.Second), of(c2, false, sent.Add(time.Minute)), of(c, true, at))
	unanswered("to be cancelled, a moment ago", "ctl", at, of(c2, false, sent.Add(time.Minute)))

	if id, state, err := s.Sessions.CommandState(ctx, c.ID); id != op || state != operation.Granted || err != nil {
		t.Errorf("the command of %s is %s, %v", id, state, err)
	}
	if id, state, err := s.Sessions.CommandState(ctx, "cmd-unknown"); id != "" || state != "" || err != nil {
		t.Errorf("a command that is none: %s, %s, %v", id, state, err)
	}
	if id, step, executor, err := s.Sessions.CommandPlace(ctx, c2.ID); id != op2 || step != "reboot" ||
		executor != c2.ExecutorID || err != nil {
		t.Errorf("the place of the command is %s, %s, %s, %v", id, step, executor, err)
	}
	if id, step, executor, err := s.Sessions.CommandPlace(ctx, "cmd-unknown"); id+step+executor != "" || err != nil {
		t.Errorf("the place of one that is none: %s, %s, %s, %v", id, step, executor, err)
	}
}

// A controller learns which of its sessions are over: those that have ended, and those of agents with a newer one.
func TestSessionsThatAreOver(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	var all []storetest.Enrolled
	epochs := map[string]int64{}
	for _, id := range []string{"m-stays", "m-moves", "m-ends", "m-other"} {
		a := inService(t, s, id)
		all = append(all, a)
		epochs[a.ID] = 1
	}
	delete(epochs, all[3].ID)
	if got, err := s.Sessions.MovedSessions(t.Context(), epochs); err != nil || len(got) != 0 {
		t.Errorf("at first: %+v, %v", got, err)
	}
	for _, i := range []int{1, 3} {
		h := all[i].Hello("st-1", "boot-1")
		h.HardwareFingerprint = "hw"
		storetest.Open(t, s, h)
	}
	must(t, s.Sessions.EndSession(t.Context(), all[2].ID, sessionID(t, s, all[2]), storetest.Now()))
	got, err := s.Sessions.MovedSessions(t.Context(), epochs)
	must(t, err)
	slices.SortFunc(got, func(a, b sessionstore.Moved) int { return int(b.Epoch - a.Epoch) })
	want := []sessionstore.Moved{{AgentID: all[1].ID, Hardware: "hw", Epoch: 2},
		{AgentID: all[2].ID, Hardware: "hw", Epoch: 1, Ended: true}}
	if !slices.Equal(got, want) {
		t.Errorf("over are %+v, want %+v", got, want)
	}
}

// One session alone is opened by itself, however many were opened before it.
func TestOneSessionIsNoCrowd(t *testing.T) {
	t.Parallel()
	lots := &lots{}
	s := storetest.With(t, store.Config{Tracer: lots})
	storetest.Lease(t, s)
	a := inService(t, s, "m-1")
	for range 10 {
		storetest.Open(t, s, a.Hello("st-1", "boot-1"))
	}
	if n := lots.n.Load(); n != 0 {
		t.Errorf("%d lots of sessions", n)
	}
}

// lots counts the lots of sessions that are opened together.
type lots struct{ begun }

func (l *lots) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.Contains(d.SQL, "name: LockCalmAgents") {
		l.n.Add(1)
	}
	return ctx
}

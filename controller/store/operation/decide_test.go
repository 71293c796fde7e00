package operation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/history"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/operationlog"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// A decision is stored wholly or not at all, wherever its writer dies; what was not stored can be decided again.
func TestDecisionsAreWhole(t *testing.T) {
	s, n := storetest.New(t), 0
	for _, step := range []string{"look", "grant", "result", "late look", "cancel"} {
		for _, point := range []string{"store.before-apply", "store.before-commit", "store.after-commit"} {
			for _, action := range []failpoint.Action{failpoint.Error(), failpoint.Panic()} {
				n++
				t.Run(fmt.Sprintf("%s/%s/%v", step, point, action), func(t *testing.T) {
					decideAndDie(t, s, fmt.Sprintf("m-%d", n), step, point, action)
				})
			}
		}
	}
}

func decideAndDie(t *testing.T, s *store.Store, machineID, step, point string, action failpoint.Action) {
	a := storetest.Live(t, s, machineID)
	id := storetest.Start(t, s, operationstore.StartRequest{MachineID: machineID, RequestID: "reboot",
		Type: fleet.Reboot}).GetOperationId()
	var c *operation.Command
	if step != "look" {
		c = storetest.Decide(t, s, id, operation.Evaluate{}).Command
	}
	if step == "result" || step == "late look" {
		storetest.Decide(t, s, id, storetest.Ask(a, c, 1, 1))
	}
	var e operation.Event = operation.Evaluate{}
	at, want := storetest.Now(), operation.Running
	switch step {
	case "grant":
		e = storetest.Ask(a, c, 1, 1)
	case "result":
		e, want = operation.Resulted{CommandID: c.ID, AgentID: a.ID, Outcome: operation.OutcomeSucceeded,
			SessionBootID: "boot-2"}, operation.Succeeded
	case "late look":
		at, want = at.Add(24*time.Hour), operation.Failed
	case "cancel":
		e, want = operation.CancelAsked{Actor: "x"}, operation.Canceled
	}
	before := storetest.Everything(t, s, storetest.Decided...)
	scope := failpoint.NewScope()
	scope.Set(point, action)
	died := storetest.Dies(func() error {
		_, err := s.Operations.Decide(failpoint.With(t.Context(), scope), id, e, at)
		return err
	})
	if !errors.Is(died, failpoint.ErrInjected) {
		t.Fatalf("got %v", died)
	}
	after := storetest.Everything(t, s, storetest.Decided...)
	committed := point == "store.after-commit"
	if committed == (after == before) {
		t.Fatalf("changed %t", after != before)
	}
	if !committed {
		decide2, err := s.Operations.Decide(t.Context(), id, e, at)
		if err != nil {
			t.Fatalf("once more: %v", err)
		}
		if step == "grant" && !decide2.Decision.Grant {
			t.Fatalf("the number was used up: %+v", decide2.Decision.Refusal)
		}
	}
	storetest.Whole(t, s, machineID, id, want)
}

// Many events at once are decided one after the other, and their numbers have no gaps.
func TestConcurrentDecisions(t *testing.T) {
	s := storetest.New(t)
	a, id, c := storetest.Rebooting(t, s, "m-1")
	for i, err := range storetest.Together(t, 60, func(ctx context.Context, i int) error {
		var e operation.Event
		switch i % 6 {
		case 0:
			e = operation.Evaluate{}
		case 1:
			e = operation.AckedByAgent{CommandID: c.ID, AgentID: a.ID}
		case 2:
			e = storetest.Ask(a, c, uint64(i), 1)
		case 3:
			e = operation.CancelAsked{Actor: "x"}
		case 4:
			e = operation.Resulted{CommandID: c.ID, AgentID: a.ID, Outcome: operation.OutcomeFailed, Retryable: true}
		default:
			_, err := s.Logs.AppendLog(ctx, id, "stdout", "reboot", []byte("x"), storetest.Now())
			return err
		}
		_, err := s.Operations.Decide(ctx, id, e, storetest.Now())
		return err
	}) {
		if err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
	}
	events, err := s.Logs.EventsOf(t.Context(), id, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range events {
		if e.Seq != int64(i+1) {
			t.Fatalf("event %d has number %d", i, e.Seq)
		}
	}
	logs, err := s.Logs.LogsOf(t.Context(), id, 0, 100)
	if err != nil || len(logs) != 10 || logs[9].GetSeq() != 10 {
		t.Errorf("%d pieces of log, %v", len(logs), err)
	}
	grants := storetest.Count(t, s, "SELECT count(*) FROM commands WHERE granted_at IS NOT NULL")
	fences := storetest.Count(t, s, "SELECT count(*) FROM machines WHERE unresolved_command_id IS NOT NULL")
	unknown := storetest.Count(t, s, "SELECT count(*) FROM commands WHERE state = 'UNKNOWN'")
	if grants > 1 || fences != unknown {
		t.Errorf("%d grants, %d fences, %d unknown", grants, fences, unknown)
	}
}

// The feed over all operations shows every event once and in order, also while others commit.
func TestFeedMissesNothing(t *testing.T) {
	s := storetest.New(t)
	const machines = 24
	for i := range machines {
		storetest.Register(t, s, fmt.Sprintf("m-%d", i))
	}
	head, err := s.Logs.FeedHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int64{}
	read := func(ctx context.Context) error {
		for {
			events, err := s.Logs.Feed(ctx, head, 5)
			if err != nil || len(events) == 0 {
				return err
			}
			for _, e := range events {
				if op := e.Snapshot.GetOperationId(); e.Seq != seen[op]+1 {
					return fmt.Errorf("event %d of %s comes after %d", e.Seq, op, seen[op])
				}
				seen[e.Snapshot.GetOperationId()] = e.Seq
				head = e.Pos
			}
		}
	}
	for _, err := range storetest.Together(t, machines+1, func(ctx context.Context, i int) error {
		if i == machines {
			for len(seen) < machines/2 {
				if err := read(ctx); err != nil {
					return err
				}
			}
			return nil
		}
		op, _, err := s.Operations.Start(ctx, operationstore.StartRequest{MachineID: fmt.Sprintf("m-%d", i), RequestID: "r",
			Type: fleet.EnterMaintenance}, storetest.Now())
		if err == nil {
			_, err = s.Operations.Decide(ctx, op.GetOperationId(), operation.Evaluate{}, storetest.Now())
		}
		return err
	}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	// Transactions of other tests on the same server may hold the last events back for a moment.
	total := storetest.Count(t, s, "SELECT count(*) FROM operation_events")
	storetest.Eventually(t, func() bool {
		if err := read(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, seq := range seen {
			n += int(seq)
		}
		return n == total
	}, "not all %d events came", total)
}

func TestAuditAndItsScrub(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	storetest.Live(t, s, "m-2")
	for _, id := range []string{"m-1", "m-2"} {
		op := storetest.Start(t, s, operationstore.StartRequest{MachineID: id, RequestID: "r", Type: fleet.Reboot,
			Comment: "asked by Ada"})
		if _, err := s.Operations.Cancel(t.Context(), op.GetOperationId(), "tester", storetest.Now()); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := s.History.ListAudit(t.Context(), history.AuditFilter{TargetID: "m-1", Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	verbs := ""
	for _, r := range rows {
		verbs = r.GetVerb() + " " + verbs
	}
	if want := "REGISTER ISSUE_TOKEN ENROLL ENTER_MAINTENANCE REBOOT CANCEL "; verbs != want {
		t.Errorf("verbs %q, want %q", verbs, want)
	}
	const ada = "SELECT count(*) FROM audit_log WHERE event_data::text LIKE '%Ada%' AND target_id = $1"
	if storetest.Count(t, s, ada, "m-1") != 1 || storetest.Count(t, s, ada, "m-2") != 1 {
		t.Fatal("the comment is not in the audit log")
	}
	if n, err := s.History.ScrubAudit(t.Context(), "m-1", "tester", storetest.Now()); err != nil || n == 0 {
		t.Errorf("%d rows, %v", n, err)
	}
	if storetest.Count(t, s, ada, "m-1") != 0 || storetest.Count(t, s, ada, "m-2") != 1 {
		t.Error("scrubbed the wrong rows")
	}
	after, err := s.History.ListAudit(t.Context(), history.AuditFilter{TargetID: "m-1", Limit: 100})
	if err != nil || len(after) != len(rows)+1 || after[0].GetVerb() != "SCRUB_AUDIT" {
		t.Errorf("%d rows before, %d after, %v", len(rows), len(after), err)
	}
	for i, r := range rows {
		if got := after[i+1]; got.GetVerb() != r.GetVerb() || got.GetActor() != r.GetActor() ||
			!got.GetTs().AsTime().Equal(r.GetTs().AsTime()) {
			t.Errorf("scrubbing changed %v to %v", r, got)
		}
	}
	// Nowhere else is there any trace.
	if all := storetest.Everything(t, s, "operations", "operation_events", "machines", "node_state_log",
		"commands"); storetest.ContainsAny(all, "Ada") {
		t.Error("the comment is stored outside of the audit log")
	}
}

// TestTheFeedKeepsTheOrderOfAnOperation: a transaction has its number before it gets the operation, and another is
// through meanwhile.
func TestTheFeedKeepsTheOrderOfAnOperation(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	// A page ends before the oldest transaction that is open, which may be another test's.
	all := storetest.Count(t, s, "SELECT count(*) FROM operation_events")
	var before []operationlog.Event
	var err error
	storetest.Eventually(t, func() bool {
		before, err = s.Logs.Feed(t.Context(), operationlog.FeedPos{}, 100)
		return err != nil || len(before) == all
	}, "not all events come")
	if err != nil || len(before) == 0 {
		t.Fatalf("%d events at first: %v", len(before), err)
	}
	head := before[len(before)-1].Pos
	tx, err := s.DB.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	var number string
	if err := tx.QueryRow(t.Context(), "SELECT pg_current_xact_id()::text").Scan(&number); err != nil {
		t.Fatal(err)
	}
	op := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "reboot",
		Type: fleet.Reboot}).GetOperationId()
	if page, err := s.Logs.Feed(t.Context(), head, 100); err != nil || len(page) != 0 {
		t.Fatalf("%d events are shown while an earlier transaction is open: %v", len(page), err)
	}
	if _, err := s.Operations.DecideInTx(t.Context(), tx, op, operation.CancelAsked{Actor: "tester"},
		storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	var page []operationlog.Event
	testkit.Eventually(t, time.Minute, func() bool {
		page, err = s.Logs.Feed(t.Context(), head, 100)
		return err != nil || len(page) != 0
	}, "no events")
	if err != nil {
		t.Fatal(err)
	}
	if last := page[len(page)-1]; last.Kind != "canceled" || len(page) < 2 {
		t.Errorf("%d events, the last %q", len(page), last.Kind)
	}
	for i, e := range page {
		if e.Pos.Seq != int64(i)+1 {
			t.Errorf("event %d (%s) is number %d of the feed", e.Pos.Seq, e.Kind, i+1)
		}
	}
}
